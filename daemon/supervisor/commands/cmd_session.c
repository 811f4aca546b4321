/* arena_create, arena_adopt, queue_open, drain, upgrade. */
#include "../context.h"
#include "../net/descriptors.h"
#include "../session/serving.h"
#include "../workers/fleet.h"
#include "cmd.h"
#include "successor.h"

/* ---- arena_create */

static void on_arena_undone(struct session *session, const struct error *error) {
  (void)error; /* the client is told why it had to be undone */
  session_fail(session, session->arena_id, &session->adding.error);
  session_continue(session);
}

static void on_arena_added(struct session *session, const struct error *error) {
  if (error != NULL) {
    serving_remove(session, on_arena_undone);
    return;
  }
  if (!session->ending) {
    session->state = STATE_ARENA;
    struct message_arena_reply reply = {
        .bytes = session->arena.bytes, .entries = session->arena.entries, .devices = session->arena.devices};
    int fds[] = {session->arena.memfd, session->arena.wakeup};
    session_reply(session, session->arena_id, &message_arena_reply_type, &reply, fds, 2);
  }
  session_continue(session);
}

static enum status charge_arena(struct session *session, struct error *error) {
  const struct arena *arena = &session->arena;
  return user_add_arena(&session->supervisor->users, session->account, arena->bytes,
                        (uint64_t)arena->entries * arena->devices, error);
}

static enum status may_have_arena(const struct session *session, struct error *error) {
  if (session->state == STATE_ARENA)
    return error_set(error, STATUS_WRONG_STATE, "the session has its arena already");
  if (!descriptors_left(session->user.admin))
    return error_set(error, STATUS_BUSY, "gemmd has no descriptors for another arena at the moment");
  return STATUS_OK;
}

/* The arena is there, or `status` and call->error say why not. */
static enum status serve_arena(struct session *session, struct call *call, enum status status) {
  if (status == STATUS_OK && (status = charge_arena(session, &call->error)) != STATUS_OK)
    arena_close(&session->arena);
  if (status != STATUS_OK)
    return status;
  session->arena_id = call->id;
  session_wait(session);
  serving_add(session, on_arena_added);
  return STATUS_OK;
}

enum status cmd_arena_create(struct session *session, struct call *call) {
  const struct message_arena_request *request = call->body;
  const struct supervisor *supervisor = session->supervisor;
  enum status status = may_have_arena(session, &call->error);
  if (status == STATUS_OK)
    status = arena_open(&session->arena, supervisor->fleet->count, request->entries, request->bytes,
                        (uint64_t)supervisor->config->arena_bytes_max, &call->error);
  return serve_arena(session, call, status);
}

enum status cmd_arena_adopt(struct session *session, struct call *call) {
  const struct message_arena_request *request = call->body;
  const struct supervisor *supervisor = session->supervisor;
  enum status status = may_have_arena(session, &call->error);
  if (status == STATUS_OK)
    status = arena_adopt(&session->arena, call->packet->fds[0], supervisor->fleet->count, request->entries,
                         request->bytes, (uint64_t)supervisor->config->arena_bytes_max, &call->error);
  return serve_arena(session, call, status);
}

enum status cmd_queue_open(struct session *session, struct call *call) {
  const struct message_queue_open *request = call->body;
  if (request->device >= session->arena.devices)
    return error_field(&call->error, STATUS_INVALID, FIELD_DEVICE, request->device, 0,
                       (int64_t)session->arena.devices - 1);
  session_reply(session, call->id, &message_queue_open_type, request, &session->arena.doorbells[request->device], 1);
  return STATUS_OK;
}

/* ---- drain */

enum status cmd_drain(struct session *session, struct call *call) {
  (void)call_done(session, call);
  if (!session->ending)
    sessions_drain(session);
  return STATUS_OK;
}

/* ---- upgrade */

enum status cmd_upgrade(struct session *session, struct call *call) {
  return successor_ask(session, call->id, &call->error);
}
