/* Requests to a worker that wait for their answer, in order of sending. */
#pragma once

#include "../../../proto/status.h"
#include "../../../proto/wire/message.h"
#include "../net/channel.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

/* The answer to one request. */
struct worker_answer {
  enum status status;
  struct error error;                  /* where status is not OK */
  const union worker_reply_body *body; /* where status is OK; valid during the call */
  int fd;                              /* that came with it; -1: none. Whoever takes it sets -1 here */
};

union worker_reply_body {
  struct message_empty empty;
  struct message_weight_plan_reply weight_plan;
  struct message_weight_placed weight_placed;
  struct message_worker_stats worker_stats;
  struct message_tune_list_reply tune_list;
  struct message_tune_trials_reply tune_trials;
  struct message_tune_run_reply tune_run;
  struct message_tune_count tune_count;
  struct message_load_done load_done;
};

/* DEVICE_LOST: the worker died, and is reaped by now. Never called from inside worker_ask. */
typedef void (*worker_done)(void *user, struct worker_answer *answer);

struct requests {
  TAILQ_HEAD(request_list, request) waiting; /* owned */
  uint32_t last_id;
};

void requests_init(struct requests *requests);
/* Sends one by `channel`; NULL: it waits only, for requests_fail. The descriptors stay the caller's. */
MUST_CHECK enum status requests_send(struct requests *requests, enum command command, struct channel *channel,
                                     const void *body, const int *fds, size_t fd_count, worker_done done, void *user,
                                     struct error *error);
/* Gives a reply to whoever waits for it. PROTOCOL where nobody does, or where it is none to that request. */
MUST_CHECK enum status requests_answer(struct requests *requests, const struct message_head *head,
                                       struct message_body body, struct packet *packet, struct error *error);
/* Answers all DEVICE_LOST: the worker of `device` is reaped. */
void requests_fail(struct requests *requests, uint32_t device);
/* The same of those that need not wait for that. */
void requests_fail_at_once(struct requests *requests, uint32_t device);
/* Whether any is not in the background. */
bool requests_wanted(const struct requests *requests);

/* Need not wait until a dying worker is reaped. */
bool request_needs_no_end(enum command command);
/* Keeps no worker awake. */
bool request_is_background(enum command command);
