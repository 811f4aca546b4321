#include "tuner_state.h"

#include "../../log.h"

#include <stdio.h>
#include <string.h>

enum { CALIBRATIONS = 2 };

/* ---- who asked, and whose turn it is */

void tuner_answer(struct tuner *tuner, enum status status, const char *why) {
  struct engine_message *message = tuner->ask;
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
  (void)tuner;
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

static void end_compare(struct tuner *tuner, const struct book_entry *entry) {
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
  end_compare(tuner, entry);
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
  tuner->spent_ns = 0;
  tuner->checked = 0;
  tuner->launch_ns = 0;
  tuner->calibrated = 0;
  memset(tuner->proven, 0, sizeof tuner->proven);
  tuner->given_failed = given_is_wrong(tuner, entry);
  if (trial_start(&tuner->trial, &entry->problem, entry->weights[0], &error) == STATUS_OK)
    return true;
  tuner_give_up(tuner, error.status, error.text);
  return false;
}

/* ---- pieces of work */

/* Begins to compare; false, with it noted as wrong, where the backend does not take the variant. */
static bool begin_compare(struct tuner *tuner, struct variant *variant) {
  struct error error;
  if (variant->family != NULL && tuner->options.ops->variant_check(tuner->options.backend, &tuner->current->problem,
                                                                   variant, NULL, &error) != STATUS_OK)
    return false;
  if (variant->family != NULL)
    tuner_note(tuner, tuner->current, variant);
  trial_compare(&tuner->trial, variant);
  tuner->comparing = true;
  return true;
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

/* A piece of the comparison that has begun. *done: it is over. */
static enum status compare(struct tuner *tuner, bool *done, bool *right, struct error *error) {
  char why[128];
  enum status status = trial_compare_next(&tuner->trial, done, right, why, sizeof why, error);
  if (status != STATUS_OK || !*done)
    return status;
  end_compare(tuner, tuner->current);
  if (!*right && tuner->trial.variant.family != NULL) {
    tuner_blame(tuner, &tuner->trial.variant, why);
  }
  return STATUS_OK;
}

static enum status work_own(struct tuner *tuner, struct error *error) {
  bool done, right;
  struct variant own = {.family = NULL};
  struct book_entry *entry = tuner->current;
  if (!tuner->comparing)
    (void)begin_compare(tuner, &own);
  enum status status = compare(tuner, &done, &right, error);
  if (status != STATUS_OK || !done)
    return status;
  if (!right) {
    tuner_give_up(tuner, STATUS_UNSUPPORTED, "the backend's own choice does not agree with the plain kernel");
    return STATUS_OK;
  }
  tuner->given = entry->pin != NULL ? *entry->pin : entry->variant;
  if (entry->pin != NULL || (entry->state == BOOK_KEPT && tuner->given.family != NULL))
    tuner->phase = PHASE_GIVEN;
  else if (entry->state == BOOK_KEPT && entry->confirmed && tuner->ask == NULL) {
    entry->state = BOOK_TUNED; /* it was found before that nothing is faster */
    tuner_leave(tuner);
  } else {
    tuner->phase = PHASE_LIST;
  }
  return STATUS_OK;
}

/* The kept variant or the pin was right, or not. */
static void end_given(struct tuner *tuner, bool right) {
  struct book_entry *entry = tuner->current;
  if (right) {
    entry->variant = tuner->given;
    entry->serves = true;
    tuner_publish(tuner, entry, NULL);
  }
  if (entry->pin != NULL) {
    if (right)
      entry->state = BOOK_TUNED;
    else
      tuner_give_up(tuner, STATUS_UNSUPPORTED, "the kernel that is set by hand cannot compute this, or is wrong");
    if (right)
      tuner_leave(tuner);
    return;
  }
  if (!right)
    entry->variant.family = NULL;
  entry->state = right && entry->confirmed ? BOOK_TUNED : BOOK_SEEN;
  if (entry->state == BOOK_TUNED && tuner->ask == NULL)
    tuner_leave(tuner);
  else
    tuner->phase = PHASE_LIST;
}

static enum status work_given(struct tuner *tuner, struct error *error) {
  bool done = true, right = false;
  if (!tuner->given_failed && !tuner->comparing && tuner_proof_needed(tuner, &tuner->given, 0))
    return STATUS_OK;
  if (!tuner->given_failed && (tuner->comparing || begin_compare(tuner, &tuner->given))) {
    enum status status = compare(tuner, &done, &right, error);
    if (status != STATUS_OK)
      return status;
  }
  if (done)
    end_given(tuner, right);
  return STATUS_OK;
}

static enum status sample(struct tuner *tuner, const struct variant *variant, uint64_t *ns, struct error *error) {
  struct backend_job job = tuner->trial.job;
  const struct backend_timing timing = {.launches = tuner->launches};
  *ns = 0;
  job.variant = variant;
  uint64_t begin = clock_ns();
  enum status status = tuner->options.ops->measure(tuner->options.backend, &job, tuner->current->weights,
                                                   tuner->current->weight_count, &timing, ns, error);
  tuner->sample_ns = clock_ns() - begin;
  return status;
}

/* How many launches make a sample is found by the backend's own choice: first one, then as many as that says. Fewer
 * would measure how a sample starts, and other numbers for some candidates than for others would not compare. */
static enum status calibrate(struct tuner *tuner, struct error *error) {
  struct error failure;
  uint64_t ns;
  enum status status = sample(tuner, &tuner->race.candidates[0].variant, &ns, &failure);
  if (status == STATUS_OK)
    tuner->launch_ns = ns > 0 ? ns : 1;
  if (status == STATUS_DEVICE_LOST)
    *error = failure;
  tuner->calibrated++;
  return status == STATUS_DEVICE_LOST ? status : STATUS_OK;
}

static enum status time_one(struct tuner *tuner, int who, struct error *error) {
  struct error failure;
  uint64_t ns;
  enum status status = sample(tuner, &tuner->race.candidates[who].variant, &ns, &failure);
  if (status == STATUS_DEVICE_LOST) {
    *error = failure;
    return status;
  }
  if (status == STATUS_OK)
    race_timed(&tuner->race, who, ns);
  else
    race_failed(&tuner->race, who);
  return STATUS_OK;
}

static enum status work_race(struct tuner *tuner, struct error *error) {
  bool done = false, right = false;
  if (tuner->comparing) {
    enum status status = compare(tuner, &done, &right, error);
    if (status == STATUS_OK && done)
      race_checked(&tuner->race, tuner->compared, right);
    return status;
  }
  if (tuner->calibrated < CALIBRATIONS)
    return calibrate(tuner, error);
  struct race_step step = race_next(&tuner->race);
  switch (step.verb) {
  case RACE_CHECK:
    if (tuner_proof_needed(tuner, &tuner->race.candidates[step.who].variant, step.who))
      return STATUS_OK;
    tuner->compared = step.who;
    tuner->checked++;
    if (!begin_compare(tuner, &tuner->race.candidates[step.who].variant))
      race_checked(&tuner->race, step.who, false);
    return STATUS_OK;
  case RACE_TIME:
    return time_one(tuner, step.who, error);
  case RACE_REFINE:
    tuner_race_refine(tuner);
    return STATUS_OK;
  case RACE_OVER:
    tuner_race_end(tuner);
    return STATUS_OK;
  }
  return STATUS_OK;
}

enum status tuner_work(struct tuner *tuner, struct error *error) {
  bool ready;
  enum status status = STATUS_OK;
  switch (tuner->phase) {
  case PHASE_PREPARE:
    status = trial_prepare(&tuner->trial, &ready, error);
    if (status == STATUS_OK && ready)
      tuner->phase = PHASE_OWN;
    break;
  case PHASE_OWN:
    status = work_own(tuner, error);
    break;
  case PHASE_GIVEN:
    status = work_given(tuner, error);
    break;
  case PHASE_LIST:
    tuner_race_begin(tuner);
    break;
  case PHASE_RACE:
    status = work_race(tuner, error);
    break;
  case PHASE_LIBRARY: /* tuner_step's */
  case PHASE_PROOF:
    break;
  }
  if (status == STATUS_OK || status == STATUS_DEVICE_LOST)
    return status;
  tuner_give_up(tuner, status, error->text);
  return STATUS_OK;
}
