/* What the engine works on: weights, memory and events of clients, sessions. Their owner is the control thread; what is
 * said to be the engine's, or the tuner's, changes on the engine's thread alone. */
#pragma once

#include "../../../kernels/backend.h"
#include "../../../proto/shm/ring.h"
#include "../control/mailbox.h"
#include "handles.h"
#include "queue.h"

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

/* Prepares a session over an arena whose size has been checked; `devices` queues are in it and this engine serves
 * that of `device`. The caller sets base, arena_bytes, arena, doorbell, wakeup and user before. NOMEM. */
MUST_CHECK enum status engine_session_open(struct engine_session *session, uint32_t entries, uint32_t devices,
                                           uint32_t device, uint32_t generation, struct error *error);
/* Frees what engine_session_open took. Only while no engine has the session. */
void engine_session_close(struct engine_session *session);
