/* What clients ask of the tuner; the last row has command 0. */
#ifndef WORKER_CONTROL_CONTROL_TUNE_H
#define WORKER_CONTROL_CONTROL_TUNE_H

#include "control_state.h"

extern const struct control_handler control_tune_handlers[];

#endif
