#pragma once

#include "../ctl.h"

/* True where the pattern is NULL, or matches, or is a part of the shape. */
bool tune_matches(const char *pattern, const char *shape);
json_t *tune_shape_json(const gemmd_tune_shape *shape);

/* All shapes of a device; the caller frees the list, also after a failure. */
struct tune_shapes {
  gemmd_tune_shape *list;
  size_t count, room;
};
enum tool_exit tune_shapes(const struct tool_call *call, gemmd_session *session, uint32_t device,
                           struct tune_shapes *out);
