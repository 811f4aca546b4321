#ifndef CLIENT_CTL_TUNE_BENCH_H
#define CLIENT_CTL_TUNE_BENCH_H

#include "../ctl.h"

enum tool_exit tune_microbench(struct tool_call *call, gemmd_session *session, uint32_t device, const char *kernel);

#endif
