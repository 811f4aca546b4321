/* Memory of the caller's own that the daemon maps, too: products take x, y and W from there as from the arena. And
 * events of the caller's GPU work, behind which products begin. */
#include "../session/control.h"
#include "tensor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- opening */

/* Opens what `tensor` says, which is the session's from then on. */
static enum status open_it(struct gemmd_memory *tensor) {
  struct gemmd_session *session = tensor->session;
  enum status status = tensor_ask(tensor, control_call, &tensor->handle);
  if (status != STATUS_OK)
    return status;
  LIST_INSERT_HEAD(&session->tensors, tensor, link);
  return STATUS_OK;
}

static enum status check_address(struct gemmd_session *session, const void *address, uint64_t bytes) {
  if (address != NULL && (uintptr_t)address + bytes >= (uintptr_t)address)
    return STATUS_OK;
  return error_set(&session->error, STATUS_INVALID, "address must be that of %llu bytes of memory",
                   (unsigned long long)bytes);
}

/* A struct of `size` bytes that begins with a gemmd_memory, which `from` fills. Where that cannot be opened it is freed
 * with its descriptor, and *out is NULL. */
static int make(const struct gemmd_memory *from, size_t size, void **out) {
  struct gemmd_memory *tensor = calloc(1, size);
  enum status status = STATUS_OK;
  *out = NULL;
  if (tensor == NULL)
    status = error_set(&from->session->error, STATUS_NOMEM, "no memory for an entry of memory");
  else
    *tensor = *from;
  if (status == STATUS_OK)
    status = open_it(tensor);
  if (status == STATUS_OK) {
    *out = tensor;
    return GEMMD_OK;
  }
  if (from->fd >= 0)
    close(from->fd);
  free(tensor);
  return session_result(status);
}

int gemmd_memory_open(gemmd_session *session, unsigned device, int fd, void *address, uint64_t bytes,
                      gemmd_memory **out) {
  void *made = NULL;
  *out = NULL;
  enum status status = check_address(session, address, bytes);
  struct gemmd_memory from = {.session = session,
                              .fd = status == STATUS_OK ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1,
                              .device = device,
                              .address = (uintptr_t)address,
                              .bytes = bytes};
  if (status == STATUS_OK && from.fd < 0)
    status = error_set(&session->error, STATUS_BAD_DESCRIPTOR, "descriptor %d: %s", fd, strerror(errno));
  if (status != STATUS_OK)
    return session_result(status);
  int result = make(&from, sizeof(struct gemmd_memory), &made);
  *out = made;
  return result;
}

int gemmd_memory_open_ipc(gemmd_session *session, unsigned device, const void *handle, void *address, uint64_t bytes,
                          gemmd_memory **out) {
  void *made = NULL;
  *out = NULL;
  enum status status = check_address(session, address, bytes);
  if (status != STATUS_OK)
    return session_result(status);
  struct gemmd_memory from = {.session = session,
                              .fd = -1,
                              .kind = MESSAGE_IPC_MEMORY,
                              .device = device,
                              .address = (uintptr_t)address,
                              .bytes = bytes};
  memcpy(from.ipc, handle, sizeof from.ipc);
  int result = make(&from, sizeof(struct gemmd_memory), &made);
  *out = made;
  return result;
}

int gemmd_event_open(gemmd_session *session, unsigned device, const void *handle, gemmd_event **out) {
  void *made = NULL;
  struct gemmd_memory from = {.session = session, .fd = -1, .kind = MESSAGE_IPC_EVENT, .device = device};
  memcpy(from.ipc, handle, sizeof from.ipc);
  int result = make(&from, sizeof(struct gemmd_event), &made);
  *out = made;
  return result;
}

/* ---- closing */

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
  /* After another failure than these the daemon may have it as before. */
  if (status != STATUS_OK && status != STATUS_NOT_FOUND && !tensor->session->ended)
    return session_result(status);
  tensor_forget(tensor);
  return GEMMD_OK;
}

int gemmd_event_close(gemmd_event *event) {
  return gemmd_memory_close(event != NULL ? &event->shared : NULL);
}
