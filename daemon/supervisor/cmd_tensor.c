/* tensor_open, tensor_close: memory of a client's own for x and y, by its descriptor. */
#include "cmd.h"
#include "context.h"
#include "descriptors.h"
#include "foreign.h"

#include <stdlib.h>

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

/* What is mapped counts as memory of an arena does. */
static void drop(struct session *session, struct tensor_slot *slot) {
  session->account->arena_bytes -= slot->bytes;
  tensors_remove(slot);
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

static enum status check_open(const struct session *session, const struct message_tensor_open *request, int fd,
                              struct error *error) {
  if (request->device >= session->arena.devices)
    return error_field(error, STATUS_INVALID, FIELD_DEVICE, request->device, 0, (int64_t)session->arena.devices - 1);
  if (request->bytes < 1 || request->bytes > LIMIT_TENSOR_BYTES)
    return error_field(error, STATUS_INVALID, FIELD_BYTES,
                       request->bytes > INT64_MAX ? INT64_MAX : (int64_t)request->bytes, 1, LIMIT_TENSOR_BYTES);
  if (!descriptors_left(session->user.admin))
    return error_set(error, STATUS_BUSY, "gemmd has no descriptors for more memory at the moment");
  return foreign_check_memory(fd, error);
}

static enum status ask_open(struct session *session, const struct message_tensor_open *request, struct asking *asking,
                            struct error *error) {
  struct worker *worker = &session->supervisor->fleet.workers[request->device];
  struct message_session_tensor body = {
      .session = session->id, .handle = tensors_handle(&session->tensors, asking->slot), .bytes = request->bytes};
  return worker_ask(worker, COMMAND_session_tensor_add, &body, &session->tensors.slots[asking->slot].fd, 1, on_mapped,
                    asking, error);
}

static enum status take_slot(struct session *session, uint32_t id, const struct message_tensor_open *request,
                             struct packet *packet, struct asking *asking, struct error *error) {
  *asking = (struct asking){.session = session, .id = id};
  enum status status = user_add_arena(&session->supervisor->users, session->account, request->bytes, 0, error);
  if (status != STATUS_OK)
    return status;
  status = tensors_add(&session->tensors, packet->fds[0], request->device, request->bytes, &asking->slot, error);
  if (status == STATUS_OK)
    (void)packet_take_fd(packet, 0);
  else
    session->account->arena_bytes -= request->bytes;
  return status;
}

void cmd_tensor_open(struct session *session, uint32_t id, const void *body, struct packet *packet) {
  const struct message_tensor_open *request = body;
  struct error error;
  struct asking *asking = malloc(sizeof *asking);
  enum status status = asking != NULL ? check_open(session, request, packet->fds[0], &error)
                                      : error_set(&error, STATUS_NOMEM, "no memory for the request");
  if (status == STATUS_OK)
    status = take_slot(session, id, request, packet, asking, &error);
  if (status == STATUS_OK) {
    status = ask_open(session, request, asking, &error);
    if (status != STATUS_OK)
      drop(session, &session->tensors.slots[asking->slot]);
  }
  if (status == STATUS_OK) {
    session_wait(session);
    return;
  }
  free(asking);
  session_fail(session, id, &error);
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

void cmd_tensor_close(struct session *session, uint32_t id, const void *body, struct packet *packet) {
  const struct message_tensor_handle *request = body;
  struct tensor_slot *slot = tensors_find(&session->tensors, request->handle);
  struct error error;
  (void)packet;
  struct asking *asking = malloc(sizeof *asking);
  enum status status = STATUS_OK;
  if (asking == NULL)
    status = error_set(&error, STATUS_NOMEM, "no memory for the request");
  else if (slot == NULL)
    status = error_set(&error, STATUS_NOT_FOUND, "handle %u stands for no memory", request->handle);
  if (status == STATUS_OK) {
    struct message_session_tensor ask = {.session = session->id, .handle = request->handle};
    *asking = (struct asking){.session = session, .id = id, .slot = (size_t)(slot - session->tensors.slots)};
    status = worker_ask(&session->supervisor->fleet.workers[slot->device], COMMAND_session_tensor_remove, &ask, NULL, 0,
                        on_unmapped, asking, &error);
  }
  if (status == STATUS_OK) {
    session_wait(session);
    return;
  }
  free(asking);
  if (status == STATUS_DEVICE_LOST) { /* there is no worker that has it mapped */
    struct message_empty reply = {.reserved = 0};
    drop(session, slot);
    session_reply(session, id, &message_empty_type, &reply, NULL, 0);
    return;
  }
  session_fail(session, id, &error);
}
