/* The handlers of clients' commands, by dispatch.c, when all generic checks are done. A handler answers exactly once:
 * now, later (session_wait), or by what it returns, where that is not OK and call->error says why. */
#pragma once

#include "../session/session.h"
#include "call.h"

/* cmd_NAME for each row of commands.def that is not INTERNAL. */
#define CMD_USER(name) enum status cmd_##name(struct session *session, struct call *call);
#define CMD_ADMIN(name) CMD_USER(name)
#define CMD_INTERNAL(name)
#define COMMAND(number, name, permission, ...) CMD_##permission(name)
#include "../../../proto/wire/commands.def"
