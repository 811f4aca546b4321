#ifndef CLIENT_CTL_TUNE_WATCH_H
#define CLIENT_CTL_TUNE_WATCH_H

#include "../ctl.h"

enum tool_exit tune_watch(struct tool_call *call, gemmd_session *session, uint32_t device);

#endif
