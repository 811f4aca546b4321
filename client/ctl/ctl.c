#include "ctl.h"

#include "../tool/print.h"
#include "../tool/words.h"

#include <limits.h>
#include <stdio.h>

enum tool_exit ctl_connect(const struct tool_call *call, gemmd_session **session) {
  gemmd_options options = {.arena_bytes = CTL_ARENA_BYTES, .entries = 1, .reconnect_ms = UINT_MAX, .name = "gemmctl"};
  return tool_connect(call, &options, session);
}

enum tool_exit ctl_in_session(struct tool_call *call, enum tool_exit (*run)(struct tool_call *, gemmd_session *)) {
  gemmd_session *session;
  enum tool_exit code = ctl_connect(call, &session);
  if (code != TOOL_OK)
    return code;
  code = run(call, session);
  gemmd_disconnect(session);
  return code;
}

void ctl_hash_text(const gemmd_weight_info *info, char out[65]) {
  for (size_t i = 0; i < sizeof info->hash; i++)
    snprintf(out + 2 * i, 3, "%02x", info->hash[i]);
}

json_t *ctl_weight_json(const gemmd_weight_info *info) {
  char hash[65];
  ctl_hash_text(info, hash);
  return json_pack("{s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:s, s:I, s:I, s:I}", "name",
                   print_json_text(info->name), "format", word_text(words_format, (int)info->format), "scale",
                   word_text(words_scale, info->scale), "n", (json_int_t)info->n, "k", (json_int_t)info->k, "bytes",
                   (json_int_t)info->bytes, "references", (json_int_t)info->references, "owner",
                   (json_int_t)info->owner, "mode", word_text(words_mode, (int)info->mode), "devices",
                   (json_int_t)info->devices, "hash", hash, "borrows", (json_int_t)info->borrows, "experts",
                   (json_int_t)info->experts, "input", (json_int_t)info->input);
}
