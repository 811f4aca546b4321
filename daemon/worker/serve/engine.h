/* The engine: one thread that serves the rings of all sessions on one device. It owns every table that serving reads,
 * so that there is no lock on the way of a product; other threads change those tables by messages. */
#pragma once

#include "../control/mailbox.h"
#include "counters.h"
#include "objects.h"

struct engine;

struct tuner;

struct engine_options {
  const struct backend_ops *ops;
  struct backend *backend;   /* not owned; submit and poll are the engine's from here on */
  struct tuner *tuner;       /* not owned; the engine's from here on until engine_stop */
  uint32_t in_flight;        /* products on the device at a time */
  uint64_t spin_us;          /* how long the idle engine looks at the rings before it sleeps, at most */
  uint32_t batch_rows;       /* of a product that several requests are gathered into, at most; 0, 1: none is */
  uint64_t batch_window_us;  /* how long a request waits for others */
  uint64_t event_timeout_us; /* how long a request is held for an event, at most */
  /* Called on the engine's thread for each message that comes back or comes unasked; may not block. */
  void (*notify)(void *user, struct engine_message *message);
  void *user;
};

/* Starts the thread. */
MUST_CHECK enum status engine_start(const struct engine_options *options, struct engine **out, struct error *error);
/* Any thread. The message and what it names stay untouched by others until it comes back. */
void engine_post(struct engine *engine, struct engine_message *message);
/* Any thread. What was done, and for how long nothing although there was something to do. Asking is something to do: an
 * engine that sleeps and cannot be woken shows it at the next call. */
void engine_stats(struct engine *engine, struct message_worker_stats *out);
/* Stops taking products, waits for those on the device, ends the thread and frees the engine. Sessions and weights
 * stay their owner's; messages not answered by then never are. */
void engine_stop(struct engine *engine);
