#include "tuner_shape.h"

#include "tuner_current.h"
#include "tuner_proof.h"
#include "tuner_publish.h"
#include "tuner_race.h"
#include "tuner_saves.h"

enum { CALIBRATIONS = 2 };

/* Begins to compare; false, with the reason, where the backend does not take the variant. */
static bool begin_compare(struct tuner *tuner, struct variant *variant, struct error *error) {
  if (variant->family != NULL && tuner->options.ops->variant_check(tuner->options.backend, &tuner->current->problem,
                                                                   variant, NULL, error) != STATUS_OK)
    return false;
  if (variant->family != NULL)
    tuner_note(tuner, tuner->current, variant);
  trial_compare(&tuner->trial, variant);
  tuner->comparing = true;
  return true;
}

/* A piece of the comparison that has begun. *done: it is over. */
static enum status compare(struct tuner *tuner, bool *done, bool *right, struct error *error) {
  char why[128];
  const struct trial *trial = &tuner->trial;
  enum status status = trial_compare_next(&tuner->trial, done, right, why, sizeof why, error);
  if (status != STATUS_OK || !*done)
    return status;
  tuner_end_compare(tuner, tuner->current);
  if (tuner->phase == PHASE_RACE && !trial->failed)
    tune_table_compared(&tuner->table, tuner->compared, trial->error, OPERANDS_KINDS);
  if (tuner->phase == PHASE_RACE && !*right)
    tune_table_note(&tuner->table, tuner->compared, trial->failed ? OUTCOME_FAILED : OUTCOME_WRONG, why);
  if (!*right && trial->variant.family != NULL)
    tuner_blame(tuner, &trial->variant, why);
  return STATUS_OK;
}

static enum status work_own(struct tuner *tuner, struct error *error) {
  bool done, right;
  struct variant own = {.family = NULL};
  struct book_entry *entry = tuner->current;
  if (!tuner->comparing)
    (void)begin_compare(tuner, &own, error);
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
  struct error refusal;
  if (!tuner->given_failed && !tuner->comparing && tuner_proof_needed(tuner, &tuner->given, 0))
    return STATUS_OK;
  if (!tuner->given_failed && (tuner->comparing || begin_compare(tuner, &tuner->given, &refusal))) {
    enum status status = compare(tuner, &done, &right, error);
    if (status != STATUS_OK)
      return status;
  }
  if (done)
    end_given(tuner, right);
  return STATUS_OK;
}

/* As products run, the worker's and those of direct clients: behind the quantizer, which makes x while the kernel
 * begins to read W, or after another product. A kernel that is fastest alone need not be so there. */
static enum status sample(struct tuner *tuner, const struct variant *variant, uint32_t launches, uint64_t *ns,
                          struct error *error) {
  struct backend_job job = tuner->trial.job;
  const struct backend_timing timing = {.launches = launches, .quantize = true, .cold = true, .dependent = true};
  *ns = 0;
  job.variant = variant;
  uint64_t begin = clock_ns();
  const struct trial *trial = &tuner->trial;
  size_t count = job.operand != NULL ? trial->copies : tuner->current->weight_count;
  enum status status =
      tuner->options.ops->measure(tuner->options.backend, &job, tuner->current->weights, count, &timing, ns, error);
  tuner->sample_ns = clock_ns() - begin;
  return status;
}

/* How many launches make a sample is found by the backend's own choice: first one, then as many as that says. Fewer
 * would measure how a sample starts, and other numbers for some candidates than for others would not compare. */
static enum status calibrate(struct tuner *tuner, struct error *error) {
  struct error failure;
  uint64_t ns;
  enum status status = sample(tuner, &tuner->race.candidates[0].variant, tuner->launches, &ns, &failure);
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
  const struct race_candidate *candidate = &tuner->race.candidates[who];
  uint32_t warmup = tuner->ask != NULL && candidate->count == 0 ? tuner->ask->tune->warmup : 0;
  enum status status = STATUS_OK;
  if (warmup > 0)
    status = sample(tuner, &candidate->variant, warmup, &ns, &failure);
  if (status == STATUS_OK)
    status = sample(tuner, &candidate->variant, tuner->launches, &ns, &failure);
  if (status == STATUS_DEVICE_LOST) {
    *error = failure;
    return status;
  }
  if (status == STATUS_OK) {
    race_timed(&tuner->race, who, ns);
  } else {
    tune_table_note(&tuner->table, who, OUTCOME_FAILED, failure.text);
    race_failed(&tuner->race, who);
  }
  return STATUS_OK;
}

/* Compares the candidate, where the backend takes it. */
static void begin_check(struct tuner *tuner, int who) {
  struct variant *variant = &tuner->race.candidates[who].variant;
  struct error refusal;
  tuner->compared = who;
  tuner->checked++;
  if (begin_compare(tuner, variant, &refusal)) {
    tuner_note_needs(tuner, who);
    return;
  }
  tune_table_note(&tuner->table, who, OUTCOME_REFUSED, refusal.text);
  race_checked(&tuner->race, who, false);
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
    begin_check(tuner, step.who);
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
