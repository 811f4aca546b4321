/* Entries into the rings of devices that hold a weight; private. */
#pragma once

#include "../session/session.h"

/* Of devices that hold the same, the one that serves and has the least to do; the first one where all have failed.
 * `device`: that one alone, unless it is LIMIT_DEVICES; NULL, with the session's error, where it is not among them. */
const struct pending_part *parts_choose(struct gemmd_session *session, const struct pending_part *parts,
                                        uint32_t part_count, uint32_t device);
/* Submits a checked entry to the devices of all parts, as gemmd_submit; returns the public status. */
int submit_entry(struct gemmd_session *session, const struct ring_submission *submission,
                 const struct pending_part *parts, uint32_t part_count, uint64_t *ticket);

/* Before anything of the session is named: it is alive, and the daemon has the weight, or those of the plan where that
 * is NULL. NOT_FOUND, with a sentence that names the weight, where it has not. */
MUST_CHECK enum status submit_ready(struct gemmd_session *session, struct gemmd_weight *weight,
                                    struct gemmd_plan *plan);

/* gemmd_submit, over experts where these are not NULL. */
int submit_product(gemmd_weight *weight, const gemmd_product *product, const gemmd_experts *experts, uint64_t *ticket);
