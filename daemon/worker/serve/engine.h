/* The engine: one thread that serves the rings of all sessions on one device. It owns every table that serving reads,
 * so that there is no lock on the way of a product; other threads change those tables by messages. */
#ifndef WORKER_SERVE_ENGINE_H
#define WORKER_SERVE_ENGINE_H

#include "../../../kernels/backend.h"
#include "../../../proto/shm/ring.h"
#include "../control/mailbox.h"
#include "counters.h"
#include "handles.h"
#include "queue.h"

struct engine;

/* What is known of the products of one weight, or of one plan; the engine's. */
struct engine_traffic {
  struct queue_group waiting;
  uint32_t on_device;  /* that have begun and not ended */
  uint64_t started_ns; /* when the last one began */
  uint64_t typical_ns; /* from begin to end, a moving average */
};

/* A weight that is ready for products. */
struct engine_weight {
  struct gemm_weight shape;
  struct backend_weight *device; /* not owned */
  /* the engine's */
  uint32_t handles;              /* that stand for it, in all sessions */
  uint32_t jobs;                 /* that use it, waiting or on the device */
  struct engine_message *detach; /* to be sent back when jobs is 0 */
  struct engine_traffic traffic;
  const struct variant *pin; /* set by hand; the tuner's. NULL: none */
};

/* Memory of a client's own, in which x, y and W may lie. */
struct engine_tensor {
  struct backend_arena *memory; /* not owned */
  uint8_t *address;             /* that offsets in it are counted from; not for the host to read */
  uint64_t bytes;
  /* the engine's */
  uint32_t jobs; /* that use it, waiting or on the device */
};

/* An event of a client's, before which products do not begin. */
struct engine_event {
  struct backend_event *device; /* not owned */
  uint32_t handle;
  struct queue_event waiting; /* the engine's */
};

/* A session as the engine sees it. Filled by engine_session_open; nothing else may look inside between
 * ENGINE_SESSION_ADD and the return of ENGINE_SESSION_REMOVE. */
struct engine_session {
  uint8_t *base; /* of the mapped arena; not owned */
  uint64_t arena_bytes;
  uint64_t tensor_offset;      /* where tensors may begin */
  struct backend_arena *arena; /* not owned */
  int doorbell, wakeup;        /* not owned */
  uint32_t user;               /* whose it is */
  struct ring_worker ring;
  struct queue_lane lane;
  struct handles handles;         /* of struct engine_weight */
  struct handles tensors;         /* of struct engine_tensor */
  struct handles events;          /* of struct engine_event */
  struct engine_message *removal; /* to be sent back when the lane is empty */
  struct engine_message breakage; /* for ENGINE_SESSION_BROKEN */
  size_t place;                   /* in the engine's list */
  bool served;                    /* in the engine's list */
};

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

/* Prepares a session over an arena whose size has been checked; `devices` queues are in it and this engine serves
 * that of `device`. The caller sets base, arena_bytes, arena, doorbell, wakeup and user before. NOMEM. */
MUST_CHECK enum status engine_session_open(struct engine_session *session, uint32_t entries, uint32_t devices,
                                           uint32_t device, uint32_t generation, struct error *error);
/* Frees what engine_session_open took. Only while no engine has the session. */
void engine_session_close(struct engine_session *session);

#endif
