#include "opened.h"

#include "../../../proto/wire/message.h"

#include <stdlib.h>

void opened_free(struct opened *opened) {
  free(opened->slots);
  *opened = (struct opened){.count = 0};
}

static uint32_t handle_of(const struct opened *opened, size_t index) {
  return (uint32_t)opened->slots[index].generation << 16 | (uint32_t)index;
}

_Static_assert(MESSAGE_HANDLE_LEAST == 1 << 16, "a generation is never 0");

static enum status grow(struct opened *opened, struct error *error) {
  size_t count = opened->count == 0 ? 16 : opened->count * 2;
  if (opened->count >= LIMIT_SESSION_WEIGHTS)
    return error_set(error, STATUS_TOO_LARGE, "a session may have %u weights open", LIMIT_SESSION_WEIGHTS);
  struct opened_slot *slots = realloc(opened->slots, count * sizeof *slots);
  if (slots == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for the session's handles");
  for (size_t i = opened->count; i < count; i++)
    slots[i] = (struct opened_slot){.generation = 1};
  opened->slots = slots;
  opened->count = count;
  return STATUS_OK;
}

enum status opened_add(struct opened *opened, struct catalog_weight *weight, uint32_t device, uint32_t *handle,
                       struct error *error) {
  if (opened->open == opened->count) {
    enum status status = grow(opened, error);
    if (status != STATUS_OK)
      return status;
  }
  size_t index = opened->lowest;
  while (opened->slots[index].weight != NULL)
    index++;
  opened->slots[index].weight = weight;
  opened->slots[index].device = device;
  opened->slots[index].closing = false;
  opened->open++;
  opened->lowest = index + 1;
  *handle = handle_of(opened, index);
  return STATUS_OK;
}

const struct opened_slot *opened_find(const struct opened *opened, uint32_t handle) {
  size_t index = handle & 0xffff;
  if (index >= opened->count || opened->slots[index].weight == NULL || handle_of(opened, index) != handle)
    return NULL;
  return &opened->slots[index];
}

void opened_close(struct opened *opened, uint32_t handle) {
  if (opened_find(opened, handle) != NULL)
    opened->slots[handle & 0xffff].closing = true;
}

void opened_remove(struct opened *opened, uint32_t handle) {
  if (opened_find(opened, handle) == NULL)
    return;
  struct opened_slot *slot = &opened->slots[handle & 0xffff];
  size_t index = handle & 0xffff;
  slot->weight = NULL;
  if (index < opened->lowest)
    opened->lowest = index;
  slot->generation = slot->generation == UINT16_MAX ? 1 : (uint16_t)(slot->generation + 1);
  opened->open--;
}

uint32_t opened_at(const struct opened *opened, size_t index) {
  return opened->slots[index].weight == NULL ? 0 : handle_of(opened, index);
}
