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

enum status cmd_hello(struct session *session, struct call *call) {
  const struct message_hello_request *request = call->body;
  uint32_t least = request->version_min > PROTOCOL_VERSION_MIN ? request->version_min : PROTOCOL_VERSION_MIN;
  uint32_t most = request->version_max < PROTOCOL_VERSION_MAX ? request->version_max : PROTOCOL_VERSION_MAX;
  if (least > most)
    return error_set(&call->error, STATUS_VERSION, "versions %u..%u are spoken here, %u..%u were offered",
                     PROTOCOL_VERSION_MIN, PROTOCOL_VERSION_MAX, request->version_min, request->version_max);
  uv_timer_stop(&session->timer);
  session->version = most;
  session->hello_id = call->id;
  snprintf(session->client, sizeof session->client, "%s", request->client);
  log_debug("session %u: %s, process %u of user %u", session->id, session->client, session->pid, session->user.uid);
  session->hello_waits = true;
  session_wait(session);
  if (session->supervisor->fleet->ready)
    answer(session);
  return STATUS_OK;
}

void cmd_hello_answer_all(struct supervisor *supervisor) {
  struct session *session, *next;
  for (session = TAILQ_FIRST(&supervisor->sessions->list); session != NULL; session = next) {
    next = TAILQ_NEXT(session, link);
    if (session->hello_waits) {
      answer(session);
      channel_settle(&session->channel);
    }
  }
}

enum status cmd_ping(struct session *session, struct call *call) {
  return call_reply(session, call, &message_ping_type, call->body);
}
