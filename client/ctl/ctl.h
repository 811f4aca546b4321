/* gemmctl's commands; each is a row of the table in main.c. */
#ifndef CTL_CTL_H
#define CTL_CTL_H

#include "../tool/command.h"

#include <jansson.h>

/* Sessions that move no tensors ask for this little. */
#define CTL_ARENA_BYTES ((size_t)1 << 20)

enum tool_exit ctl_status(struct tool_call *call);
enum tool_exit ctl_weights(struct tool_call *call);
enum tool_exit ctl_load(struct tool_call *call);
enum tool_exit ctl_quantize(struct tool_call *call);
enum tool_exit ctl_export(struct tool_call *call);
enum tool_exit ctl_unload(struct tool_call *call);
enum tool_exit ctl_matmul(struct tool_call *call);
enum tool_exit ctl_tune(struct tool_call *call);
enum tool_exit ctl_metrics(struct tool_call *call);
enum tool_exit ctl_device(struct tool_call *call);
enum tool_exit ctl_drain(struct tool_call *call);
enum tool_exit ctl_ping(struct tool_call *call);
enum tool_exit ctl_top(struct tool_call *call);
enum tool_exit ctl_version(struct tool_call *call);

/* Connects for control calls. */
enum tool_exit ctl_connect(const struct tool_call *call, gemmd_session **session);

/* A weight as a JSON object; the keys are CTL_WEIGHT_KEYS. */
json_t *ctl_weight_json(const gemmd_weight_info *info);
#define CTL_WEIGHT_KEYS                                                                                                \
  "{name, format, scale, n, k, bytes, references, owner, mode, devices, hash, borrows}; bytes is what it takes on "    \
  "the "                                                                                                               \
  "device,\n"                                                                                                          \
  "  references counts the names of this content, owner is a user id, hash is hexadecimal,\n"                          \
  "  borrows counts the processes that map it to compute with it themselves"

#endif
