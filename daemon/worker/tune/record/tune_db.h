/* Winners kept across restarts: one file an entry in a folder named after what the times depend on (device, driver,
 * library, kernels' source). A file is written to a temporary name, synced and renamed. What cannot be read or makes no
 * sense is a miss. */
#pragma once

#include "tune_book.h"

enum { TUNE_DB_FILES = BOOK_ENTRIES / 2 /* that are kept, and read, at most */ };

struct tune_db {
  char folder[512]; /* "": nothing is kept */
  int device;       /* whose note it is: devices that are alike share the folder */
  const struct variant_family *const *families;
};

/* Makes the folder. SYSTEM with the reason; then nothing is kept. */
MUST_CHECK enum status tune_db_open(struct tune_db *db, const char *state_dir, const char *identity, int device,
                                    const struct variant_family *const *families, struct error *error);
/* Fills state, variant, times and what was wrong of an entry whose problem is set; false for a miss, with the entry as
 * it was. What it fills in has not been compared with anything yet: BOOK_KEPT. */
bool tune_db_load(const struct tune_db *db, struct book_entry *entry);
/* A shape that is new makes room for itself: the file that was written longest ago goes. */
MUST_CHECK enum status tune_db_save(const struct tune_db *db, const struct book_entry *entry, struct error *error);
/* Notes that a variant is about to run for the first time, NULL: that it did. A process that dies between leaves a note
 * behind, so that its successor does not try again. */
void tune_db_trying(const struct tune_db *db, const struct variant_problem *problem, const struct variant *variant);
/* What a predecessor died of; false where there is no note. The note is gone afterwards. */
bool tune_db_died(const struct tune_db *db, struct variant_problem *problem, struct variant *variant);
void tune_db_remove(const struct tune_db *db, const struct variant_problem *problem);
/* Problems of all files with a name that makes sense; returns how many there are, of which at most `most` were
 * written. */
uint32_t tune_db_list(const struct tune_db *db, struct variant_problem *out, uint32_t most);
