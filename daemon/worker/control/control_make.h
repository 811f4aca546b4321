/* Weights made by the device, in canonical form; the last row has command 0. */
#ifndef WORKER_CONTROL_CONTROL_MAKE_H
#define WORKER_CONTROL_CONTROL_MAKE_H

#include "control_state.h"

extern const struct control_handler control_make_handlers[];

#endif
