/* Jobs under way, and pieces of such, one a slot. */
#pragma once

#include "../state.h"

/* As in struct backend_ops. */
enum status cuda_submit(struct backend *, const struct backend_job *, struct error *);
int cuda_poll(struct backend *, struct backend_done *, int);

/* A free slot for a whole job, or for a piece of one; NULL where as many of these are under way as may be. */
struct slot *submit_slot(struct backend *backend, bool piece);
/* The slot is to compute rows `row` .. `end - 1` of the job's chain; `turns`: of whose piece, or NULL. */
void submit_take(struct slot *slot, const struct backend_job *job, struct backend_turns *turns, int64_t row,
                 int64_t end);
/* Queues them, the weight is chosen. OK: poll reports their end. */
MUST_CHECK enum status submit_start(struct backend *backend, struct slot *slot, struct error *error);
