/* hello, ping. */
#include "cmd_hello.h"

#include "../../log.h"
#include "../context.h"
#include "../workers/fleet.h"
#include "cmd.h"

#include <stdio.h>

static void answer(struct session *session) {
  struct supervisor *supervisor = session->supervisor;
  session->hello_waits = false;
  struct message_hello_reply reply = {.version = session->version,
                                      .session = session->id,
                                      .devices = supervisor->fleet->count,
                                      .entries_max = LIMIT_RING_ENTRIES,
                                      .arena_bytes_max = (uint64_t)supervisor->config->arena_bytes_max,
                                      .message_bytes_max = LIMIT_MESSAGE_BYTES};
  snprintf(reply.server, sizeof reply.server, "gemmd %s", GEMMD_RELEASE);
  snprintf(reply.backend, sizeof reply.backend, "%.15s", supervisor->fleet->config.backend);
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
  if (session->supervisor->fleet->ready)
    answer(session);
}

void cmd_hello_answer_all(struct supervisor *supervisor) {
  struct session *session, *next;
  for (session = TAILQ_FIRST(&supervisor->sessions->list); session != NULL; session = next) {
    next = TAILQ_NEXT(session, link);
    if (session->hello_waits)
      answer(session);
  }
}

void cmd_ping(struct session *session, uint32_t id, const void *body, struct packet *packet) {
  (void)packet;
  session_reply(session, id, &message_ping_type, body, NULL, 0);
}
