/* The tuned kernels of all devices, in memory that clients map (proto/published.h), and what clients that compute by
 * themselves tell of their shapes (proto/seen.h). */
#pragma once

#include "../../../proto/wire/message.h"
#include "../idle/untuned.h"

#include <stdint.h>
#include <uv.h>

struct session;
struct supervisor;

/* The table of one device; it outlives the device's workers. */
struct publishing_table {
  void *memory; /* owned mapping; NULL: nobody has asked for it, and nothing was found yet */
  int fd;       /* owned, where there is memory */
};

struct publishing {
  struct publishing_table tables[LIMIT_DEVICES];
  struct untuned untuned[LIMIT_DEVICES]; /* for the workers, when these may tune */
  uv_timer_t timer;                      /* runs while there are rings */
  uint32_t rings;
};

void publishing_init(struct supervisor *supervisor);
/* Closes the timer; tables stay for who asks for them last. */
void publishing_stop(struct supervisor *supervisor);
void publishing_free(struct supervisor *supervisor);

/* A worker has found something, or that what it had found is not right. */
void publishing_found(struct supervisor *supervisor, uint32_t device, const struct message_tuning_found *found);
/* The descriptor of the device's table, made where there is none; the supervisor's. */
MUST_CHECK enum status publishing_table(struct supervisor *supervisor, uint32_t device, int *fd, struct error *error);
/* The same for the session's ring. */
MUST_CHECK enum status publishing_ring(struct session *session, int *fd, struct error *error);
/* A kernel that a client has found is kept for the worker to prove and race. NOT_FOUND: the borrow stands for nothing,
 */
MUST_CHECK enum status publishing_propose(struct session *session, const struct message_tune_propose *proposal,
                                          struct error *error);
void publishing_session_left(struct session *session);
