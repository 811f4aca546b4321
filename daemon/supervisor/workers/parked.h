/* Requests to a worker that is asleep: kept until it serves. Pure. */
#pragma once

#include "../../../proto/status.h"
#include "../../../proto/wire/message.h"
#include "requests.h"

#include <sys/queue.h>

struct parked_request {
  TAILQ_ENTRY(parked_request) link;
  enum command command;
  void *body; /* owned; of the command's type */
  worker_done done;
  void *user;
};

TAILQ_HEAD(parked, parked_request);

/* What becomes of a request while the worker sleeps. */
enum parked_way {
  PARKED_WAITS,     /* for the worker, which is started */
  PARKED_WAKES,     /* a worker that starts hears of it anyway; it is started */
  PARKED_NEEDS_NONE /* nor starts one: a session with an arena, as gemmctl's, need not compute */
};

enum parked_way parked_way(enum command command);
/* Copies the body. NOMEM. */
MUST_CHECK enum status parked_add(struct parked *parked, enum command command, const void *body, worker_done done,
                                  void *user, struct error *error);
/* The first one, which the caller gives to parked_free; NULL: there is none. */
struct parked_request *parked_take(struct parked *parked);
void parked_free(struct parked_request *request);
/* Answers all DEVICE_LOST: the worker of `device` does not start. */
void parked_fail(struct parked *parked, uint32_t device);
