#include "tuner_proof.h"

#include "../../log.h"
#include "tuner_current.h"

#include <stdio.h>

enum { NAP_NS = 5000000 };
/* For one kernel: compiling it, starting a device, and computing. */
#define PATIENCE_NS ((uint64_t)120 * 1000000000)
/* For quiet, of whoever has asked for an exhaustive search. */
#define DISTURBED_NS ((uint64_t)10 * 1000000000)

static bool in_race(const struct tuner *tuner, int who) {
  const struct race_candidate *candidate = &tuner->race.candidates[who];
  return candidate->state == RACE_UNCHECKED && !tuner->proven[who] &&
         tuner->options.ops->variant_foreign(&candidate->variant);
}

bool tuner_proof_needed(struct tuner *tuner, const struct variant *variant, int who) {
  const struct backend_ops *ops = tuner->options.ops;
  if (ops->variant_foreign == NULL || variant->family == NULL || !ops->variant_foreign(variant) || tuner->proven[who])
    return false;
  tuner->proof_for = tuner->phase;
  tuner->phase = PHASE_PROOF;
  return true;
}

/* The next that has no word yet, -1: none. */
static int next_unproven(const struct tuner *tuner) {
  if (tuner->proof_for == PHASE_GIVEN)
    return tuner->proven[0] || tuner->given_failed ? -1 : 0;
  for (int i = 1; i < tuner->race.count; i++)
    if (in_race(tuner, i))
      return i;
  return -1;
}

static const struct variant *variant_at(const struct tuner *tuner, int who) {
  return tuner->proof_for == PHASE_GIVEN ? &tuner->given : &tuner->race.candidates[who].variant;
}

static void blame(struct tuner *tuner, int who, enum tune_outcome outcome, const char *why) {
  tuner_blame(tuner, variant_at(tuner, who), why);
  if (tuner->proof_for == PHASE_RACE) {
    tune_table_note(&tuner->table, who, outcome, why);
    race_checked(&tuner->race, who, false);
  } else {
    tuner->given_failed = true;
  }
}

/* It is no worse than others, but for this device or problem. */
static void refuse(struct tuner *tuner, int who, const char *why) {
  if (tuner->proof_for != PHASE_RACE || tuner_by_hand(tuner, variant_at(tuner, who))) {
    blame(tuner, who, OUTCOME_REFUSED, why);
    return;
  }
  tune_table_note(&tuner->table, who, OUTCOME_REFUSED, why);
  race_checked(&tuner->race, who, false);
}

/* Nobody has named what is to be proven next: it is the tuner's own idea. */
static bool unnamed(const struct tuner *tuner) {
  int next = next_unproven(tuner);
  return tuner->proof_for == PHASE_RACE && tuner->compiled && next >= 0 &&
         !tuner_by_hand(tuner, variant_at(tuner, next));
}

/* Thousandths of a core. */
static uint32_t share_of(const struct tuner *tuner) {
  return unnamed(tuner) && tuner->ask == NULL && tuner->options.compile_share > 0 ? tuner->options.compile_share : 1000;
}

static uint64_t patience_ns(const struct tuner *tuner) {
  return PATIENCE_NS * 1000 / share_of(tuner);
}

/* Nothing can be said of any: none of them serves this time. */
static void pass_over(struct tuner *tuner, const char *why) {
  log_warning("new kernels cannot be tried: %s", why);
  if (tuner->ask != NULL)
    snprintf(tuner->ask->tune->why, sizeof tuner->ask->tune->why, "%.127s", why);
  if (tuner->proof_for == PHASE_GIVEN)
    tuner->given_failed = true;
  else
    for (int who = next_unproven(tuner); who >= 0; who = next_unproven(tuner)) {
      tune_table_note(&tuner->table, who, OUTCOME_UNTRIED, why);
      race_checked(&tuner->race, who, false);
    }
}

static void start(struct tuner *tuner, uint64_t now) {
  static struct variant list[RACE_MOST]; /* one tuner a process, one thread */
  struct error error;
  int count = 0;
  if (tuner->proof_for == PHASE_GIVEN)
    list[count++] = tuner->given;
  else
    for (int i = 1; i < tuner->race.count; i++)
      if (in_race(tuner, i))
        list[count++] = tuner->race.candidates[i].variant;
  tuner->proof_deadline_ns = now + patience_ns(tuner);
  tuner->proof_seen_ns = now;
  const struct proof_task task = {
      .problem = &tuner->current->problem, .list = list, .count = count, .share = share_of(tuner)};
  if (proof_start(&tuner->proof, tuner->options.prover, &task, &error) != STATUS_OK)
    pass_over(tuner, error.text);
}

/* A word on the next one. False where none has come. */
static bool hear(struct tuner *tuner, uint64_t now) {
  char why[PROOF_WHY_BYTES] = "";
  bool ended = tuner->proof.ending;
  int who = next_unproven(tuner);
  switch (proof_next(&tuner->proof, why)) {
  case PROOF_NOTHING:
    return false;
  case PROOF_RIGHT:
    tuner->proven[who] = true;
    break;
  case PROOF_WRONG:
    blame(tuner, who, OUTCOME_WRONG, why);
    break;
  case PROOF_REFUSED:
    refuse(tuner, who, why);
    break;
  case PROOF_CANNOT:
    proof_stop(&tuner->proof);
    pass_over(tuner, why);
    break;
  case PROOF_END:
    if (!ended)
      blame(tuner, who, OUTCOME_FAILED, why);
    break;
  }
  tuner->proof_deadline_ns = now + patience_ns(tuner);
  return true;
}

/* Whether whoever asked for all of it has waited long enough for quiet; who has named a kernel waits for that. */
static bool disturbed(struct tuner *tuner, uint64_t now) {
  if (tuner->ask == NULL || !unnamed(tuner))
    return false;
  if (tuner->disturbed_ns == 0)
    tuner->disturbed_ns = now;
  tuner->interrupted = now - tuner->disturbed_ns > DISTURBED_NS;
  return tuner->interrupted;
}

/* Returns what has been spent on the shape. */
static uint64_t spend(struct tuner *tuner, uint64_t now) {
  tuner->current->compile_ns += now - tuner->proof_seen_ns;
  tuner->proof_seen_ns = now;
  return tuner->current->compile_ns;
}

uint64_t tuner_proof_step(struct tuner *tuner, uint64_t now, bool quiet) {
  if (!quiet) {
    proof_stop(&tuner->proof);
    if (disturbed(tuner, now)) {
      pass_over(tuner, "requests come while kernels are compiled");
      tuner->phase = tuner->proof_for;
      return 0;
    }
    return tuner->last_request_ns + tuner->options.quiet_ns - now;
  }
  if (next_unproven(tuner) < 0) {
    proof_stop(&tuner->proof); /* it has nothing more to say */
    tuner->phase = tuner->proof_for;
    return 0;
  }
  if (tuner->proof.pid == 0) {
    start(tuner, now);
    return NAP_NS;
  }
  if (hear(tuner, now))
    return 0;
  if (unnamed(tuner) && !tuner->proof.ending && spend(tuner, now) > tuner->options.compile_ns) {
    proof_stop(&tuner->proof);
    pass_over(tuner, "tune_compile_ms is spent");
    return 0;
  }
  if (now > tuner->proof_deadline_ns && !tuner->proof.ending) {
    blame(tuner, next_unproven(tuner), OUTCOME_FAILED, "it does not come to an end");
    proof_stop(&tuner->proof);
  }
  return NAP_NS;
}
