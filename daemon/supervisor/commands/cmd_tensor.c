/* tensor_open, ipc_open, tensor_close: memory of a client's own by its descriptor, or memory and events by a handle of
 * CUDA's IPC. */
#include "../context.h"
#include "../net/descriptors.h"
#include "../net/foreign.h"
#include "../session/serving.h"
#include "../workers/fleet.h"
#include "cmd.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct asking {
  struct session *session; /* waits */
  uint32_t id;
  size_t slot;
};

static void end(struct asking *asking, enum status status, const struct error *error) {
  struct session *session = asking->session;
  if (status != STATUS_OK)
    session_fail(session, asking->id, error);
  free(asking);
  session_continue(session);
}

/* Memory counts as that of an arena does. */
static void drop(struct session *session, struct tensor_slot *slot) {
  session->account->arena_bytes -= slot->bytes;
  tensors_remove(slot, &session->account->closing);
}

/* ---- tensor_open */

/* A session that has ended meanwhile has given its slots back. */
static void on_mapped(void *user, struct worker_answer *answer) {
  struct asking *asking = user;
  struct tensors *tensors = &asking->session->tensors;
  struct tensor_slot *slot = &tensors->slots[asking->slot];
  if (slot->taken && answer->status == STATUS_OK) {
    slot->open = true;
    struct message_tensor_handle reply = {.handle = tensors_handle(tensors, asking->slot)};
    session_reply(asking->session, asking->id, &message_tensor_handle_type, &reply, NULL, 0);
  } else if (slot->taken) {
    drop(asking->session, slot);
  }
  end(asking, answer->status, &answer->error);
}

static enum status check_bytes(uint64_t bytes, struct error *error) {
  if (bytes >= 1 && bytes <= LIMIT_TENSOR_BYTES)
    return STATUS_OK;
  return error_field(error, STATUS_INVALID, FIELD_BYTES, bytes > INT64_MAX ? INT64_MAX : (int64_t)bytes, 1,
                     LIMIT_TENSOR_BYTES);
}

/* What `from` says is taken into a slot, and its descriptor with it. */
static enum status take(struct session *session, const struct tensor_slot *from, struct asking *asking,
                        struct error *error) {
  enum status status = user_add_arena(&session->supervisor->users, session->account, from->bytes, 0, error);
  if (status != STATUS_OK)
    return status;
  status = tensors_add(&session->tensors, from, &asking->slot, error);
  if (status != STATUS_OK)
    session->account->arena_bytes -= from->bytes;
  return status;
}

static enum status check_device(const struct session *session, uint32_t device, struct error *error) {
  if (device < session->arena.devices)
    return STATUS_OK;
  return error_field(error, STATUS_INVALID, FIELD_DEVICE, device, 0, (int64_t)session->arena.devices - 1);
}

/* Asks the worker where `status`, of what went before, is OK. */
static enum status open_taken(struct session *session, struct asking *asking, enum status status, struct error *error) {
  if (status == STATUS_OK) {
    struct tensor_slot *slot = &session->tensors.slots[asking->slot];
    status = serving_give_tensor(session, asking->slot, &session->supervisor->fleet->workers[slot->device], on_mapped,
                                 asking, error);
    if (status != STATUS_OK)
      drop(session, slot);
  }
  if (status == STATUS_OK)
    session_wait(session);
  else
    free(asking);
  return status;
}

static struct asking *ask(struct session *session, uint32_t id, struct error *error) {
  struct asking *asking = malloc(sizeof *asking);
  if (asking != NULL)
    *asking = (struct asking){.session = session, .id = id};
  else
    (void)error_set(error, STATUS_NOMEM, "no memory for the request");
  return asking;
}

enum status cmd_tensor_open(struct session *session, struct call *call) {
  const struct message_tensor_open *request = call->body;
  const struct tensor_slot from = {.device = request->device, .fd = call->packet->fds[0], .bytes = request->bytes};
  struct asking *asking = ask(session, call->id, &call->error);
  enum status status = asking != NULL ? check_device(session, request->device, &call->error) : call->error.status;
  if (status == STATUS_OK)
    status = check_bytes(request->bytes, &call->error);
  if (status == STATUS_OK && !descriptors_left(session->user.admin))
    status = error_set(&call->error, STATUS_BUSY, "gemmd has no descriptors for more memory at the moment");
  if (status == STATUS_OK)
    status = foreign_check_memory(from.fd, &call->error);
  if (status == STATUS_OK)
    status = take(session, &from, asking, &call->error);
  if (status == STATUS_OK)
    (void)packet_take_fd(call->packet, 0);
  return open_taken(session, asking, status, &call->error);
}

/* ---- ipc_open */

/* Freed under a worker that reads it, such memory may take the device with it; and CUDA keeps events in files of their
 * owner's, who could take them from under whoever looks at them. */
static enum status check_kind(const struct session *session, const struct message_ipc_open *request,
                              struct error *error) {
  if (request->kind == MESSAGE_IPC_EVENT && session->user.uid != geteuid())
    return error_set(error, STATUS_PERMISSION,
                     "CUDA's events pass between processes of one user: this is user %u, gemmd is %u",
                     session->user.uid, (unsigned)geteuid());
  if (request->kind == MESSAGE_IPC_EVENT)
    return STATUS_OK;
  if (request->kind != MESSAGE_IPC_MEMORY)
    return error_set(error, STATUS_INVALID, "kind must be %d or %d, got %u", MESSAGE_IPC_MEMORY, MESSAGE_IPC_EVENT,
                     request->kind);
  if (!role_may_ipc(&session->supervisor->rules, session->user.uid))
    return error_set(
        error, STATUS_PERMISSION,
        "memory is taken by legacy IPC handles from users whom the option ipc_users names: user %u is none",
        session->user.uid);
  return check_bytes(request->bytes, error);
}

enum status cmd_ipc_open(struct session *session, struct call *call) {
  const struct message_ipc_open *request = call->body;
  struct tensor_slot from = {.device = request->device, .kind = request->kind, .fd = -1};
  struct asking *asking = ask(session, call->id, &call->error);
  enum status status = asking != NULL ? check_device(session, request->device, &call->error) : call->error.status;
  if (status == STATUS_OK)
    status = check_kind(session, request, &call->error);
  from.bytes = request->kind == MESSAGE_IPC_MEMORY ? request->bytes : 0;
  memcpy(from.ipc, request->ipc, sizeof from.ipc);
  if (status == STATUS_OK)
    status = take(session, &from, asking, &call->error);
  return open_taken(session, asking, status, &call->error);
}

/* ---- tensor_close */

/* A worker that died has let go, and its successor is told of what is open when it starts. */
static void on_unmapped(void *user, struct worker_answer *answer) {
  struct asking *asking = user;
  struct tensor_slot *slot = &asking->session->tensors.slots[asking->slot];
  struct message_empty reply = {.reserved = 0};
  enum status status = answer->status == STATUS_DEVICE_LOST ? STATUS_OK : answer->status;
  if (status == STATUS_OK && slot->taken)
    drop(asking->session, slot);
  if (status == STATUS_OK)
    session_reply(asking->session, asking->id, &message_empty_type, &reply, NULL, 0);
  end(asking, status, &answer->error);
}

enum status cmd_tensor_close(struct session *session, struct call *call) {
  const struct message_tensor_handle *request = call->body;
  struct tensor_slot *slot = tensors_find(&session->tensors, request->handle);
  struct asking *asking = malloc(sizeof *asking);
  enum status status = STATUS_OK;
  if (asking == NULL)
    status = error_set(&call->error, STATUS_NOMEM, "no memory for the request");
  else if (slot == NULL)
    status = error_set(&call->error, STATUS_NOT_FOUND, "handle %u stands for nothing", request->handle);
  if (status == STATUS_OK) {
    struct message_session_tensor ask = {.session = session->id, .handle = request->handle};
    *asking = (struct asking){.session = session, .id = call->id, .slot = (size_t)(slot - session->tensors.slots)};
    status = worker_ask(&session->supervisor->fleet->workers[slot->device], COMMAND_session_tensor_remove, &ask, NULL,
                        0, on_unmapped, asking, &call->error);
  }
  if (status == STATUS_OK) {
    session_wait(session);
    return STATUS_OK;
  }
  free(asking);
  if (status == STATUS_DEVICE_LOST) { /* there is no worker that has it mapped */
    drop(session, slot);
    return call_done(session, call);
  }
  return status;
}
