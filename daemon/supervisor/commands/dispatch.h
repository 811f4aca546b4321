/* From a request to its handler, through every generic check. */
#ifndef SUPERVISOR_COMMANDS_DISPATCH_H
#define SUPERVISOR_COMMANDS_DISPATCH_H

#include "../../../proto/wire/message.h"
#include "../../transport.h"

struct session;

/* Answers the request, or lets its handler. PROTOCOL where the session must end. */
MUST_CHECK enum status dispatch_request(struct session *session, const struct message_head *head,
                                        struct message_body body, struct packet *packet, struct error *error);

#endif
