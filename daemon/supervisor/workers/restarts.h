/* When a worker that has died is replaced: at once while few have died lately, and behind that after pauses that grow.
 * There is no death after which it is not. Pure: time and randomness are parameters. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Of one device. Zeros: none has died. */
struct restarts {
  uint32_t recent;    /* replaced at once, within a minute */
  uint64_t since_ms;  /* when the first of these died */
  uint32_t pauses;    /* before those that came behind them; without end */
  uint64_t served_ms; /* since when the one that lives has served; 0: it has not */
};

/* The worker died at `now_ms`: how many milliseconds its successor has to wait. 0 for the first `most` of a minute;
 * behind these a 64th of `longest_ms`, doubled with each to at most all of it, times 0.5 to 1 by `random`, of which
 * all 32 bits count; at least 1. One that has served for a minute after a pause makes the next death the first. */
uint64_t restarts_pause_ms(struct restarts *restarts, uint32_t most, uint64_t longest_ms, uint64_t now_ms,
                           uint32_t random);
/* True where the next one would be replaced at once. */
bool restarts_at_once(const struct restarts *restarts, uint32_t most, uint64_t now_ms);
/* A worker serves. `now_ms` is not 0. */
void restarts_served(struct restarts *restarts, uint64_t now_ms);
/* Somebody has seen to the device: the next death is the first. */
void restarts_forget(struct restarts *restarts);
