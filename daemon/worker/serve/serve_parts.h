/* What the parts of serve.h share. For serve*.c alone.
 *
 *   serve.c         sessions, what comes from the rings, events, what goes back
 *   serve_device.c  batches, turns of long products, kernels, the device */
#ifndef WORKER_SERVE_SERVE_PARTS_H
#define WORKER_SERVE_SERVE_PARTS_H

#include "serve.h"

/* `error` says how the product ended. The client of a session that is no longer served hears nothing. */
void serve_complete(struct serve *serve, struct queue_job *job, const struct error *error, uint64_t device_ns);
/* A product that was waiting ends. */
void serve_give_up(struct serve *serve, struct queue_job *job, enum status status);
/* A product under way is to end in its next turn, with this status. */
void serve_stop(struct serve *serve, struct queue_job *job, enum status status);
bool serve_expired(const struct queue_job *job, uint64_t now_ns);
/* Of what the product multiplies with. */
struct engine_traffic *serve_traffic_of(struct serve *serve, const struct queue_job *job);

#endif
