/* Pieces of work on the shape at hand. */
#ifndef WORKER_TUNE_TUNER_SHAPE_H
#define WORKER_TUNE_TUNER_SHAPE_H

#include "tuner_state.h"

/* A piece of work. DEVICE_LOST is the only failure. */
MUST_CHECK enum status tuner_work(struct tuner *tuner, struct error *error);

#endif
