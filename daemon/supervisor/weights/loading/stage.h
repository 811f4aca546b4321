/* Weights that a session has loaded and that have no names yet: those of a model, which come to be all at once, or not
 * at all. What is staged is held like what is open, and goes with its session. */
#pragma once

#include "../catalog.h"

struct supervisor;

struct stage_item {
  char name[LIMIT_NAME_BYTES];
  struct catalog_wish wish;      /* its name is `name` only while it is used */
  struct catalog_weight *weight; /* not owned: counted by catalog_weight.handles */
};

struct stage {
  struct stage_item *items; /* owned; in order of coming */
  size_t count, capacity;
};

/* EXISTS where the session has staged other content under that name. */
MUST_CHECK enum status stage_add(struct stage *stage, const struct catalog_wish *wish, struct catalog_weight *weight,
                                 struct error *error);
/* Names all that is staged. Names that begin with `instead_of` ("": none), that the user may change and that are not
 * among them go. *dropped counts those. Nothing is changed, and all stays staged, where one of them may not be named.
 */
MUST_CHECK enum status stage_commit(struct supervisor *supervisor, struct stage *stage, struct catalog_user user,
                                    const char *instead_of, uint32_t *dropped, struct error *error);
/* Forgets what is staged. */
void stage_drop(struct supervisor *supervisor, struct stage *stage);
