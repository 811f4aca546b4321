/* Memory of the caller's own that the daemon maps, too: products take x, y and W from there as from the arena. And
 * events of the caller's GPU work, behind which products begin. */
#include "../session/session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Memory behind a descriptor, or what an IPC handle stands for. */
struct gemmd_memory {
  struct gemmd_session *session;
  struct gemmd_memory *next, *previous;
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

/* ---- opening */

static enum status ask_open(struct gemmd_memory *tensor, uint32_t *handle) {
  struct message_tensor_open by_descriptor = {.device = tensor->device, .bytes = tensor->bytes};
  struct message_ipc_open by_ipc = {.device = tensor->device, .kind = tensor->kind, .bytes = tensor->bytes};
  struct message_tensor_handle reply = {.handle = 0};
  struct call call = {.command = COMMAND_tensor_open, .request = &by_descriptor, .reply = &reply, .fd = tensor->fd};
  if (tensor->kind != 0) {
    memcpy(by_ipc.ipc, tensor->ipc, sizeof by_ipc.ipc);
    call.command = COMMAND_ipc_open;
    call.request = &by_ipc;
  }
  enum status status = control_call(tensor->session, &call);
  *handle = reply.handle;
  return status;
}

/* Opens what `tensor` says, which is the session's from then on. */
static enum status open_it(struct gemmd_memory *tensor) {
  struct gemmd_session *session = tensor->session;
  enum status status = ask_open(tensor, &tensor->handle);
  if (status != STATUS_OK)
    return status;
  tensor->next = session->tensors;
  if (tensor->next != NULL)
    tensor->next->previous = tensor;
  session->tensors = tensor;
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

void tensor_forget(struct gemmd_memory *tensor) {
  if (tensor->previous != NULL)
    tensor->previous->next = tensor->next;
  else
    tensor->session->tensors = tensor->next;
  if (tensor->next != NULL)
    tensor->next->previous = tensor->previous;
  if (tensor->fd >= 0)
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
  /* After another failure than these the daemon may have it as before. */
  if (status != STATUS_OK && status != STATUS_NOT_FOUND && !tensor->session->ended)
    return session_result(status);
  tensor_forget(tensor);
  return GEMMD_OK;
}

int gemmd_event_close(gemmd_event *event) {
  return gemmd_memory_close(event != NULL ? &event->shared : NULL);
}

/* ---- in products */

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

uint32_t event_handle(const struct gemmd_event *event, uint32_t *device) {
  *device = event->shared.device;
  return event->shared.handle;
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
    struct ring_submission *submission = &request->submission;
    submission->x_tensor = next_handle(session, submission->x_tensor);
    submission->y_tensor = next_handle(session, submission->y_tensor);
    submission->event = next_handle(session, submission->event);
    if (submission->opcode == RING_OP_TENSORS)
      request->parts[0].handle = next_handle(session, request->parts[0].handle);
  }
  for (struct gemmd_memory *tensor = session->tensors; tensor != NULL; tensor = tensor->next)
    tensor->handle = tensor->next_handle;
}
