#include "tuner_saves.h"

#include "../../log.h"

#include <stdlib.h>

static struct tune_save *new_save(struct tuner *tuner, enum tune_save_verb verb, const struct book_entry *entry) {
  struct tune_save *save = tuner->db.folder[0] != '\0' ? malloc(sizeof *save) : NULL;
  if (save != NULL)
    *save = (struct tune_save){.message = {.verb = ENGINE_TUNE_SAVE}, .verb = verb, .entry = *entry, .tuner = tuner};
  return save;
}

static void post(struct tuner *tuner, struct tune_save *save) {
  if (save != NULL)
    tuner->options.notify(tuner->options.user, &save->message);
}

void tuner_keep(struct tuner *tuner, const struct book_entry *entry) {
  if (entry->pin == NULL)
    post(tuner, new_save(tuner, SAVE_WINNER, entry));
}

void tuner_unkeep(struct tuner *tuner, const struct book_entry *entry) {
  if (entry->pin == NULL)
    post(tuner, new_save(tuner, SAVE_FORGET, entry));
}

void tuner_note(struct tuner *tuner, const struct book_entry *entry, const struct variant *variant) {
  struct tune_save *save = new_save(tuner, variant != NULL ? SAVE_TRYING : SAVE_TRIED, entry);
  if (save != NULL && variant != NULL) {
    save->entry.variant = *variant;
    tuner->notes++;
  }
  post(tuner, save);
}

bool tuner_notes(const struct tuner *tuner) {
  return tuner->comparing && atomic_load(&tuner->noted) != tuner->notes;
}

void tuner_save(struct tune_save *save) {
  struct tuner *tuner = save->tuner;
  const struct book_entry *entry = &save->entry;
  struct error error;
  switch (save->verb) {
  case SAVE_WINNER:
    if (tune_db_save(&tuner->db, entry, &error) != STATUS_OK)
      log_warning("%s", error.text);
    break;
  case SAVE_FORGET:
    tune_db_remove(&tuner->db, &entry->problem);
    break;
  case SAVE_TRYING:
    tune_db_trying(&tuner->db, &entry->problem, &entry->variant);
    atomic_fetch_add(&tuner->noted, 1);
    break;
  case SAVE_TRIED:
    tune_db_trying(&tuner->db, &entry->problem, NULL);
    break;
  }
  free(save);
}
