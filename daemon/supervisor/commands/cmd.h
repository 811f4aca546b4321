/* The handlers of clients' commands, by dispatch.c. All generic checks are done: `body` is the decoded request. A
 * handler answers exactly once, now or later. What it does not take out of the packet is closed behind it. */
#ifndef SUPERVISOR_COMMANDS_CMD_H
#define SUPERVISOR_COMMANDS_CMD_H

#include "../../transport.h"
#include "../session/session.h"

/* cmd_NAME for each row of commands.def that is not INTERNAL. */
#define CMD_USER(name) void cmd_##name(struct session *session, uint32_t id, const void *body, struct packet *packet);
#define CMD_ADMIN(name) CMD_USER(name)
#define CMD_INTERNAL(name)
#define COMMAND(number, name, permission, ...) CMD_##permission(name)
#include "../../../proto/wire/commands.def"

#endif
