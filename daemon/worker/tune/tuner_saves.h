/* What goes to the disk. */
#pragma once

#include "tuner_state.h"

/* Has the entry's winner written, or what was written removed, where anything is kept. */
void tuner_keep(struct tuner *tuner, const struct book_entry *entry);
void tuner_unkeep(struct tuner *tuner, const struct book_entry *entry);
/* Has it noted that the variant is about to run for the first time, NULL: that it did. */
void tuner_note(struct tuner *tuner, const struct book_entry *entry, const struct variant *variant);
/* Whether what is about to run still waits for its note. */
bool tuner_notes(const struct tuner *tuner);

/* On another thread: does what the message says, and frees it. */
void tuner_save(struct tune_save *save);
