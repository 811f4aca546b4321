#include "tensors.h"

#include "../net/closing.h"

enum status tensors_add(struct tensors *tensors, const struct tensor_slot *from, size_t *slot, struct error *error) {
  for (*slot = 0; *slot < LIMIT_SESSION_TENSORS && tensors->slots[*slot].taken; ++*slot)
    continue;
  if (*slot == LIMIT_SESSION_TENSORS)
    return error_set(error, STATUS_TOO_LARGE, "a session has at most %u pieces of memory and events of its own",
                     LIMIT_SESSION_TENSORS);
  struct tensor_slot *taken = &tensors->slots[*slot];
  uint16_t generation = (uint16_t)(taken->generation + 1);
  *taken = *from;
  taken->taken = true;
  taken->open = false;
  taken->generation = generation != 0 ? generation : 1;
  return STATUS_OK;
}

uint32_t tensors_handle(const struct tensors *tensors, size_t slot) {
  return (uint32_t)tensors->slots[slot].generation << 16 | (uint32_t)slot;
}

struct tensor_slot *tensors_find(struct tensors *tensors, uint32_t handle) {
  size_t slot = handle & 0xffff;
  if (slot >= LIMIT_SESSION_TENSORS || !tensors->slots[slot].open || tensors_handle(tensors, slot) != handle)
    return NULL;
  return &tensors->slots[slot];
}

uint64_t tensors_bytes(const struct tensors *tensors) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < LIMIT_SESSION_TENSORS; i++)
    bytes += tensors->slots[i].taken ? tensors->slots[i].bytes : 0;
  return bytes;
}

void tensors_remove(struct tensor_slot *slot, void *payer) {
  if (slot->fd >= 0)
    closing_start(slot->fd, payer);
  slot->taken = slot->open = false;
}

void tensors_free(struct tensors *tensors, void *payer) {
  for (size_t i = 0; i < LIMIT_SESSION_TENSORS; i++)
    if (tensors->slots[i].taken)
      tensors_remove(&tensors->slots[i], payer);
}
