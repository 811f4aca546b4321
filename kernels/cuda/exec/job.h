/* What is asked of a job before anything of it is queued. */
#pragma once

#include "../../backend.h"

/* UNSUPPORTED names the type that the weight, or a step's, does not take; INVALID: codes of x without scales. */
MUST_CHECK enum status job_types_check(const struct backend_job *job, struct error *error);

/* The same, and M. */
MUST_CHECK enum status job_check(const struct backend_job *job, struct error *error);
