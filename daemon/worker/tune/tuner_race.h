/* Candidates of the shape at hand, and what came of them. */
#pragma once

#include "tuner_state.h"

/* Candidates: the backend's own choice, what was kept or has won, what was asked for by hand, and the backend's best
 * guesses. A library's come later: they need not be known yet, and trying them takes a while without requests. */
void tuner_race_begin(struct tuner *tuner);
/* Once they are known. False: not yet. */
bool tuner_race_library(struct tuner *tuner);
/* For the table of what was tried: what a candidate takes beside its tensors. */
void tuner_note_needs(struct tuner *tuner, int who);
/* More of them, like the best so far and like what was asked for by hand. */
void tuner_race_refine(struct tuner *tuner);
/* Publishes the winner, and leaves the shape where no library waits. */
void tuner_race_end(struct tuner *tuner);
