/* What clients ask of the tuner; the last row has command 0. */
#pragma once

#include "control_state.h"

extern const struct control_handler control_tune_handlers[];
