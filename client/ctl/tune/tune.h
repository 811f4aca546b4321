/* What the parts of `gemmctl tune` share. */
#ifndef CLIENT_CTL_TUNE_TUNE_H
#define CLIENT_CTL_TUNE_TUNE_H

#include "../ctl.h"

enum { TUNE_KERNEL_BYTES = 256 };

/* A kernel's parameters as options; the last row has no name. */
struct tune_parameter {
  const char *option, *name; /* of gemmctl, of the kernel */
  int64_t low, high, step, fallback;
};
extern const struct tune_parameter tune_parameters[];

/* The kernel that --kernel and the parameters' options describe; *given where any was. False after having said what is
 * wrong. */
bool tune_kernel(const struct tool_call *call, char kernel[TUNE_KERNEL_BYTES], bool *given);
/* --m, --x-type, --y-type, --bias-type and --exhaustive. */
bool tune_request(const struct tool_call *call, gemmd_tune_request *out);

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

enum tool_exit tune_export(struct tool_call *call, gemmd_session *session, uint32_t device, const char *path);
enum tool_exit tune_import(struct tool_call *call, gemmd_session *session, uint32_t device, const char *path);
enum tool_exit tune_watch(struct tool_call *call, gemmd_session *session, uint32_t device);
enum tool_exit tune_report(struct tool_call *call, gemmd_session *session, uint32_t device);
enum tool_exit tune_microbench(struct tool_call *call, gemmd_session *session, uint32_t device, const char *kernel);

#endif
