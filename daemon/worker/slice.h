/* Products that are computed some rows at a time. What the machine's own cores compute keeps the engine's thread, and
 * with it everybody's products, until it ends; so a long product has a turn for every few milliseconds of it. */
#ifndef WORKER_SLICE_H
#define WORKER_SLICE_H

#include "queue.h"

/* How many rows of the job's product its next turn is for: all, or fewer. Pure. */
int64_t slice_rows(const struct backend_ops *ops, const struct queue_job *job);
/* Computes that many, and moves the job's product on to the rows behind them, without their number. As the backend's
 * submit; *done is of these rows. Nothing else is in flight. */
MUST_CHECK enum status slice_run(const struct backend_ops *ops, struct backend *backend, struct queue_job *job,
                                 int64_t rows, struct backend_done *done, struct error *error);

#endif
