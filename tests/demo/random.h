/* Repeatable random numbers. */
#ifndef DEMO_RANDOM_H
#define DEMO_RANDOM_H

#include <stdint.h>

/* Any number but 0 begins a sequence. Mean 0, deviation 1. */
float random_normal(uint64_t *state);

#endif
