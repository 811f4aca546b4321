/* What goes to the supervisor, in order, kept while the socket takes nothing. */
#pragma once

#include "control_state.h"

void control_send_event(struct control *control, uint32_t event, const struct message_type *type, const void *body);
/* `fd` stays the caller's; -1: none. */
void control_send_reply(struct control *control, uint32_t id, const struct message_type *type, const void *body,
                        int fd);
void control_send_failure(struct control *control, uint32_t id, const struct error *failure);
/* Sends what was kept, as much as the socket takes. */
void control_send_kept(struct control *control);
void control_send_drop(struct control *control);
