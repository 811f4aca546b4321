#pragma once

#include "../../tool/command.h"

/* load without --tensor. */
enum tool_exit load_model(struct tool_call *call);
