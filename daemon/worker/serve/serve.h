/* What the engine does in each round: takes products from rings, and publishes their ends; between, serve_device.h. One
 * thread; nothing in here waits. */
#pragma once

#include "../../../proto/clock.h"
#include "counters.h"
#include "objects.h"
#include "plans.h"
#include "wake.h"

enum { SERVE_IN_FLIGHT = 64 + 1 }; /* products, and one turn of a long one more */

struct tuner;

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

/* Each returns how much it did. */
unsigned serve_take(struct serve *serve);
/* Asks one event whether it has come, and lets the products go that are held for it; those whose time is over end. */
unsigned serve_look(struct serve *serve);
/* Every few milliseconds: ends what waits and whose deadline has passed. */
unsigned serve_expire(struct serve *serve);

/* True where a client has asked for something. */
bool serve_wanted(const struct serve *serve);
/* Announces sleep on every ring; false, and nothing is announced, where there is something to do first. */
bool serve_sleep(struct serve *serve);
void serve_awake(struct serve *serve);

/* ---- for serve_device.c */

/* `error` says how the product ended. The client of a session that is no longer served hears nothing. */
void serve_complete(struct serve *serve, struct queue_job *job, const struct error *error, uint64_t device_ns);
/* A product that was waiting ends. */
void serve_give_up(struct serve *serve, struct queue_job *job, enum status status);
/* A product under way is to end in its next turn, with this status. */
void serve_stop(struct serve *serve, struct queue_job *job, enum status status);
bool serve_expired(const struct queue_job *job, uint64_t now_ns);
/* Of what the product multiplies with. */
struct engine_traffic *serve_traffic_of(struct serve *serve, const struct queue_job *job);
