/* hello, ping, arena_create, queue_open, drain. */
#include "../context.h"
#include "../net/descriptors.h"
#include "../net/successor.h"
#include "../session/serving.h"
#include "cmd.h"

#include "../../log.h"

#include <stdio.h>
#include <string.h>

void cmd_hello_answer(struct session *session) {
  struct supervisor *supervisor = session->supervisor;
  session->hello_waits = false;
  struct message_hello_reply reply = {.version = session->version,
                                      .session = session->id,
                                      .devices = supervisor->fleet.count,
                                      .entries_max = LIMIT_RING_ENTRIES,
                                      .arena_bytes_max = (uint64_t)supervisor->config->arena_bytes_max,
                                      .message_bytes_max = LIMIT_MESSAGE_BYTES};
  snprintf(reply.server, sizeof reply.server, "gemmd %s", GEMMD_RELEASE);
  snprintf(reply.backend, sizeof reply.backend, "%.15s", supervisor->fleet.config.backend);
  session->state = STATE_OPEN;
  session_reply(session, session->hello_id, &message_hello_reply_type, &reply, NULL, 0);
  session_continue(session);
}

void cmd_hello(struct session *session, uint32_t id, const void *body, struct packet *packet) {
  const struct message_hello_request *request = body;
  (void)packet;
  uint32_t least = request->version_min > PROTOCOL_VERSION_MIN ? request->version_min : PROTOCOL_VERSION_MIN;
  uint32_t most = request->version_max < PROTOCOL_VERSION_MAX ? request->version_max : PROTOCOL_VERSION_MAX;
  if (least > most) {
    struct error error;
    (void)error_set(&error, STATUS_VERSION, "versions %u..%u are spoken here, %u..%u were offered",
                    PROTOCOL_VERSION_MIN, PROTOCOL_VERSION_MAX, request->version_min, request->version_max);
    session_fail(session, id, &error);
    return;
  }
  uv_timer_stop(&session->timer);
  session->version = most;
  session->hello_id = id;
  snprintf(session->client, sizeof session->client, "%s", request->client);
  log_debug("session %u: %s, process %u of user %u", session->id, session->client, session->pid, session->user.uid);
  session->hello_waits = true;
  session_wait(session);
  if (session->supervisor->fleet.ready)
    cmd_hello_answer(session);
}

void cmd_ping(struct session *session, uint32_t id, const void *body, struct packet *packet) {
  (void)packet;
  session_reply(session, id, &message_ping_type, body, NULL, 0);
}

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

/* The arena is there, or `status` and *error say why not. */
static void serve_arena(struct session *session, uint32_t id, enum status status, struct error *error) {
  if (status == STATUS_OK && (status = charge_arena(session, error)) != STATUS_OK)
    arena_close(&session->arena);
  if (status != STATUS_OK) {
    session_fail(session, id, error);
    return;
  }
  session->arena_id = id;
  session_wait(session);
  serving_add(session, on_arena_added);
}

void cmd_arena_create(struct session *session, uint32_t id, const void *body, struct packet *packet) {
  const struct message_arena_request *request = body;
  const struct supervisor *supervisor = session->supervisor;
  struct error error;
  (void)packet;
  enum status status = may_have_arena(session, &error);
  if (status == STATUS_OK)
    status = arena_open(&session->arena, supervisor->fleet.count, request->entries, request->bytes,
                        (uint64_t)supervisor->config->arena_bytes_max, &error);
  serve_arena(session, id, status, &error);
}

void cmd_arena_adopt(struct session *session, uint32_t id, const void *body, struct packet *packet) {
  const struct message_arena_request *request = body;
  const struct supervisor *supervisor = session->supervisor;
  struct error error;
  enum status status = may_have_arena(session, &error);
  if (status == STATUS_OK)
    status = arena_adopt(&session->arena, packet->fds[0], supervisor->fleet.count, request->entries, request->bytes,
                         (uint64_t)supervisor->config->arena_bytes_max, &error);
  serve_arena(session, id, status, &error);
}

void cmd_queue_open(struct session *session, uint32_t id, const void *body, struct packet *packet) {
  const struct message_queue_open *request = body;
  (void)packet;
  if (request->device >= session->arena.devices) {
    struct error error;
    (void)error_field(&error, STATUS_INVALID, FIELD_DEVICE, request->device, 0, (int64_t)session->arena.devices - 1);
    session_fail(session, id, &error);
    return;
  }
  session_reply(session, id, &message_queue_open_type, request, &session->arena.doorbells[request->device], 1);
}

/* ---- drain */

void cmd_drain(struct session *session, uint32_t id, const void *body, struct packet *packet) {
  struct message_empty reply = {.reserved = 0};
  (void)body;
  (void)packet;
  session_reply(session, id, &message_empty_type, &reply, NULL, 0);
  if (!session->ending)
    sessions_drain(session);
}

/* ---- upgrade */

void cmd_upgrade(struct session *session, uint32_t id, const void *body, struct packet *packet) {
  struct error error;
  (void)body;
  (void)packet;
  if (successor_ask(session, id, &error) != STATUS_OK)
    session_fail(session, id, &error);
}
