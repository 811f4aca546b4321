/* Memory of the caller's own that the daemon maps, too: products take x and y from there as from the arena. */
#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct gemmd_memory {
  struct gemmd_session *session;
  struct gemmd_memory *next, *previous;
  int fd; /* owned: the next daemon maps it, too */
  uint32_t device, handle, next_handle;
  uintptr_t address; /* of the memory as the caller's pointers have it */
  uint64_t bytes;
};

static enum status ask_open(struct gemmd_memory *tensor, uint32_t *handle) {
  struct message_tensor_open request = {.device = tensor->device, .bytes = tensor->bytes};
  struct message_tensor_handle reply = {.handle = 0};
  struct call call = {.command = COMMAND_tensor_open, .request = &request, .reply = &reply, .fd = tensor->fd};
  enum status status = control_call(tensor->session, &call);
  *handle = reply.handle;
  return status;
}

int gemmd_memory_open(gemmd_session *session, unsigned device, int fd, void *address, uint64_t bytes,
                      gemmd_memory **out) {
  *out = NULL;
  if (address == NULL || (uintptr_t)address + bytes < (uintptr_t)address)
    return session_result(error_set(&session->error, STATUS_INVALID, "address must be that of %llu bytes of memory",
                                    (unsigned long long)bytes));
  struct gemmd_memory *tensor = calloc(1, sizeof *tensor);
  if (tensor == NULL)
    return session_result(error_set(&session->error, STATUS_NOMEM, "no memory for a tensor"));
  *tensor = (struct gemmd_memory){.session = session,
                                  .fd = fcntl(fd, F_DUPFD_CLOEXEC, 0),
                                  .device = device,
                                  .address = (uintptr_t)address,
                                  .bytes = bytes};
  enum status status =
      tensor->fd >= 0 ? ask_open(tensor, &tensor->handle)
                      : error_set(&session->error, STATUS_BAD_DESCRIPTOR, "descriptor %d: %s", fd, strerror(errno));
  if (status != STATUS_OK) {
    if (tensor->fd >= 0)
      close(tensor->fd);
    free(tensor);
    return session_result(status);
  }
  tensor->next = session->tensors;
  if (tensor->next != NULL)
    tensor->next->previous = tensor;
  session->tensors = tensor;
  *out = tensor;
  return GEMMD_OK;
}

void tensor_forget(struct gemmd_memory *tensor) {
  if (tensor->previous != NULL)
    tensor->previous->next = tensor->next;
  else
    tensor->session->tensors = tensor->next;
  if (tensor->next != NULL)
    tensor->next->previous = tensor->previous;
  close(tensor->fd);
  free(tensor);
}

int gemmd_memory_close(gemmd_memory *tensor) {
  if (tensor == NULL)
    return GEMMD_OK;
  struct message_empty reply;
  struct message_tensor_handle request = {.handle = tensor->handle};
  struct call call = {.command = COMMAND_tensor_close, .request = &request, .reply = &reply, .fd = -1, .once = true};
  enum status status = control_call(tensor->session, &call);
  while (status == STATUS_DISCONNECTED && !tensor->session->ended) { /* the next one has another handle for it */
    request.handle = tensor->handle;
    status = control_call(tensor->session, &call);
  }
  if (status != STATUS_BUSY)
    tensor_forget(tensor);
  return session_result(status == STATUS_BUSY ? status : STATUS_OK);
}

const struct gemmd_memory *tensor_find(const struct gemmd_session *session, const void *pointer) {
  uintptr_t address = (uintptr_t)pointer;
  for (const struct gemmd_memory *tensor = session->tensors; tensor != NULL; tensor = tensor->next)
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

/* ---- the next daemon */

enum status tensors_open_again(struct gemmd_session *session) {
  enum status status = STATUS_OK;
  for (struct gemmd_memory *tensor = session->tensors; status == STATUS_OK && tensor != NULL; tensor = tensor->next)
    status = ask_open(tensor, &tensor->next_handle);
  return status;
}

static uint32_t next_handle(const struct gemmd_session *session, uint32_t handle) {
  for (const struct gemmd_memory *tensor = session->tensors; handle != 0 && tensor != NULL; tensor = tensor->next)
    if (tensor->handle == handle)
      return tensor->next_handle;
  return handle;
}

void tensors_rename_handles(struct gemmd_session *session) {
  for (uint32_t slot = 0; slot < session->pending.slots; slot++) {
    struct request *request = &session->pending.requests[slot];
    if (request->ticket == 0)
      continue;
    request->submission.x_tensor = next_handle(session, request->submission.x_tensor);
    request->submission.y_tensor = next_handle(session, request->submission.y_tensor);
  }
  for (struct gemmd_memory *tensor = session->tensors; tensor != NULL; tensor = tensor->next)
    tensor->handle = tensor->next_handle;
}
