#include "tensor.h"
#include "arena.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum status tensor_ask(struct gemmd_memory *tensor, call_function *how, uint32_t *handle) {
  struct message_tensor_open by_descriptor = {.device = tensor->device, .bytes = tensor->bytes};
  struct message_ipc_open by_ipc = {.device = tensor->device, .kind = tensor->kind, .bytes = tensor->bytes};
  struct message_tensor_handle reply = {.handle = 0};
  struct call call = {.command = COMMAND_tensor_open, .request = &by_descriptor, .reply = &reply, .fd = tensor->fd};
  if (tensor->kind != 0) {
    memcpy(by_ipc.ipc, tensor->ipc, sizeof by_ipc.ipc);
    call.command = COMMAND_ipc_open;
    call.request = &by_ipc;
  }
  enum status status = how(tensor->session, &call);
  *handle = reply.handle;
  return status;
}

void tensor_forget(struct gemmd_memory *tensor) {
  LIST_REMOVE(tensor, link);
  if (tensor->fd >= 0)
    close(tensor->fd);
  free(tensor);
}

/* ---- in products */

const struct gemmd_memory *tensor_find(const struct gemmd_session *session, const void *pointer) {
  uintptr_t address = (uintptr_t)pointer;
  const struct gemmd_memory *tensor;
  LIST_FOREACH (tensor, &session->tensors, link)
    if (address >= tensor->address && address - tensor->address < tensor->bytes)
      return tensor;
  return NULL;
}

void tensor_place(const struct gemmd_memory *tensor, const void *pointer, struct tensor_place *out) {
  *out = (struct tensor_place){.handle = tensor->handle,
                               .device = tensor->device,
                               .offset = (uint64_t)((uintptr_t)pointer - tensor->address),
                               .bytes = tensor->bytes};
}

uint32_t event_handle(const struct gemmd_event *event, uint32_t *device) {
  *device = event->shared.device;
  return event->shared.handle;
}

enum status tensor_offset(struct gemmd_session *session, const void *pointer, const char *what, uint64_t *offset,
                          uint32_t *handle, uint64_t *bytes) {
  const struct gemmd_memory *tensor = tensor_find(session, pointer);
  struct tensor_place place;
  if (tensor == NULL)
    return arena_offset(session, pointer, what, offset);
  tensor_place(tensor, pointer, &place);
  *offset = place.offset;
  *handle = place.handle;
  *bytes = place.bytes;
  return STATUS_OK;
}

/* ---- the next daemon */

enum status tensors_open_again(struct gemmd_session *session) {
  enum status status = STATUS_OK;
  for (struct gemmd_memory *tensor = LIST_FIRST(&session->tensors); status == STATUS_OK && tensor != NULL;
       tensor = LIST_NEXT(tensor, link))
    status = tensor_ask(tensor, exchange_call, &tensor->next_handle);
  return status;
}

static uint32_t next_handle(const struct gemmd_session *session, uint32_t handle) {
  for (const struct gemmd_memory *tensor = LIST_FIRST(&session->tensors); handle != 0 && tensor != NULL;
       tensor = LIST_NEXT(tensor, link))
    if (tensor->handle == handle)
      return tensor->next_handle;
  return handle;
}

void tensors_rename_handles(struct gemmd_session *session) {
  for (uint32_t slot = 0; slot < session->pending.slots; slot++) {
    struct request *request = &session->pending.requests[slot];
    if (request->ticket == 0)
      continue;
    struct ring_submission *submission = &request->submission;
    submission->x_tensor = next_handle(session, submission->x_tensor);
    submission->y_tensor = next_handle(session, submission->y_tensor);
    submission->event = next_handle(session, submission->event);
    if (submission->opcode == RING_OP_TENSORS)
      request->parts[0].handle = next_handle(session, request->parts[0].handle);
  }
  struct gemmd_memory *tensor;
  LIST_FOREACH (tensor, &session->tensors, link)
    tensor->handle = tensor->next_handle;
}
