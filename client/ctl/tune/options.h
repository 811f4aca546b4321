#pragma once

#include "../ctl.h"

enum { TUNE_KERNEL_BYTES = 256 };

/* A kernel's parameters as options; the last row has no name. */
struct tune_parameter {
  const char *option, *name; /* of gemmctl, of the kernel */
  int64_t low, high, step, fallback;
};

/* The kernel that --kernel and the parameters' options describe; *given where any was. False after having said what is
 * wrong. */
bool tune_kernel(const struct tool_call *call, char kernel[TUNE_KERNEL_BYTES], bool *given);
/* --m, --x-type, --y-type, --bias-type and --exhaustive. */
bool tune_request(const struct tool_call *call, gemmd_tune_request *out);
/* --bench-warmup and --bench-iterations; without either, and without --microbench, as few as decide. */
bool tune_effort(const struct tool_call *call, gemmd_tune_search *out);
