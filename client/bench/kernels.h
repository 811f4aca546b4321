/* Products of a backend in this process, without a daemon, beside those of a library. Its code is in
 * tests/bench_kernels, which may see the kernels as the client may not. */
#ifndef BENCH_KERNELS_H
#define BENCH_KERNELS_H

#include "../tool/command.h"

enum tool_exit bench_kernels(struct tool_call *call);

#endif
