/* Messages between the control thread and the engine thread, in order, without copies: who puts a message leaves it
 * alone until it comes back. Looking into an empty box takes no lock. */
#pragma once

#include "../../../proto/status.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum engine_verb {
  /* to the engine; the same message comes back when it is done */
  ENGINE_SESSION_ADD,
  ENGINE_SESSION_REMOVE, /* comes back when no product uses the arena */
  ENGINE_HANDLE_ADD,
  ENGINE_HANDLE_REMOVE,
  ENGINE_WEIGHT_DETACH, /* comes back when no product uses the weight; WRONG_STATE where handles stand for it */
  ENGINE_TENSOR_ADD,
  ENGINE_TENSOR_REMOVE, /* BUSY while products use it */
  ENGINE_EVENT_ADD,
  ENGINE_EVENT_REMOVE, /* BUSY while products are held for it */
  ENGINE_TUNE,         /* a struct tune_request; comes back when it has been carried out */
  ENGINE_STOP,         /* never comes back: the thread ends */
  /* from the engine, unasked */
  ENGINE_SESSION_BROKEN,
  ENGINE_DEVICE_LOST,
  ENGINE_TUNE_SAVE,  /* within a struct tune_save */
  ENGINE_TUNE_FOUND, /* within a struct tune_found */
};

struct engine_message {
  struct engine_message *next;
  enum engine_verb verb;
  uint32_t handle;
  struct engine_session *session;
  struct engine_weight *weight;
  struct engine_tensor *tensor;
  struct engine_event *event;
  struct tune_request *tune; /* with ENGINE_TUNE; whoever posts it owns it */
  struct error error;        /* error.status is OK where all went well */
};

struct mailbox {
  pthread_mutex_t lock;
  struct engine_message *first, *last;
  atomic_bool filled;
};

void mailbox_open(struct mailbox *box);
void mailbox_close(struct mailbox *box);
void mailbox_put(struct mailbox *box, struct engine_message *message);
bool mailbox_filled(const struct mailbox *box);
/* All messages, oldest first, linked by `next`; NULL where there is none. */
struct engine_message *mailbox_take(struct mailbox *box);
