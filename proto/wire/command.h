/* The commands and events of the protocol, made from commands.def. */
#pragma once

#include "message_types.h"

enum command {
#define COMMAND(number, name, permission, state, request, reply, fds, since, summary) COMMAND_##name = number,
#include "commands.def"
};
enum event {
#define EVENT(number, name, body) EVENT_##name = number,
#include "commands.def"
};

enum permission { PERMISSION_USER, PERMISSION_ADMIN, PERMISSION_INTERNAL };
enum session_state { STATE_NEW = 1, STATE_OPEN = 2, STATE_ARENA = 4 }; /* a session with an arena is also open */

struct command_info {
  uint32_t number;
  const char *name, *summary;
  enum permission permission;
  uint32_t states; /* mask of enum session_state */
  const struct message_type *request, *reply;
  uint32_t fds, since;
};

/* NULL where the number is no command. */
const struct command_info *command_find(uint32_t number);
/* The most descriptors that its request may bring; info->fds is the least. */
uint32_t command_fds_most(const struct command_info *info);
/* All rows, in order of number. */
const struct command_info *command_table(size_t *count);
