#include "tune_race.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  FINALISTS = 3, /* that are left when the heats end */
  /* Of each candidate in the first heat, so that one accident is not its median; twice as many, summed up, in each
   * further one. */
  FIRST_SAMPLES = 3,
  ALL_SAMPLES = 8,  /* where nobody leaves the heats */
  FINAL_ROUNDS = 6, /* of the final at least */
  FINAL_ROUNDS_MOST = 24,
  FINALS_MOST = 3,
};
#define WIN_LEAST 0.02
/* Slower than the fastest by this factor after a heat: out, however many are left. */
#define HOPELESS 1.25
/* The same after one sample, where nobody leaves otherwise. */
#define FAR_BEHIND 8

void race_start(struct race *race, const struct variant *first, bool all) {
  race->count = 1;
  race->candidates[0] = (struct race_candidate){.variant = *first, .state = RACE_UNCHECKED};
  race->all = all;
  race->refined = race->hurry = race->final = race->over = false;
  race->heat = 0;
  race->fastest = UINT64_MAX;
  race->challenger = race->winner = race->finals = 0;
  race->guest = -1;
  race->guest_met = false;
  race->final_rounds = race->final_turn = 0;
}

void race_reopen(struct race *race) {
  for (int i = 1; i < race->count; i++)
    if (race->candidates[i].state == RACE_RUNNING && i != race->winner)
      race->candidates[i].state = RACE_OUT;
  race->refined = race->hurry = race->final = race->over = race->guest_met = false;
  race->heat = race->finals = 0;
  race->challenger = race->winner;
}

bool race_add(struct race *race, const struct variant *variant) {
  for (int i = 0; i < race->count; i++)
    if (variant_equal(&race->candidates[i].variant, variant))
      return true;
  if (race->count == RACE_MOST)
    return false;
  race->candidates[race->count++] = (struct race_candidate){.variant = *variant, .state = RACE_UNCHECKED};
  return true;
}

void race_invite(struct race *race, const struct variant *variant) {
  if (!race_add(race, variant))
    return;
  for (int i = 0; i < race->count; i++)
    if (variant_equal(&race->candidates[i].variant, variant))
      race->guest = i;
}

/* ---- figures */

static int by_size(const void *left, const void *right) {
  uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
  return (a > b) - (a < b);
}

static int sorted(const struct race_candidate *candidate, uint64_t out[RACE_SAMPLES]) {
  int count = candidate->count < RACE_SAMPLES ? (int)candidate->count : RACE_SAMPLES;
  memcpy(out, candidate->samples, (size_t)count * sizeof *out);
  qsort(out, (size_t)count, sizeof *out, by_size);
  return count;
}

uint64_t race_median(const struct race_candidate *candidate) {
  uint64_t samples[RACE_SAMPLES];
  int count = sorted(candidate, samples);
  return count == 0 ? 0 : (samples[(count - 1) / 2] + samples[count / 2]) / 2;
}

double race_spread(const struct race_candidate *candidate) {
  uint64_t samples[RACE_SAMPLES];
  int count = sorted(candidate, samples);
  if (count < 2)
    return 0;
  double low = (double)samples[(count - 1) / 4], high = (double)samples[count - 1 - (count - 1) / 4];
  uint64_t median = race_median(candidate);
  return median == 0 ? 0 : (high - low) / 2 / (double)median;
}

/* Of the median, relative to it: 1.2533 sigma / sqrt(n), and sigma is half the distance of the quartiles / 0.6745. */
static double standard_error(const struct race_candidate *candidate) {
  uint32_t count = candidate->count < RACE_SAMPLES ? candidate->count : RACE_SAMPLES;
  return 1.2533 / 0.6745 * race_spread(candidate) / sqrt(count);
}

bool race_beats(const struct race_candidate *a, const struct race_candidate *b, double least, double *gain) {
  double slow = (double)race_median(a), fast = (double)race_median(b);
  if (slow <= 0 || fast <= 0) {
    *gain = 0;
    return false;
  }
  *gain = 1 - fast / slow;
  double noise = 3 * hypot(standard_error(a), standard_error(b));
  return *gain > least && *gain > noise;
}

int race_best(const struct race *race, int *who, int most) {
  int count = 0;
  for (int i = 0; i < race->count; i++) {
    uint64_t median = race_median(&race->candidates[i]);
    if (median == 0 || race->candidates[i].state == RACE_WRONG)
      continue;
    int place = count < most ? count++ : most;
    while (place > 0 && race_median(&race->candidates[who[place - 1]]) > median) {
      if (place < most)
        who[place] = who[place - 1];
      place--;
    }
    if (place < most)
      who[place] = i;
  }
  return count;
}

/* ---- heats */

static int running(const struct race *race) {
  int count = 0;
  for (int i = 1; i < race->count; i++)
    count += race->candidates[i].state == RACE_RUNNING;
  return count;
}

static uint32_t wanted(const struct race *race) {
  if (race->all)
    return ALL_SAMPLES;
  uint32_t samples = FIRST_SAMPLES << race->heat;
  return samples < RACE_SAMPLES / 2 ? samples : RACE_SAMPLES / 2;
}

static int first_of(const struct race *race, enum race_state state) {
  for (int i = 0; i < race->count; i++)
    if (race->candidates[i].state == state)
      return i;
  return -1;
}

static bool far_behind(const struct race *race, const struct race_candidate *candidate) {
  return race->all && candidate->count > 0 && candidate->samples[0] / FAR_BEHIND > race->fastest;
}

/* Whoever runs and has fewest samples; -1 where all have what this heat wants. */
static int to_time(const struct race *race) {
  int who = -1;
  for (int i = 0; i < race->count; i++) {
    const struct race_candidate *candidate = &race->candidates[i];
    if (candidate->state == RACE_RUNNING && candidate->count < wanted(race) && !far_behind(race, candidate) &&
        (who < 0 || candidate->count < race->candidates[who].count))
      who = i;
  }
  return who;
}

/* The fastest third stays, and of that who is not hopeless. Replayed over the times of 74 searches on an H200 a third
 * misses the best as seldom as half of them does, with a quarter of the samples less. */
static void eliminate(struct race *race) {
  int order[RACE_MOST], keep = (running(race) + 2) / 3;
  int count = race_best(race, order, RACE_MOST), kept = 0;
  keep = keep < FINALISTS ? FINALISTS : keep;
  uint64_t fastest = count > 0 ? race_median(&race->candidates[order[0]]) : 0;
  for (int i = 0; i < count; i++) {
    struct race_candidate *candidate = &race->candidates[order[i]];
    if (order[i] == 0 || candidate->state != RACE_RUNNING)
      continue;
    if (kept++ >= keep || (double)race_median(candidate) > HOPELESS * (double)fastest)
      candidate->state = RACE_OUT;
  }
  race->heat++;
}

static void clear_samples(struct race_candidate *candidate) {
  candidate->count = 0;
}

/* The fastest that runs and has not been in a final; -1 where there is none. */
static int next_challenger(const struct race *race) {
  int best = -1;
  uint64_t fastest = UINT64_MAX;
  for (int i = 1; i < race->count; i++) {
    uint64_t median = race_median(&race->candidates[i]);
    if (race->candidates[i].state == RACE_RUNNING && i != race->winner && median > 0 && median < fastest) {
      best = i;
      fastest = median;
    }
  }
  return best;
}

/* Against a winner of a final only who seemed faster in the heats. */
static void start_final(struct race *race) {
  int challenger = next_challenger(race);
  bool worth = challenger >= 0 && race->finals < FINALS_MOST &&
               (race->finals == 0 || (double)race_median(&race->candidates[challenger]) <
                                         (1 - WIN_LEAST) * (double)race_median(&race->candidates[race->winner]));
  race->final = true;
  if (!worth && !race->guest_met && race->guest > 0 && race->guest != race->winner && race->guest != race->challenger &&
      race->candidates[race->guest].count > 0) {
    worth = race->guest_met = true;
    challenger = race->guest;
  }
  race->over = !worth;
  if (!worth)
    return;
  race->finals++;
  race->final_rounds = race->final_turn = 0;
  race->challenger = challenger;
  clear_samples(&race->candidates[race->winner]);
  clear_samples(&race->candidates[challenger]);
}

/* ---- final */

/* Whether the final is decided. A gain that is worth having but not sure yet gets more rounds. */
static bool decided(struct race *race) {
  double gain;
  if (race->final_turn > 0 || race->final_rounds < FINAL_ROUNDS)
    return false;
  bool wins = race_beats(&race->candidates[race->winner], &race->candidates[race->challenger], WIN_LEAST, &gain);
  if (!wins && gain > WIN_LEAST && race->final_rounds < FINAL_ROUNDS_MOST)
    return false;
  race->candidates[wins ? race->winner : race->challenger].state = RACE_OUT;
  race->winner = wins ? race->challenger : race->winner;
  return true;
}

static struct race_step next_in_final(struct race *race) {
  static const bool challenges[] = {false, true, true, false};
  if (race->final_turn == sizeof challenges / sizeof *challenges) {
    race->final_turn = 0;
    race->final_rounds++;
  }
  if (decided(race))
    start_final(race);
  if (race->over)
    return (struct race_step){.verb = RACE_OVER, .who = race->winner};
  return (struct race_step){.verb = RACE_TIME, .who = challenges[race->final_turn++] ? race->challenger : race->winner};
}

struct race_step race_next(struct race *race) {
  while (!race->over && !race->final) {
    int unchecked = race->hurry ? -1 : first_of(race, RACE_UNCHECKED);
    if (unchecked >= 0)
      return (struct race_step){.verb = RACE_CHECK, .who = unchecked};
    int who = race->hurry ? -1 : to_time(race);
    if (who >= 0)
      return (struct race_step){.verb = RACE_TIME, .who = who};
    if (!race->hurry && !race->all && running(race) > FINALISTS)
      eliminate(race);
    else if (!race->hurry && !race->refined)
      return (struct race_step){.verb = RACE_REFINE, .who = 0};
    else
      start_final(race);
  }
  if (race->over)
    return (struct race_step){.verb = RACE_OVER, .who = race->winner};
  return next_in_final(race);
}

void race_checked(struct race *race, int who, bool right) {
  race->candidates[who].state = right ? RACE_RUNNING : RACE_WRONG;
}

void race_timed(struct race *race, int who, uint64_t ns) {
  struct race_candidate *candidate = &race->candidates[who];
  candidate->samples[candidate->count++ % RACE_SAMPLES] = ns > 0 ? ns : 1;
  race->fastest = ns > 0 && ns < race->fastest ? ns : race->fastest;
}

void race_failed(struct race *race, int who) {
  race->candidates[who].state = RACE_WRONG;
  if (race->final) {
    race->over = true;
    race->winner = who == race->winner ? 0 : race->winner;
  }
}

void race_refined(struct race *race) {
  race->refined = true;
}

void race_hurry(struct race *race) {
  race->hurry = true;
}
