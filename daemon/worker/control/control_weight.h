/* Weights in slabs; the last row has command 0. */
#pragma once

#include "control_state.h"

extern const struct control_handler control_weight_handlers[];

/* Gives back what is left when the worker ends; no session is left. */
void control_weight_close_all(struct control *control);
