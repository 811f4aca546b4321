/* Keeps what this process computes to a share of one core, whatever runs in it: a compiler is one long call. One at a
 * time; SIGPROF and its timer are its own. */
#pragma once

/* At most so many thousandths of a core, 1..1000, by the thread that computes; 1000: all of it. */
void throttle_begin(int thousandths);
void throttle_end(void);
