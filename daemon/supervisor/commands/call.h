/* One request of a client, while its handler runs. */
#pragma once

#include "../../../proto/wire/message.h"
#include "../../transport.h"

struct session;

struct call {
  uint32_t id;
  const void *body;      /* the decoded request */
  struct packet *packet; /* what a handler does not take out of it is closed behind that */
  struct error error;    /* why the handler did not return OK */
};

/* Answers it; these return OK. */
enum status call_reply(struct session *session, const struct call *call, const struct message_type *type,
                       const void *reply);
enum status call_done(struct session *session, const struct call *call);
