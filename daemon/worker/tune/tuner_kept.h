/* What was found before, and what that ended with. */
#pragma once

#include "tuner_state.h"

/* Fills the book from the disk. */
void tuner_read_kept(struct tuner *tuner);
/* What a predecessor noted that it was trying is not tried again, unless somebody else killed that. Returns the shape
 * whose file is to say so; NULL: none. */
struct book_entry *tuner_heed_note(struct tuner *tuner, bool outside);
/* A predecessor is gone: see struct tune_request. */
void tuner_follow(struct tuner *tuner, bool outside, uint32_t faults);
