/* Loads: each is a loader process that turns tensors of files into a weight in canonical form, behind which the placer
 * puts it on the device. At most loaders_max processes at a time, and one more for a small load; the other loads wait,
 * and users take turns. */
#ifndef SUPERVISOR_WEIGHTS_LOADS_H
#define SUPERVISOR_WEIGHTS_LOADS_H

#include "../../../proto/wire/message.h"
#include "../net/channel.h"
#include "../session/session.h"
#include "../workers/child.h"
#include "catalog.h"
#include "load_line.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

struct supervisor;

/* Descriptors of a load, owned by whoever has the struct. */
struct load_files {
  int fds[LIMIT_MESSAGE_FDS];
  size_t count;
};

struct load {
  TAILQ_ENTRY(load) link;  /* in loads.running, or the placer's line */
  struct load_entry entry; /* in loads.waiting */
  struct supervisor *supervisor;
  struct session *session;      /* held until load_finish */
  uint32_t id;                  /* of the client's request */
  struct session_request asked; /* the same */
  struct message_weight_load request;
  struct catalog_user user;
  struct load_files files; /* none once the loader has them */
  bool cancelled;          /* the client is gone */
  bool aside;              /* runs in the place for small ones */
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
  uint32_t attempts;                /* of the placer */
  /* A load of nothing: copies of a weight that is there, into memory that can be lent, come to stand for its names of
   * the class. NULL: it is a load. */
  struct catalog_weight *source; /* not owned: counted by its handles */
  struct catalog_class of;
  void (*moved)(void *user, const struct error *error); /* NULL: all went well */
  void *mover;
};

struct loads {
  struct load_line waiting;            /* owned */
  TAILQ_HEAD(load_list, load) running; /* owned */
  uint32_t running_count;              /* beside that in the place for small ones */
  bool aside;                          /* that is taken */
};

/* Of the entry. */
struct load *load_of(struct load_entry *entry);

void loads_init(struct loads *loads);
/* Takes the files over in any case. BUSY where the session has too many loads under way, NOMEM. */
MUST_CHECK enum status loads_add(struct session *session, uint32_t id, const struct message_weight_load *request,
                                 struct load_files *files, struct error *error);
/* Puts a weight into memory that can be lent, for its names of that class; `name` is one of them. `moved` is called
 * once, with an error where the session has ended meanwhile, too. NOMEM. */
MUST_CHECK enum status loads_move(struct session *session, struct catalog_weight *weight, struct catalog_class of,
                                  const char *name, void (*moved)(void *user, const struct error *error), void *user,
                                  struct error *error);
/* Ends what the session had asked for. */
void loads_session_left(struct supervisor *supervisor, struct session *session);

/* Answers the client, or who wanted a weight moved, and frees the load: a reply where `info` is given, else
 * load->error. */
void load_finish(struct load *load, const struct message_weight_info *info);

#endif
