/* Memory of the caller's own that the daemon maps, and events: those of a session. Private. */
#pragma once

#include "../session/exchange.h"

/* Memory behind a descriptor, or what an IPC handle stands for. */
struct gemmd_memory {
  struct gemmd_session *session;
  LIST_ENTRY(gemmd_memory) link;
  int fd;          /* owned: the next daemon maps it, too; -1: none */
  uint32_t kind;   /* enum message_ipc; 0: behind fd */
  uint8_t ipc[64]; /* where there is no fd */
  uint32_t device, handle, next_handle;
  uintptr_t address; /* of the memory as the caller's pointers have it */
  uint64_t bytes;    /* 0: an event */
};

struct gemmd_event {
  struct gemmd_memory shared;
};

struct tensor_place {
  uint32_t handle, device;
  uint64_t offset, bytes; /* of the pointer; of all */
};

/* Asks the daemon to open what `tensor` says, by exchange_call or control_call. */
MUST_CHECK enum status tensor_ask(struct gemmd_memory *tensor, call_function *how, uint32_t *handle);
/* NULL where the pointer is into none. */
const struct gemmd_memory *tensor_find(const struct gemmd_session *session, const void *pointer);
void tensor_place(const struct gemmd_memory *tensor, const void *pointer, struct tensor_place *out);
/* What submissions call the event, on this device. */
uint32_t event_handle(const struct gemmd_event *event, uint32_t *device);
/* Frees it without telling the daemon. */
void tensor_forget(struct gemmd_memory *tensor);
/* The next daemon maps all; then their handles become those, also in what is in flight. */
MUST_CHECK enum status tensors_open_again(struct gemmd_session *session);
void tensors_rename_handles(struct gemmd_session *session);
/* In the arena, or in memory of the caller's own, whose handle and size are filled in. INVALID naming `what`. */
MUST_CHECK enum status tensor_offset(struct gemmd_session *session, const void *pointer, const char *what,
                                     uint64_t *offset, uint32_t *handle, uint64_t *bytes);
