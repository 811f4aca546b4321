/* One load on its way from the client's request through the loader's process, or the worker that has its numbers
 * (loads.h), to its place on the devices (placer.h). */
#pragma once

#include "../../../../proto/wire/message.h"
#include "../../net/channel.h"
#include "../../session/session.h"
#include "../../workers/child.h"
#include "../catalog.h"
#include "load_line.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

/* Descriptors of a load, owned by whoever has the struct. */
struct load_files {
  int fds[LIMIT_MESSAGE_FDS];
  size_t count;
};

struct worker;

struct load {
  TAILQ_ENTRY(load) link;  /* in loads.running, or the placer's line */
  struct load_entry entry; /* in loads.waiting */
  struct supervisor *supervisor;
  struct session *session;      /* held until its end */
  uint32_t id;                  /* of the client's request */
  struct session_request asked; /* the same */
  struct message_weight_load request;
  struct catalog_user user;
  struct load_files files;
  struct catalog_stamp stamps[CATALOG_MARKS];
  bool cancelled; /* the client is gone */
  bool aside;     /* runs in the place for small ones */
  /* Of memory on a device: its worker makes the weight in the loader's stead. */
  struct worker *maker; /* NULL: a loader does */
  struct message_weight_make make;
  /* the loader */
  struct child *child; /* NULL: none lives */
  uv_timer_t timer;
  struct channel channel;
  unsigned open; /* of child, timer and channel */
  /* its answer */
  bool answered;
  struct error error; /* status OK: all is well */
  struct message_load_done done;
  uint8_t hash[CATALOG_HASH_BYTES]; /* of the two in `done` the one that counts */
  uint32_t hash_kind;               /* enum catalog_hash_kind */
  int canonical;                    /* owned memfd; -1: none */
  int numbers;                      /* owned memfd that a worker, or a second loader, makes the weight of; -1: none */
  struct message_load_done left;    /* what was said of them */
  struct catalog_weight *found;     /* by its stamp; nothing was read; counted by its handles. NULL: none */
  uint32_t attempts;                /* of the placer */
  /* A load of nothing: copies of a weight that is there, into memory that can be lent, come to stand for its names of
   * the class. NULL: it is a load. */
  struct catalog_weight *source; /* not owned: counted by its handles */
  struct catalog_class of;
  void (*moved)(void *user, const struct error *error); /* NULL: all went well */
  void *mover;
  /* Called once when neither a loader nor a worker is at it any more. */
  void (*ended)(struct load *load);
  /* Called by the placer, once: answers the client, or who wanted a weight moved, and frees the load. A reply where
   * `info` is given, else `error`. */
  void (*placed)(struct load *load, const struct message_weight_info *info);
};

TAILQ_HEAD(load_list, load);
