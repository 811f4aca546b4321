/* The weights that one session has open: handles, small numbers that stand for a part of a weight on one device. Pure.
 *
 * A handle is generation << 16 | index. A slot's generation rises when it is given back, so that a handle kept by
 * mistake does not mean the next weight. No handle is 0. */
#pragma once

#include "../../../proto/limits.h"
#include "../../../proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct catalog_weight;

struct opened_slot {
  struct catalog_weight *weight; /* not owned: counted by catalog_weight.handles. NULL: free */
  uint32_t device;
  uint16_t generation; /* never 0 */
  bool closing;        /* its worker has been asked to forget it, and a successor must not be told of it */
};

struct opened {
  struct opened_slot *slots; /* owned */
  size_t count;              /* of slots, free ones included */
  size_t open;
  size_t lowest; /* no slot below is free */
};

void opened_free(struct opened *opened);
/* TOO_LARGE where LIMIT_SESSION_WEIGHTS are open. */
MUST_CHECK enum status opened_add(struct opened *opened, struct catalog_weight *weight, uint32_t device,
                                  uint32_t *handle, struct error *error);
/* NULL where the handle stands for nothing. */
const struct opened_slot *opened_find(const struct opened *opened, uint32_t handle);
void opened_close(struct opened *opened, uint32_t handle); /* from now on it is closing */
void opened_remove(struct opened *opened, uint32_t handle);
/* The handle of slot `index` < count; 0 where it is free. */
uint32_t opened_at(const struct opened *opened, size_t index);
