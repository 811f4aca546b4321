/* How long to wait before another attempt, so that many clients of one daemon that has ended neither hammer nor come at
 * the same moment. */
#pragma once

#include <stdint.h>

/* Nanoseconds before attempt number `attempt`, from 1 on: 5 ms, doubled with each to at most 500 ms, times 0.5 to 1.5
 * by `random`, of which all 32 bits count. */
int64_t backoff_ns(uint32_t attempt, uint32_t random);
