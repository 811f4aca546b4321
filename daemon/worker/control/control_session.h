/* Sessions and their handles; the last row has command 0. */
#pragma once

#include "control_state.h"

extern const struct control_handler control_session_handlers[];

/* Gives back what is left when the worker ends. */
void control_session_close_all(struct control *control);
