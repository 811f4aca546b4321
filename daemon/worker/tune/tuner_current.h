/* The shape at hand: which one it is, who asked for it, and how it ends. */
#pragma once

#include "tuner_state.h"

/* Takes one up; false where it cannot be tuned. */
bool tuner_begin(struct tuner *tuner, struct book_entry *entry);
/* Leaves it; it comes again where it is still to be tuned. */
void tuner_leave(struct tuner *tuner);
void tuner_give_up(struct tuner *tuner, enum status status, const char *why);
/* Sends the message of who asked for it back, if anybody did. */
void tuner_answer(struct tuner *tuner, enum status status, const char *why);
/* The variant is never used for it: noted, logged, and told to who asked for the variant by hand. */
void tuner_blame(struct tuner *tuner, const struct variant *variant, const char *why);
/* Whether the shape is tuned for somebody who asked for this variant by hand. */
bool tuner_by_hand(const struct tuner *tuner, const struct variant *variant);
/* What is compared has been, or is left. */
void tuner_end_compare(struct tuner *tuner, const struct book_entry *entry);
/* What a product of the shape takes at least, by what the device delivers at most. Asks the backend for that when it is
 * first wanted: that may take a while. */
uint64_t tuner_roof_ns(struct tuner *tuner, const struct variant_problem *problem);
