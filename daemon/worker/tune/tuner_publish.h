/* What others are told. */
#pragma once

#include "tuner_state.h"

/* Tells everybody of the kernel that serves the entry, and of the fastest that is built in where it is not (NULL: none
 * is known); or that none does any more. Not of pins, which are for some weights only. */
void tuner_publish(struct tuner *tuner, const struct book_entry *entry, const struct race_candidate *built_in);
void tuner_unpublish(struct tuner *tuner, const struct book_entry *entry);
