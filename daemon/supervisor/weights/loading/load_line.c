#include "load_line.h"

#include <stddef.h>

void load_line_init(struct load_line *line) {
  TAILQ_INIT(&line->entries);
  line->turns = 0;
}

void load_line_add(struct load_line *line, struct load_entry *entry) {
  TAILQ_INSERT_TAIL(&line->entries, entry, link);
}

struct load_entry *load_line_next(struct load_line *line, bool small) {
  struct load_entry *best = NULL, *entry;
  for (entry = TAILQ_FIRST(&line->entries); entry != NULL; entry = TAILQ_NEXT(entry, link))
    if ((entry->small || !small) && (best == NULL || *entry->turn < *best->turn))
      best = entry;
  if (best != NULL) {
    *best->turn = ++line->turns;
    load_line_remove(line, best);
  }
  return best;
}

void load_line_remove(struct load_line *line, struct load_entry *entry) {
  TAILQ_REMOVE(&line->entries, entry, link);
}
