/* Products of a backend in this process, without a daemon, beside those of a library. Its code is in
 * kernels/, which alone here may see a backend. */
#pragma once

#include "client/tool/command.h"

enum tool_exit bench_kernels(struct tool_call *call);
enum tool_exit bench_tensors(struct tool_call *call);
