/* What the files of the library share; private. Functions in here return enum status and leave the sentence in
 * session->error; public functions return the negative. */
#ifndef CLIENT_SESSION_SESSION_H
#define CLIENT_SESSION_SESSION_H

#include "../../proto/limits.h"
#include "../../proto/shm/ring.h"
#include "../../proto/shm/spin.h"
#include "../../proto/status.h"
#include "../../proto/wire/message.h"
#include "../gemmclient.h"
#include "../memory/heap.h"
#include "../submit/pending.h"
#include "clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { SESSION_ABANDONED = 16 }; /* calls given up whose answers may still come */

struct abandoned {
  uint32_t id;
  enum command command;
};

/* This session's end of one device's rings. */
struct queue {
  struct ring_client ring;
  int doorbell; /* owned */
  bool open;
  uint32_t in_flight; /* parts submitted whose completions have not come */
};

struct gemmd_session {
  struct error error; /* of the last failure */
  bool ended;         /* for good; every later call is DISCONNECTED */
  struct error end;   /* why */

  /* control.c */
  int socket;               /* owned; stays open after the end, so that what polls it sees the end */
  pid_t daemon;             /* embedded: its process; 0: none, or reaped */
  char path[108], name[64]; /* of the socket, "" for an embedded daemon; of the client */
  int64_t timeout_ns;
  bool calling;
  bool resuming;
  int64_t resume_ns; /* how long a lost daemon is waited for; 0: not at all */
  uint32_t resumes;  /* how often the session went on with another daemon */
  uint32_t calls;    /* ids given so far */
  struct abandoned abandoned[SESSION_ABANDONED];
  uint32_t abandoned_count;
  uint8_t packet[LIMIT_MESSAGE_BYTES];

  /* the arena */
  uint8_t *arena; /* mapped; NULL before */
  int memfd;      /* of the arena, owned: to be handed to the next daemon */
  uint64_t arena_bytes, tensor_offset;
  uint32_t entries, devices;
  struct heap heap;

  /* queue.c, wait.c */
  struct queue queues[LIMIT_DEVICES];
  struct pending pending;
  int wakeup;      /* eventfd, owned */
  int epoll;       /* over socket and wakeup, owned */
  bool event_loop; /* gemmd_fd was asked for: completions must ring whenever the caller is not in here */
  struct spin spin;
  bool crowded; /* so few cores that who spins may stand in the worker's way */

  struct gemmd_weight *weights;    /* all open ones, owned */
  struct gemmd_plan *plans;        /* all, owned */
  struct gemmd_borrowed *borrowed; /* all, owned */
  struct slab *slabs;              /* whose descriptors are here, owned */
  struct gemmd_memory *tensors;    /* all, owned */
};

struct gemmd_weight {
  struct gemmd_session *session;
  struct gemmd_weight *next, *previous;
  gemmd_weight_info info;
  struct gemm_weight shape;
  enum message_placement placement;
  uint32_t part_count;
  struct pending_part parts[LIMIT_PARTS];
  uint32_t next_handles[LIMIT_PARTS]; /* resume.c: of the session with the next daemon */
};

static inline int session_result(enum status status) {
  return -(int)status;
}

/* ---- control.c */

/* A command and its answer. */
struct call {
  enum command command;
  const void *request; /* struct of the command's request */
  void *reply;         /* struct of the command's reply */
  int fd;              /* that travels with the request; -1: none */
  const int *more_fds; /* behind it */
  size_t more_fd_count;
  int *reply_fds; /* receives the descriptors of the reply, the caller's from then on; NULL: none may come */
  size_t reply_fd_count;
  size_t *reply_fds_came; /* so many of LIMIT_MESSAGE_FDS came; less than were sent where there was no room for them in
                             this process. NULL: it must be reply_fd_count */
  bool patient;           /* without the session's time limit */
  bool once;              /* is not asked again of the next daemon */
  void (*progress)(void *user, uint64_t done, uint64_t total); /* of a load; NULL: none */
  void *user;
};

/* Sends and waits for the answer. The daemon's refusal is returned as it is; anything else than a proper answer ends
 * the session. Where the daemon is lost, the session goes on with the next one if it can: the call is made again there,
 * or is DISCONNECTED where it is to be made once. */
MUST_CHECK enum status control_call(struct gemmd_session *session, const struct call *call);
/* Calls of one kind that are under way together; their answers come in any order. */
struct calls {
  unsigned width; /* how many at a time, at most CALLS_WIDTH */
  /* Fills in the next call, with what it points to, which stays until it is done; false: there is none now. */
  bool (*next)(void *user, unsigned slot, struct call *call);
  void (*done)(void *user, unsigned slot, enum status status); /* the sentence is the session's */
  void *user;
};
enum { CALLS_WIDTH = 8 };

/* Makes calls until there are none. What each comes to is said to `done`; the result is not OK where the session has
 * ended meanwhile: calls under way have no answer then, and none is made again. */
MUST_CHECK enum status control_calls(struct gemmd_session *session, const struct calls *calls);
/* Takes in what came unasked, without waiting: events, late answers, the end. The end alone inside a call. True where
 * a message came. */
bool control_look(struct gemmd_session *session);
/* Before a submission names anything of the session: DISCONNECTED where it has ended and does not go on with the next
 * daemon. Where a device has failed it looks whether its daemon is still there: one that ended then has left the rings
 * as they were, and only the socket knows. */
MUST_CHECK enum status session_alive(struct gemmd_session *session);
/* Ends the session for good. Returns `status`. */
enum status session_end(struct gemmd_session *session, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The error of every call after the end: DISCONNECTED. */
enum status session_gone(struct gemmd_session *session);

/* ---- connect.c */

MUST_CHECK enum status session_connect(struct gemmd_session *session);
MUST_CHECK enum status session_hello(struct gemmd_session *session, struct message_hello_reply *reply);
/* Says hello and gets the arena, on a socket that is open. */
MUST_CHECK enum status session_begin(struct gemmd_session *session, const gemmd_options *options);
/* Adds socket and wakeup to what gemmd_fd watches. */
MUST_CHECK enum status session_watch(struct gemmd_session *session);

/* ---- resume.c */

/* After the end of a session: finds the next daemon, with growing pauses, gives it the arena, opens the weights by name
 * and submits again what was in flight. False where that cannot be; session->end says why. */
bool session_resume(struct gemmd_session *session);

/* What `handle` on `device` is called there; 0, which stands for nothing, where its weight has been closed: the number
 * may be another one's there. */
uint32_t weight_next_handle(const struct gemmd_session *session, uint32_t device, uint32_t handle);

/* ---- queue.c */

/* Opens the rings of a device unless they are open. */
MUST_CHECK enum status queue_open(struct gemmd_session *session, uint32_t device);
void queue_close(struct queue *queue);
bool queue_failed(const struct queue *queue);
/* Takes what a lost daemon's worker had still answered. */
void queues_salvage(struct gemmd_session *session);
/* Submits every part again that has no answer, to rings that are new. */
void queues_submit_all(struct gemmd_session *session);
/* Submits one part. The queue is open and has room. */
void queue_submit(struct gemmd_session *session, struct request *request, uint32_t part);
/* Asks the device to drop an open part; false where its ring has no room. */
bool queue_cancel(struct gemmd_session *session, const struct request *request, uint32_t part);
/* True where queues_take_in has something to do. Reads shared memory only. */
bool queues_look(const struct gemmd_session *session);
/* Takes in what all devices have answered; submits again what a lost worker left; ends what cannot be served. */
void queues_take_in(struct gemmd_session *session);
/* Asks the devices with something in flight to write the wakeup; false where there is something to do first. */
bool queues_sleep(struct gemmd_session *session);
void queues_awake(struct gemmd_session *session);

/* ---- wait.c */

/* Where an event loop polls gemmd_fd: makes sure that it becomes readable for what is in flight. */
void session_arm(struct gemmd_session *session);

/* ---- submit.c */

/* Offset in the arena of a tensor that the caller points to. INVALID naming `what`. */
MUST_CHECK enum status session_offset(struct gemmd_session *session, const void *tensor, const char *what,
                                      uint64_t *offset);

/* In the arena, or in memory of the caller's own, whose handle and size are filled in. INVALID naming `what`. */
MUST_CHECK enum status tensor_offset(struct gemmd_session *session, const void *pointer, const char *what,
                                     uint64_t *offset, uint32_t *handle, uint64_t *bytes);
/* Types, rows, strides and offsets of what the caller points to; N and K are left to be filled in. INVALID. */
MUST_CHECK enum status product_offsets(struct gemmd_session *session, const gemmd_product *from,
                                       struct gemm_product *out);
/* All of x, y and the event that is the caller's own is on this device; LIMIT_DEVICES: nothing is. INVALID where they
 * differ. */
MUST_CHECK enum status product_device(struct gemmd_session *session, const gemmd_product *product, uint32_t *device);
/* The entry for the ring, but for handle and tag. */
void product_submission(const gemmd_product *from, const struct gemm_product *product, const struct gemm_extent *extent,
                        struct ring_submission *out);
/* Of devices that hold the same, the one that serves and has the least to do; the first one where all have failed.
 * `device`: that one alone, unless it is LIMIT_DEVICES; NULL, with the session's error, where it is not among them. */
const struct pending_part *parts_choose(struct gemmd_session *session, const struct pending_part *parts,
                                        uint32_t part_count, uint32_t device);
/* Submits a checked entry to the devices of all parts, as gemmd_submit; returns the public status. */
int session_submit(struct gemmd_session *session, const struct ring_submission *submission,
                   const struct pending_part *parts, uint32_t part_count, uint64_t *ticket);

/* The daemon knows a weight by a handle, its user by a name: puts that behind the sentence. */
void weight_name_error(const struct gemmd_weight *weight, struct error *error);

/* ---- weight.c */

/* Copies text that must have 1..bytes-1 bytes; `what` names it. */
MUST_CHECK enum status text_copy(struct gemmd_session *session, char *to, size_t bytes, const char *from,
                                 const char *what);
/* The open weight with a part that is `handle` on `device`; NULL where it has been closed. */
const struct gemmd_weight *weight_find(const struct gemmd_session *session, uint32_t device, uint32_t handle);
/* Frees the handle without telling the daemon. */
void weight_forget(struct gemmd_weight *weight);

/* Opens a file for reading, a path from `folder` (AT_FDCWD). NOT_FOUND, PERMISSION, SYSTEM with the path. */
MUST_CHECK enum status path_open(struct gemmd_session *session, int folder, const char *path, int *fd);

/* ---- memory.c */

struct tensor_place {
  uint32_t handle, device;
  uint64_t offset, bytes; /* of the pointer; of all */
};

/* NULL where the pointer is into none. */
const struct gemmd_memory *tensor_find(const struct gemmd_session *session, const void *pointer);
void tensor_place(const struct gemmd_memory *tensor, const void *pointer, struct tensor_place *out);
/* What submissions call the event, on this device. */
uint32_t event_handle(const struct gemmd_event *event, uint32_t *device);
/* Frees it without telling the daemon. */
void tensor_forget(struct gemmd_memory *tensor);
/* The next daemon maps all; then their handles become those, also in what is in flight. */
MUST_CHECK enum status tensors_open_again(struct gemmd_session *session);
void tensors_rename_handles(struct gemmd_session *session);

/* ---- borrow.c */

/* Frees it, and the descriptors that nothing else needs, without telling the daemon. */
void borrowed_forget(struct gemmd_borrowed *borrowed);
/* The next daemon is told what is still here; what it has not is alone from now on. */
MUST_CHECK enum status borrowed_hold_again(struct gemmd_session *session);
void borrowed_withdraw(struct gemmd_session *session, const struct message_weight_withdrawn *event);

/* ---- plan.c */

void plan_forget(struct gemmd_plan *plan);
/* The handles of all plans become those of the session with the next daemon. */
void plans_rename_handles(struct gemmd_session *session);

/* ---- info.c */
void info_convert(const struct message_weight_info *from, gemmd_weight_info *to);

/* ---- embedded.c */

/* Starts a daemon that serves one socket. `config`: path of its configuration, "" for none. The caller owns *socket
 * and must reap *daemon. */
MUST_CHECK enum status embedded_start(const char *config, int *socket, pid_t *daemon, struct error *error);
/* Waits for its end, which closing the socket brings about; kills it after a while. Returns its wait status; -1 where
 * somebody else has reaped it. */
int embedded_reap(pid_t daemon);

#endif
