/* From a request to its handler, through every generic check. */
#pragma once

#include "../../../proto/wire/message.h"
#include "../../transport.h"

struct session;

/* Answers the request, or lets its handler. PROTOCOL where the session must end. */
MUST_CHECK enum status dispatch_request(struct session *session, const struct message_head *head,
                                        struct message_body body, struct packet *packet, struct error *error);
