/* Memory of a client's own that its session uses for x and y: descriptors, kept so that the successor of a worker can
 * map it, too. */
#ifndef SUPERVISOR_TENSORS_H
#define SUPERVISOR_TENSORS_H

#include "../../proto/limits.h"
#include "../../proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tensor_slot {
  bool taken, open; /* open: the worker has mapped it, and a successor is to do so */
  int fd;           /* owned */
  uint32_t device;
  uint64_t bytes;
  uint16_t generation;
};

/* Zeros are an empty table. */
struct tensors {
  struct tensor_slot slots[LIMIT_SESSION_TENSORS];
};

/* Takes `fd` over. TOO_LARGE where LIMIT_SESSION_TENSORS are taken; it stays the caller's then. */
MUST_CHECK enum status tensors_add(struct tensors *tensors, int fd, uint32_t device, uint64_t bytes, size_t *slot,
                                   struct error *error);
/* generation << 16 | slot; never 0. */
uint32_t tensors_handle(const struct tensors *tensors, size_t slot);
/* NULL where the handle stands for no open slot. */
struct tensor_slot *tensors_find(struct tensors *tensors, uint32_t handle);
/* Bytes of all. */
uint64_t tensors_bytes(const struct tensors *tensors);
/* Gives the descriptor back. */
void tensors_remove(struct tensor_slot *slot);
void tensors_free(struct tensors *tensors);

#endif
