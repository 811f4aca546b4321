/* Loads: each is a loader process that turns tensors of files into a weight in canonical form, behind which the placer
 * puts it on the device. At most loaders_max processes at a time, and one more for a small load; the other loads wait,
 * and users take turns. */
#pragma once

#include "load.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct session;
struct supervisor;
struct worker;

struct loads {
  struct load_line waiting; /* owned */
  struct load_list running; /* owned */
  uint32_t running_count;   /* beside that in the place for small ones */
  bool aside;               /* that is taken */
};

void loads_init(struct loads *loads);
/* Takes the files over in any case. BUSY where the session has too many loads under way, NOMEM. */
MUST_CHECK enum status loads_add(struct session *session, uint32_t id, const struct message_weight_load *request,
                                 struct load_files *files, struct error *error);
/* The same of numbers in memory on the device of `maker`, which makes the weight. */
MUST_CHECK enum status loads_take(struct session *session, uint32_t id, const struct message_weight_load *request,
                                  struct worker *maker, const struct message_weight_make *make, struct error *error);
/* Puts a weight into memory that can be lent, for its names of that class; `name` is one of them. `moved` is called
 * once, with an error where the session has ended meanwhile, too. NOMEM. */
MUST_CHECK enum status loads_move(struct session *session, struct catalog_weight *weight, struct catalog_class of,
                                  const char *name, void (*moved)(void *user, const struct error *error), void *user,
                                  struct error *error);
/* Ends what the session had asked for. */
void loads_session_left(struct supervisor *supervisor, struct session *session);
