/* What the parts of control.h share. For control*.c alone.
 *
 *   control.c       start and close, the socket and the engine's mail
 *   control_line.c  commands one after the other
 *   control_send.c  what goes to the supervisor
 *   the others      what each command does */
#pragma once

#include "../../transport.h"
#include "../serve/engine.h"
#include "../tune/tuner.h"
#include "idmap.h"

#include <sys/queue.h>
#include <uv.h>

struct control;

/* What a command works on; the backend's and the engine's parts are in here. All are the control thread's, and are
 * lent to the pool's thread by the command that runs there. */
struct control_slab {
  uint32_t id;
  uint64_t bytes;
  struct backend_slab *device;
  uint32_t weights; /* attached in it */
};

struct control_weight {
  uint32_t id;
  struct control_slab *slab;
  uint64_t offset, bytes; /* in the slab */
  struct engine_weight engine;
  bool detaching;
};

/* What a client has given: memory, or an event. */
struct control_tensor {
  LIST_ENTRY(control_tensor) link;
  uint32_t handle;
  bool is_event;
  struct engine_tensor engine; /* its memory is owned */
  struct engine_event event;   /* its device's part is owned */
};

struct control_session {
  uint32_t id;
  LIST_HEAD(control_tensors, control_tensor) tensors; /* owned */
  struct engine_session engine;                       /* base, doorbell and wakeup are owned */
};

enum { CONTROL_FDS = 3 }; /* the most that an internal command brings */

/* One command under way. */
struct control_task {
  struct control_task *next; /* in the line */
  struct control *control;
  const struct control_handler *handler;
  uint32_t id;    /* of the request */
  bool releasing; /* back from the engine */
  union {
    struct message_slab_create slab_create;
    struct message_slab_import slab_import;
    struct message_slab_free slab_free;
    struct message_weight_plan weight_plan;
    struct message_weight_place weight_place;
    struct message_weight_id weight_id;
    struct message_weight_make weight_make;
    struct message_session_add session_add;
    struct message_session_id session_id;
    struct message_session_weight session_weight;
    struct message_session_tensor session_tensor;
    struct message_session_ipc session_ipc;
    struct message_tune_list_request tune_list;
    struct message_tune_trials_request tune_trials;
    struct message_tune_forget_request tune_forget;
    struct message_tune_import_request tune_import;
    struct message_weight_tune weight_tune;
    struct message_weight_pin weight_pin;
    struct message_weight_seen weight_seen;
    struct message_worker_follow worker_follow;
    struct message_worker_quiet worker_quiet;
  } request;
  union {
    struct message_weight_plan_reply weight_plan;
    struct message_tune_list_reply tune_list;
    struct message_tune_trials_reply tune_trials;
    struct message_tune_run_reply tune_run;
    struct message_tune_count tune_count;
    struct message_weight_placed weight_placed;
    struct message_load_done load_done;
  } reply;
  struct tune_request *tune; /* owned */
  int fds[CONTROL_FDS];      /* that came; owned, closed at the end, -1 where there is none */
  int reply_fd;              /* to be sent; stays open here only until then; -1: none */
  struct control_slab *slab;
  struct control_weight *weight, *source; /* source: of a copy */
  struct control_session *session;
  struct control_tensor *tensor;
  enum status status; /* the first failure, with its error */
  struct error error;
  uv_work_t work;
  struct engine_message message;
};

/* The steps of a command. Each may be NULL.
 *   begin    control thread: looks up, checks, makes. When it fails, no other step follows
 *   work     pool thread: calls the backend
 *   post     control thread: fills task->message for the engine
 *   release  pool thread: calls the backend after the engine has answered; task->status says how
 *   finish   control thread: always after a begin that went well; task->status says how it all went */
struct control_handler {
  uint32_t command;
  bool overtaken; /* the next commands need not wait for the engine's answer */
  enum status (*begin)(struct control *control, struct control_task *task, struct error *error);
  enum status (*work)(struct control *control, struct control_task *task, struct error *error);
  void (*post)(struct control *control, struct control_task *task);
  void (*release)(struct control *control, struct control_task *task);
  void (*finish)(struct control *control, struct control_task *task);
};

struct control_letter;

struct control {
  uv_loop_t *loop;
  int socket, device;
  uv_poll_t poll;
  uv_async_t async; /* the engine has put something into `mail` */
  const struct backend_ops *ops;
  struct backend *backend;
  struct engine *engine;
  struct tuner *tuner; /* owned; the engine's while that runs */
  struct mailbox mail;
  struct engine_message *saves, *saves_last; /* of struct tune_save, those that wait for the one on the pool */
  struct tune_save *saving;                  /* on the pool; NULL: none */
  uv_work_t save_work;
  struct idmap slabs, weights, sessions;       /* of struct control_slab, control_weight, control_session; owned */
  struct control_task *first, *last;           /* the line; owned */
  struct control_task *active;                 /* the next one waits for it: on the pool's thread or with the engine */
  struct control_letter *unsent, *unsent_last; /* messages that the socket did not take yet; owned */
  bool closing;
  /* control.c's, for what lies below it: watches the socket for what is wanted now. */
  void (*watch)(struct control *control);
  /* The supervisor is gone, or what it sends makes no sense. */
  void (*end)(struct control *control);
  struct error lost; /* status OK: the device is well */
  struct packet packet;
};
