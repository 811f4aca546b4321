/* From a submission to a product for the backend. */
#pragma once

#include "plans.h"

/* Fills the job from a private copy of the submission; everything in that is the client's word until checked. Weights,
 * plan and memory count the job as theirs from then on. *event: what it is to be held for; NULL: nothing. Otherwise
 * nothing counts it, and the error names the field. */
MUST_CHECK enum status prepare_job(struct plans *plans, struct engine_session *session,
                                   const struct ring_submission *submission, struct queue_job *job,
                                   struct engine_event **event, struct error *error);
