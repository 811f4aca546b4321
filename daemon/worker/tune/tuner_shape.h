/* Pieces of work on the shape at hand. */
#pragma once

#include "tuner_state.h"

/* A piece of work. DEVICE_LOST is the only failure. */
MUST_CHECK enum status tuner_work(struct tuner *tuner, struct error *error);
