#pragma once

#include "../ctl.h"

enum tool_exit tune_export(struct tool_call *call, gemmd_session *session, uint32_t device, const char *path);
enum tool_exit tune_import(struct tool_call *call, gemmd_session *session, uint32_t device, const char *path);
