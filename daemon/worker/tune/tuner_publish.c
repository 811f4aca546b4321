#include "tuner_publish.h"

#include <stdio.h>
#include <stdlib.h>

static enum published_kind kind_of(const struct tuner *tuner, const struct variant *variant) {
  const struct backend_ops *ops = tuner->options.ops;
  if (variant->family->library)
    return PUBLISHED_LIBRARY;
  return ops->variant_foreign != NULL && ops->variant_foreign(variant) ? PUBLISHED_COMPILED : PUBLISHED_BUILT_IN;
}

static struct tune_found *make(struct tuner *tuner, const struct book_entry *entry) {
  char shape[VARIANT_TEXT_BYTES];
  bool others = tuner->options.publish && entry->pin == NULL && !entry->problem.tensors.given;
  struct tune_found *found = others ? calloc(1, sizeof *found) : NULL;
  if (found == NULL)
    return NULL;
  found->message.verb = ENGINE_TUNE_FOUND;
  snprintf(found->row.shape, sizeof found->row.shape, "%.127s", variant_problem_text(&entry->problem, shape));
  return found;
}

void tuner_publish(struct tuner *tuner, const struct book_entry *entry, const struct race_candidate *built_in) {
  struct tune_found *found = entry->variant.family != NULL ? make(tuner, entry) : NULL;
  if (found == NULL)
    return;
  struct published_row *row = &found->row;
  row->kind = kind_of(tuner, &entry->variant);
  row->kernel_ns = entry->tuned_ns;
  variant_text(&entry->variant, row->kernel);
  snprintf(row->identity, sizeof row->identity, "%s", tuner->identity);
  if (row->kind != PUBLISHED_BUILT_IN && built_in != NULL) {
    variant_text(&built_in->variant, row->built_in);
    row->built_in_ns = race_median(built_in);
  }
  tuner->options.notify(tuner->options.user, &found->message);
}

void tuner_unpublish(struct tuner *tuner, const struct book_entry *entry) {
  struct tune_found *found = make(tuner, entry);
  if (found != NULL)
    tuner->options.notify(tuner->options.user, &found->message);
}
