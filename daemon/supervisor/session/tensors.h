/* Memory and events of a client's own that its session uses: descriptors and IPC handles, kept so that the successor of
 * a worker can open them, too. */
#pragma once

#include "../../../proto/wire/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tensor_slot {
  bool taken, open; /* open: the worker has opened it, and a successor is to do so */
  uint16_t generation;
  uint32_t device;
  uint32_t kind;   /* enum message_ipc; 0: memory behind fd */
  int fd;          /* owned; -1: none */
  uint8_t ipc[64]; /* handle */
  uint64_t bytes;  /* of memory */
};

/* Zeros are an empty table. */
struct tensors {
  struct tensor_slot slots[LIMIT_SESSION_TENSORS];
};

/* Takes a slot for what `from` says from its device on, with its descriptor. TOO_LARGE where LIMIT_SESSION_TENSORS are
 * taken; that stays the caller's then. */
MUST_CHECK enum status tensors_add(struct tensors *tensors, const struct tensor_slot *from, size_t *slot,
                                   struct error *error);
/* generation << 16 | slot; never 0. */
uint32_t tensors_handle(const struct tensors *tensors, size_t slot);
/* NULL where the handle stands for no open slot. */
struct tensor_slot *tensors_find(struct tensors *tensors, uint32_t handle);
/* Bytes of all. */
uint64_t tensors_bytes(const struct tensors *tensors);
/* Gives the descriptor back, if there is one, as closing_start does. */
void tensors_remove(struct tensor_slot *slot, void *payer);
void tensors_free(struct tensors *tensors, void *payer);
