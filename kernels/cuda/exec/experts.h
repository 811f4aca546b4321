/* Jobs over experts on a slot's stream: their tensors in, the run, y out. */
#pragma once

#include "../state.h"

/* How many of `rows` rows of a job the slot's staging memory holds at a time. NOMEM where not one fits. */
MUST_CHECK enum status experts_rows(const struct slot *slot, const struct backend_job *job, int64_t rows, int64_t *out,
                                    struct error *error);
/* The slot's next `rows` rows. */
MUST_CHECK enum status experts_queue(struct backend *backend, struct slot *slot, int64_t rows, struct error *error);
/* The same without what comes in and goes out, of tensors that experts_stage has brought in: for the clock. `sorted`:
 * the one before was the same product, whose sorted rows are taken. */
MUST_CHECK enum status experts_stage(struct slot *slot, int64_t rows, struct error *error);
MUST_CHECK enum status experts_bare(struct backend *backend, struct slot *slot, int64_t rows, bool sorted,
                                    struct error *error);
/* Pairs that have been skipped since the slot's first row, once the stream has come to its end. */
uint32_t experts_skipped(const struct slot *slot);
