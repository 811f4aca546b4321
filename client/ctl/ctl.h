/* gemmctl's commands: each is a row beside the function that runs it, in its cmd_*.c. */
#pragma once

#include "../tool/command.h"

#include <jansson.h>

/* Sessions that move no tensors ask for this little. */
#define CTL_ARENA_BYTES ((size_t)1 << 20)

/* In the order of the help. */
#define CTL_COMMANDS(row)                                                                                              \
  row(status) row(weights) row(load) row(unload) row(export) row(quantize) row(matmul) row(tune) row(ping)             \
      row(metrics) row(top) row(device) row(drain) row(version)

#define ROW(name) extern const struct tool_command ctl_##name;
CTL_COMMANDS(ROW)
#undef ROW

/* Connects for control calls. */
enum tool_exit ctl_connect(const struct tool_call *call, gemmd_session **session);
/* Does what a command does with a session that lasts as long as that. */
enum tool_exit ctl_in_session(struct tool_call *call, enum tool_exit (*run)(struct tool_call *, gemmd_session *));

/* A weight's hash in hexadecimal. */
void ctl_hash_text(const gemmd_weight_info *info, char out[65]);
/* A weight as a JSON object; the keys are CTL_WEIGHT_KEYS. */
json_t *ctl_weight_json(const gemmd_weight_info *info);
#define CTL_WEIGHT_KEYS                                                                                                \
  "{name, format, scale, n, k, bytes, references, owner, mode, devices, hash, borrows, experts, input};\n"             \
  "  bytes is what it takes on the device, input a sum of what is done to x (1 order, 2 scale, 16 i rotation),\n"      \
  "  references counts the names of this content, owner is a user id, hash is hexadecimal,\n"                          \
  "  borrows counts the processes that map it to compute with it themselves,\n"                                        \
  "  experts is how many matrices n x k it has, 0: it is one"
