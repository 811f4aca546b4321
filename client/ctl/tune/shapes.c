/* The shapes that a device's tuner knows. */
#include "shapes.h"

#include "../../tool/print.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

bool tune_matches(const char *pattern, const char *shape) {
  return pattern == NULL || fnmatch(pattern, shape, 0) == 0 || strstr(shape, pattern) != NULL;
}

static bool add_shape(void *user, const gemmd_tune_shape *shape) {
  struct tune_shapes *shapes = user;
  if (shapes->count == shapes->room) {
    size_t room = shapes->room == 0 ? 64 : shapes->room * 2;
    gemmd_tune_shape *larger = realloc(shapes->list, room * sizeof *larger);
    if (larger == NULL) {
      shapes->room = 0;
      return false;
    }
    shapes->list = larger;
    shapes->room = room;
  }
  shapes->list[shapes->count++] = *shape;
  return true;
}

enum tool_exit tune_shapes(const struct tool_call *call, gemmd_session *session, uint32_t device,
                           struct tune_shapes *out) {
  *out = (struct tune_shapes){.list = NULL};
  int status = gemmd_tune_list(session, device, add_shape, out);
  if (status != GEMMD_OK)
    return tool_refused(call, session, status);
  if (out->count > 0 && out->room == 0)
    return tool_cannot(call, GEMMD_NOMEM, "out of memory for the list of shapes");
  return TOOL_OK;
}

json_t *tune_shape_json(const gemmd_tune_shape *shape) {
  return json_pack("{s:o, s:o, s:o, s:o, s:b, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I}", "shape",
                   print_json_text(shape->shape), "kernel", print_json_text(shape->kernel), "state",
                   print_json_text(shape->state), "why", print_json_text(shape->why), "serves", shape->serves,
                   "confirmed", shape->confirmed, "tuning", shape->tuning, "calls", (json_int_t)shape->calls,
                   "device_ns", (json_int_t)shape->device_ns, "own_ns", (json_int_t)shape->own_ns, "tuned_ns",
                   (json_int_t)shape->tuned_ns, "library_ns", (json_int_t)shape->library_ns, "roof_ns",
                   (json_int_t)shape->roof_ns);
}
