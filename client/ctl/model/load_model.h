#ifndef CLIENT_CTL_MODEL_LOAD_MODEL_H
#define CLIENT_CTL_MODEL_LOAD_MODEL_H

#include "../../tool/command.h"

/* load without --tensor. */
enum tool_exit load_model(struct tool_call *call);

#endif
