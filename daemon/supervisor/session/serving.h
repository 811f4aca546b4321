/* Which sessions the workers serve: tells every worker of an arena that begins or ends. */
#pragma once

#include "../workers/worker_proxy.h"
#include "session.h"

enum { SERVING_FDS = 3 };

/* Makes the session's open arena known to all workers. `done` gets the first failure, or NULL; a worker that dies
 * meanwhile is no failure, because its successor hears of the arena. May be called before this returns. */
void serving_add(struct session *session, void (*done)(struct session *session, const struct error *error));
/* Ends it: when no worker uses the arena any more, closes it and gives back the weights that the session had open,
 * then calls `done`. Nothing but that where there is no arena. May be called before this returns. */
void serving_remove(struct session *session, void (*done)(struct session *session, const struct error *error));

/* What a successor of a worker must be told of a session that is served. */
struct message_session_add serving_message(const struct session *session, uint32_t device);
/* Arena, doorbell of the device, wakeup; not owned. */
void serving_descriptors(const struct session *session, uint32_t device, int fds[SERVING_FDS]);

/* Asks the worker to open what is in that slot of session->tensors; as worker_ask. */
MUST_CHECK enum status serving_give_tensor(const struct session *session, size_t slot, struct worker *worker,
                                           worker_done done, void *user, struct error *error);
