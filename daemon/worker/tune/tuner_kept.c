#include "tuner_kept.h"

#include "../../log.h"
#include "tuner_publish.h"
#include "tuner_saves.h"

#include <stdlib.h>

void tuner_read_kept(struct tuner *tuner) {
  const struct book_visit nobodys = {.user = BOOK_NOBODY};
  struct variant_problem *problems = malloc(TUNE_DB_FILES * sizeof *problems);
  uint32_t count = problems != NULL ? tune_db_list(&tuner->db, problems, TUNE_DB_FILES) : 0;
  for (uint32_t i = 0; i < count && i < TUNE_DB_FILES; i++) {
    struct book_entry kept = {.problem = problems[i], .used = true, .user = BOOK_NOBODY};
    if (!tune_db_load(&tuner->db, &kept))
      continue;
    struct book_entry *entry = book_visit(&tuner->book, &problems[i], NULL, &nobodys);
    if (entry != NULL)
      *entry = kept;
  }
  free(problems);
}

struct book_entry *tuner_heed_note(struct tuner *tuner, bool outside) {
  const struct book_visit nobodys = {.user = BOOK_NOBODY};
  struct variant_problem died;
  struct variant cause;
  if (!tune_db_died(&tuner->db, &died, &cause))
    return NULL;
  char shape[VARIANT_TEXT_BYTES], kernel[VARIANT_TEXT_BYTES];
  if (outside) {
    log_info("a worker was killed while it tried kernel %s for %s: the kernel is not to blame",
             variant_text(&cause, kernel), variant_problem_text(&died, shape));
    return NULL;
  }
  log_warning("a worker died while it tried kernel %s for %s: it is not tried again", variant_text(&cause, kernel),
              variant_problem_text(&died, shape));
  struct book_entry *entry = book_visit(&tuner->book, &died, NULL, &nobodys);
  if (entry == NULL)
    return NULL;
  book_killed(entry, &cause);
  if (variant_equal(&entry->variant, &cause)) {
    entry->variant.family = NULL;
    entry->state = BOOK_SEEN;
    entry->confirmed = false; /* kept without a kernel, it would say that nothing is faster */
  }
  return entry;
}

void tuner_follow(struct tuner *tuner, bool outside, uint32_t faults) {
  const struct book_entry *blamed = tuner_heed_note(tuner, outside);
  if (blamed != NULL) {
    tuner_keep(tuner, blamed);
    tuner_unpublish(tuner, blamed);
  }
  if (faults == 0 || tuner->db.folder[0] != '\0' || tuner->options.mode == TUNE_OFF)
    return;
  /* It would be tried again, and again end the worker. */
  log_info("nothing is tuned from here on: a worker died, and no state_dir tells of which kernel");
  tuner->options.mode = TUNE_OFF;
}
