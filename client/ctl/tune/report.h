#pragma once

#include "../ctl.h"

enum tool_exit tune_report(struct tool_call *call, gemmd_session *session, uint32_t device);
