#include "call.h"

#include "../session/session.h"

enum status call_reply(struct session *session, const struct call *call, const struct message_type *type,
                       const void *reply) {
  session_reply(session, call->id, type, reply, NULL, 0);
  return STATUS_OK;
}

enum status call_done(struct session *session, const struct call *call) {
  const struct message_empty reply = {.reserved = 0};
  return call_reply(session, call, &message_empty_type, &reply);
}
