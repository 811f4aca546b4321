#pragma once

#include "../ctl.h"

enum tool_exit tune_microbench(struct tool_call *call, gemmd_session *session, uint32_t device, const char *kernel);
