#include "command.h"

/* A session with an arena is also open, and both have said hello. */
#define STATES_NEW STATE_NEW
#define STATES_OPEN (STATE_OPEN | STATE_ARENA)
#define STATES_ARENA STATE_ARENA
#define STATES_ANY (STATE_NEW | STATE_OPEN | STATE_ARENA)

static const struct command_info commands[] = {
#define COMMAND(command_number, command_name, who, state, request_body, reply_body, descriptors, version, text)        \
  {                                                                                                                    \
      .number = command_number,                                                                                        \
      .name = #command_name,                                                                                           \
      .summary = text,                                                                                                 \
      .permission = PERMISSION_##who,                                                                                  \
      .states = STATES_##state,                                                                                        \
      .request = &message_##request_body##_type,                                                                       \
      .reply = &message_##reply_body##_type,                                                                           \
      .fds = descriptors,                                                                                              \
      .since = version,                                                                                                \
  },
#include "commands.def"
};

const struct command_info *command_table(size_t *count) {
  *count = sizeof commands / sizeof commands[0];
  return commands;
}

const struct command_info *command_find(uint32_t number) {
  for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
    if (commands[i].number == number)
      return &commands[i];
  return NULL;
}

uint32_t command_fds_most(const struct command_info *info) {
  return info->request == &message_weight_load_type ? LIMIT_MESSAGE_FDS : info->fds;
}
