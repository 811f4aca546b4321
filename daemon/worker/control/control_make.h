/* Weights made by the device, in canonical form; the last row has command 0. */
#pragma once

#include "control_state.h"

extern const struct control_handler control_make_handlers[];
