#include "tuner_current.h"

#include "../../log.h"
#include "tuner_saves.h"

#include <stdio.h>
#include <string.h>

void tuner_answer(struct tuner *tuner, enum status status, const char *why) {
  struct engine_message *message = tuner->ask;
  tune_table_drop(&tuner->table);
  if (message == NULL)
    return;
  tuner->ask = NULL;
  message->error.status = STATUS_OK;
  if (status != STATUS_OK)
    (void)error_set(&message->error, status, "%s", why);
  tuner->options.notify(tuner->options.user, message);
}

static bool ask_is_for(const struct tuner *tuner, const struct engine_message *message,
                       const struct book_entry *entry) {
  return variant_problem_equal(&message->tune->problem, &entry->problem) && entry->pin == NULL;
}

static struct engine_message *take_ask(struct tuner *tuner, const struct book_entry *entry) {
  struct engine_message *before = NULL;
  for (struct engine_message *each = tuner->asks; each != NULL; before = each, each = each->next)
    if (ask_is_for(tuner, each, entry)) {
      *(before != NULL ? &before->next : &tuner->asks) = each->next;
      tuner->asks_last = tuner->asks_last == each ? before : tuner->asks_last;
      each->next = NULL;
      return each;
    }
  return NULL;
}

void tuner_end_compare(struct tuner *tuner, const struct book_entry *entry) {
  if (tuner->comparing && tuner->trial.variant.family != NULL)
    tuner_note(tuner, entry, NULL);
  tuner->comparing = false;
}

void tuner_leave(struct tuner *tuner) {
  struct book_entry *entry = tuner->current;
  tuner->current = NULL;
  if (entry == NULL)
    return;
  entry->held = false;
  trial_end(&tuner->trial);
  tuner_end_compare(tuner, entry);
  proof_stop(&tuner->proof);
  entry->asked = false;
  for (const struct engine_message *each = tuner->asks; each != NULL; each = each->next)
    entry->asked |= ask_is_for(tuner, each, entry);
}

void tuner_give_up(struct tuner *tuner, enum status status, const char *why) {
  struct book_entry *entry = tuner->current;
  entry->state = BOOK_FAILED;
  snprintf(entry->why, sizeof entry->why, "%.127s", why);
  tuner_answer(tuner, status, why);
  tuner_leave(tuner);
}

/* Whether what was kept, or is set by hand, is known to be wrong. Who died of a pin is noted with the shape itself,
 * which outlives the pin. */
static bool given_is_wrong(struct tuner *tuner, const struct book_entry *entry) {
  if (entry->pin == NULL)
    return book_is_wrong(entry, &entry->variant);
  const struct book_entry *shape = book_find(&tuner->book, &entry->problem, NULL);
  return book_is_wrong(entry, entry->pin) || (shape != NULL && book_is_wrong(shape, entry->pin));
}

bool tuner_begin(struct tuner *tuner, struct book_entry *entry) {
  struct error error;
  tuner->current = entry;
  tuner->ask = take_ask(tuner, entry);
  entry->aside = false;
  entry->held = true;
  tuner->phase = PHASE_PREPARE;
  tuner->comparing = false;
  book_gather_weights(&tuner->book, entry);
  tuner->spent_ns = tuner->disturbed_ns = 0;
  tuner->interrupted = false;
  if (tuner->ask != NULL)
    entry->compile_ns = 0;
  tuner->checked = 0;
  tuner->launch_ns = 0;
  tuner->calibrated = 0;
  memset(tuner->proven, 0, sizeof tuner->proven);
  tuner->given_failed = given_is_wrong(tuner, entry);
  if (trial_start(&tuner->trial, &entry->problem, entry->weight_count > 0 ? entry->weights[0] : NULL, &error) ==
      STATUS_OK)
    return true;
  tuner_give_up(tuner, error.status, error.text);
  return false;
}

bool tuner_by_hand(const struct tuner *tuner, const struct variant *variant) {
  const struct tune_request *request = tuner->ask != NULL ? tuner->ask->tune : NULL;
  struct variant hand;
  struct error ignored;
  return request != NULL && request->text[0] != '\0' &&
         variant_parse(tuner->options.ops->families, request->text, &hand, &ignored) == STATUS_OK &&
         variant_equal(&hand, variant);
}

void tuner_blame(struct tuner *tuner, const struct variant *variant, const char *why) {
  char shape[VARIANT_TEXT_BYTES], kernel[VARIANT_TEXT_BYTES];
  book_wrong(tuner->current, variant);
  log_warning("kernel %s is never used for %s: %s", variant_text(variant, kernel),
              variant_problem_text(&tuner->current->problem, shape), why);
  if (tuner_by_hand(tuner, variant))
    snprintf(tuner->ask->tune->why, sizeof tuner->ask->tune->why, "%.127s", why);
}

uint64_t tuner_roof_ns(struct tuner *tuner, const struct variant_problem *problem) {
  if (!tuner->roof_known)
    tuner->options.ops->roof(tuner->options.backend, &tuner->roof);
  tuner->roof_known = true;
  return book_roof_ns(problem, &tuner->roof);
}
