/* What the engine does in each round: takes products from rings, starts them on the device, publishes their ends.
 * One thread; nothing in here waits. */
#ifndef WORKER_SERVE_SERVE_H
#define WORKER_SERVE_SERVE_H

#include "../../../proto/clock.h"
#include "engine.h"
#include "plans.h"
#include "wake.h"

enum { SERVE_IN_FLIGHT = 64 + 1 }; /* products, and one turn of a long one more */

struct serve {
  const struct backend_ops *ops;
  struct backend *backend; /* not owned */
  uint32_t in_flight_max, in_flight;
  struct queue_job *on_device[SERVE_IN_FLIGHT]; /* these, in the order that they were started in */
  uint64_t oldest_ns;                           /* since when the first of them has been the first */
  struct tuner *tuner;                          /* not owned */
  int64_t batch_rows;                           /* of one product made of several, at most */
  uint64_t batch_window_ns, event_timeout_ns;
  struct queue queue;
  struct plans plans;
  struct engine_traffic tensors;    /* products that bring W themselves */
  struct engine_session **sessions; /* owned list of those that are served */
  size_t session_count, session_capacity;
  size_t turn;           /* whose ring is looked at first */
  uint64_t deadlines_ns; /* when they were last looked at */
  struct counters counters;
  struct wake wake;
  void (*notify)(void *user, struct engine_message *message);
  void *user;
};

/* The tables; the rest is filled in by the caller. */
void serve_init(struct serve *serve);
void serve_close(struct serve *serve);

/* NOMEM. */
MUST_CHECK enum status serve_session_add(struct serve *serve, struct engine_session *session, struct error *error);
/* No more products of it are taken; those that wait are dropped. Those on the device go on. */
void serve_session_drop(struct serve *serve, struct engine_session *session);
/* The session is gone for good: its handles stand for nothing; `message` goes back when the device has finished. */
void serve_session_remove(struct serve *serve, struct engine_session *session, struct engine_message *message);
/* `message` goes back when no product uses the weight. */
void serve_weight_detach(struct serve *serve, struct engine_weight *weight, struct engine_message *message);

/* The handle stands for nothing from here on; BUSY, and it stays, while products use the memory or are held for the
 * event, those too that its client has asked for and nobody has taken. */
void serve_tensor_remove(struct serve *serve, struct engine_message *message);
void serve_event_remove(struct serve *serve, struct engine_message *message);

/* Each returns how much it did. serve_start starts one product at most, or gives one its next turn: its end should be
 * published before the next one keeps this thread. */
unsigned serve_take(struct serve *serve);
/* Asks one event whether it has come, and lets the products go that are held for it; those whose time is over end. */
unsigned serve_look(struct serve *serve);
/* Every few milliseconds: ends what waits and whose deadline has passed. */
unsigned serve_expire(struct serve *serve);
unsigned serve_start(struct serve *serve, struct error *lost);
/* DEVICE_LOST in lost->status ends it all; the same holds for serve_start. */
unsigned serve_finish(struct serve *serve, struct error *lost);

/* When the oldest product on the device should end, by how long those before it took; 0 where there is none. */
uint64_t serve_expected_ns(struct serve *serve);

/* True where a client has asked for something. */
bool serve_wanted(const struct serve *serve);
/* Announces sleep on every ring; false, and nothing is announced, where there is something to do first. */
bool serve_sleep(struct serve *serve);
void serve_awake(struct serve *serve);

#endif
