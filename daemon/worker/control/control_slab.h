/* Device memory; the last row has command 0. */
#pragma once

#include "control_state.h"

extern const struct control_handler control_slab_handlers[];

/* Gives back what is left when the worker ends; no weight is in it any more. */
void control_slab_close_all(struct control *control);
