/* What the files of the library share; private. Functions in here return enum status and leave the sentence in
 * session->error; public functions return the negative. */
#pragma once

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
#include <sys/queue.h>
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

  /* the socket */
  int socket;               /* owned; stays open after the end, so that what polls it sees the end */
  pid_t daemon;             /* embedded: its process; 0: none, or reaped */
  char path[108], name[64]; /* of the socket, "" for an embedded daemon; of the client */
  int64_t timeout_ns;
  bool calling;
  bool resuming;
  int64_t resume_ns;  /* how long a lost daemon is waited for; 0: not at all */
  uint32_t stand_ins; /* handles of weights that the daemon has not */
  uint32_t resumes;   /* how often the session went on with another daemon */
  uint32_t calls;     /* ids given so far */
  struct abandoned abandoned[SESSION_ABANDONED];
  uint32_t abandoned_count;
  uint8_t packet[LIMIT_MESSAGE_BYTES];

  /* the arena */
  uint8_t *arena; /* mapped; NULL before */
  int memfd;      /* of the arena, owned: to be handed to the next daemon */
  uint64_t arena_bytes, tensor_offset;
  uint32_t entries, devices;
  struct heap heap;

  /* the rings */
  struct queue queues[LIMIT_DEVICES];
  struct pending pending;
  int wakeup;      /* eventfd, owned */
  int epoll;       /* over socket and wakeup, owned */
  bool event_loop; /* gemmd_fd was asked for: completions must ring whenever the caller is not in here */
  struct spin spin;
  bool crowded; /* so few cores that who spins may stand in the worker's way */

  LIST_HEAD(, gemmd_weight) weights;    /* all open ones, owned */
  LIST_HEAD(, gemmd_plan) plans;        /* all, owned */
  LIST_HEAD(, gemmd_borrowed) borrowed; /* all, owned */
  struct slab *slabs;                   /* whose descriptors are here, owned */
  LIST_HEAD(, gemmd_memory) tensors;    /* all, owned */
};

static inline int session_result(enum status status) {
  return -(int)status;
}

/* Ends the session for good. Returns `status`. */
enum status session_end(struct gemmd_session *session, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The error of every call after the end: DISCONNECTED. */
enum status session_gone(struct gemmd_session *session);
