#include "race.h"

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
  /* The same where another race follows. */
  BRIEF_SAMPLES = 2,
  BRIEF_ROUNDS = 3,
  BRIEF_ROUNDS_MOST = 12,
  BRIEF_REFINEMENTS = 2,
  FINALS_MOST = 3,
  REFINEMENTS_MOST = 3,
};
/* Against what serves, and against another that has beaten that. */
#define WIN_LEAST 0.02
#define WIN_LEAST_NEXT 0.01
/* Standard errors by which a final is won at once, and after its last round: chance is at its best in a few samples. */
#define WIN_ERRORS_AT_ONCE 6
#define WIN_ERRORS 3
/* Slower than the fastest by this factor after a heat: out, however many are left. */
#define HOPELESS 1.25
/* The same after one sample, or as many as were asked for, where nobody leaves otherwise. */
#define FAR_BEHIND 8

void race_start(struct race *race, const struct variant *first, bool all) {
  race->count = 1;
  race->candidates[0] = (struct race_candidate){.variant = *first, .state = RACE_UNCHECKED};
  race->all = all;
  race->brief = false;
  race->iterations = 0;
  race->hurry = race->final = race->over = false;
  race->heat = race->refinements = 0;
  race->fastest = UINT64_MAX;
  race->gain = 1;
  race->challenger = race->winner = race->finals = 0;
  race->guest = -1;
  race->guest_met = false;
  race->final_rounds = race->final_turn = 0;
}

void race_reopen(struct race *race) {
  for (int i = 1; i < race->count; i++)
    if (race->candidates[i].state == RACE_RUNNING && i != race->winner)
      race->candidates[i].state = RACE_OUT;
  race->hurry = race->final = race->over = race->guest_met = false;
  race->heat = race->finals = race->refinements = 0;
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

/* Their lower quartile, of samples in order: of three the least; 0 where there is none. */
static uint64_t low_of(const uint64_t samples[RACE_SAMPLES], int count) {
  return count == 0 ? 0 : samples[(count - 1) / 4];
}

static uint64_t low_quartile(const struct race_candidate *candidate) {
  uint64_t samples[RACE_SAMPLES];
  int count = sorted(candidate, samples);
  return low_of(samples, count);
}

double race_spread(const struct race_candidate *candidate) {
  uint64_t samples[RACE_SAMPLES];
  int count = sorted(candidate, samples);
  if (count < 2)
    return 0;
  double low = (double)low_of(samples, count), high = (double)samples[count - 1 - (count - 1) / 4];
  uint64_t median = race_median(candidate);
  return median == 0 ? 0 : (high - low) / 2 / (double)median;
}

/* Of the median, relative to it: 1.2533 sigma / sqrt(n), and sigma is the distance of the lower quartile / 0.6745. The
 * upper one would tell of accidents, which the median is safe from until they are half of the samples. */
static double standard_error(const struct race_candidate *candidate) {
  uint32_t count = candidate->count < RACE_SAMPLES ? candidate->count : RACE_SAMPLES;
  double median = (double)race_median(candidate);
  return 1.2533 / 0.6745 * (median - (double)low_quartile(candidate)) / median / sqrt(count);
}

/* True where b is faster than a by more than `least` (0.02: 2 %) and by more than so many standard errors of the
 * difference of their medians, and its lower quartile is less, too; *gain is 1 - b / a of the medians. */
static bool beats(const struct race_candidate *a, const struct race_candidate *b, double least, double errors,
                  double *gain) {
  double slow = (double)race_median(a), fast = (double)race_median(b);
  if (slow <= 0 || fast <= 0) {
    *gain = 0;
    return false;
  }
  *gain = 1 - fast / slow;
  double noise = errors * hypot(standard_error(a), standard_error(b));
  return *gain > least && *gain > noise && low_quartile(b) < low_quartile(a);
}

/* The best few by `figure`. */
static int ranked(const struct race *race, uint64_t (*figure)(const struct race_candidate *candidate), int *who,
                  int most) {
  uint64_t figures[RACE_MOST]; /* of who[] */
  int count = 0;
  for (int i = 0; i < race->count; i++) {
    uint64_t ns = figure(&race->candidates[i]);
    if (ns == 0 || race->candidates[i].state == RACE_WRONG)
      continue;
    int place = count < most ? count++ : most;
    for (; place > 0 && figures[place - 1] > ns; place--)
      if (place < most) {
        who[place] = who[place - 1];
        figures[place] = figures[place - 1];
      }
    if (place < most) {
      who[place] = i;
      figures[place] = ns;
    }
  }
  return count;
}

int race_best(const struct race *race, int *who, int most) {
  return ranked(race, race_median, who, most);
}

int race_ahead(const struct race *race, int *who, int most) {
  return ranked(race, low_quartile, who, most);
}

/* ---- heats */

static int running(const struct race *race) {
  int count = 0;
  for (int i = 1; i < race->count; i++)
    count += race->candidates[i].state == RACE_RUNNING;
  return count;
}

/* The backend is asked for variants of the best ones, and again where one of those leads that it came with then. */
static bool to_refine(const struct race *race) {
  int leader;
  if (race->refinements == 0)
    return true;
  return race->refinements < (race->brief ? BRIEF_REFINEMENTS : REFINEMENTS_MOST) && !race->all &&
         race_ahead(race, &leader, 1) == 1 && leader >= race->known;
}

/* Whether there is somebody for the winner to meet in a final. */
static bool challenged(const struct race *race) {
  for (int i = 1; i < race->count; i++)
    if (i != race->winner && race->candidates[i].state == RACE_RUNNING)
      return true;
  return false;
}

/* Who is left when others like it are to be asked for needs no more to be among the best; more samples would decide
 * nothing. */
static uint32_t deciding(const struct race *race) {
  if (race->all)
    return ALL_SAMPLES;
  uint32_t first = race->brief ? BRIEF_SAMPLES : FIRST_SAMPLES;
  if (running(race) <= FINALISTS && to_refine(race))
    return first;
  uint32_t samples = first << race->heat;
  return samples < RACE_SAMPLES / 2 ? samples : RACE_SAMPLES / 2;
}

/* Of each candidate in this heat. */
static uint32_t wanted(const struct race *race) {
  uint32_t samples = deciding(race);
  return race->hurry ? 1 : samples > race->iterations ? samples : race->iterations;
}

static int first_of(const struct race *race, enum race_state state) {
  for (int i = 0; i < race->count; i++)
    if (race->candidates[i].state == state)
      return i;
  return -1;
}

static bool far_behind(const struct race *race, const struct race_candidate *candidate) {
  return race->all && candidate->count > 0 && candidate->count >= race->iterations &&
         candidate->samples[0] / FAR_BEHIND > race->fastest;
}

/* Whoever runs and has fewest samples; -1 where all have what this heat wants. */
static int to_time(const struct race *race) {
  uint32_t samples = wanted(race);
  int who = -1;
  for (int i = 0; i < race->count; i++) {
    const struct race_candidate *candidate = &race->candidates[i];
    if (candidate->state == RACE_RUNNING && candidate->count < samples && !far_behind(race, candidate) &&
        (who < 0 || candidate->count < race->candidates[who].count))
      who = i;
  }
  return who;
}

/* The fastest third stays, and of that who is not hopeless. Replayed over the times of 74 searches on an H200 a third
 * misses the best as seldom as half of them does, with a quarter of the samples less. */
static void eliminate(struct race *race) {
  int order[RACE_MOST], keep = (running(race) + 2) / 3;
  int count = race_ahead(race, order, RACE_MOST), kept = 0;
  keep = keep < FINALISTS ? FINALISTS : keep;
  uint64_t fastest = count > 0 ? low_quartile(&race->candidates[order[0]]) : 0;
  for (int i = 0; i < count; i++) {
    struct race_candidate *candidate = &race->candidates[order[i]];
    if (order[i] == 0 || candidate->state != RACE_RUNNING)
      continue;
    if (kept++ >= keep || (double)low_quartile(candidate) > HOPELESS * (double)fastest)
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
    uint64_t low = low_quartile(&race->candidates[i]);
    if (race->candidates[i].state == RACE_RUNNING && i != race->winner && low > 0 && low < fastest) {
      best = i;
      fastest = low;
    }
  }
  return best;
}

static double win_least(const struct race *race) {
  return race->winner == 0 ? WIN_LEAST : WIN_LEAST_NEXT;
}

/* Against a winner of a final only who seemed faster in the heats. */
static void start_final(struct race *race) {
  int challenger = next_challenger(race);
  bool worth = challenger >= 0 && race->finals < FINALS_MOST &&
               (race->finals == 0 || (double)low_quartile(&race->candidates[challenger]) <
                                         (1 - win_least(race)) * (double)low_quartile(&race->candidates[race->winner]));
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

/* Whether the final is decided. A gain that is worth having but not sure yet gets more rounds, and so does one that
 * undisturbed samples promise against the median. */
static bool decided(struct race *race) {
  const struct race_candidate *winner = &race->candidates[race->winner];
  const struct race_candidate *challenger = &race->candidates[race->challenger];
  uint32_t asked = (race->iterations + 1) / 2; /* rounds of two samples each */
  uint32_t least_rounds = race->brief ? BRIEF_ROUNDS : FINAL_ROUNDS;
  uint32_t most = race->brief ? BRIEF_ROUNDS_MOST : FINAL_ROUNDS_MOST;
  bool last = race->final_rounds >= most && race->final_rounds >= asked;
  double gain;
  if (race->final_turn > 0 || race->final_rounds < least_rounds || race->final_rounds < asked)
    return false;
  double least = win_least(race);
  bool wins = beats(winner, challenger, least, last ? WIN_ERRORS : WIN_ERRORS_AT_ONCE, &gain);
  double promised = 1 - (double)low_quartile(challenger) / (double)low_quartile(winner);
  if (!wins && !last && (gain > least || promised > 2 * least))
    return false;
  if (wins)
    race->gain *= (double)race_median(winner) / (double)race_median(challenger);
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
    int unchecked = race->hurry && challenged(race) ? -1 : first_of(race, RACE_UNCHECKED);
    if (unchecked >= 0)
      return (struct race_step){.verb = RACE_CHECK, .who = unchecked};
    int who = to_time(race);
    if (who >= 0)
      return (struct race_step){.verb = RACE_TIME, .who = who};
    if (!race->hurry && !race->all && running(race) > FINALISTS)
      eliminate(race);
    else if (!race->hurry && to_refine(race)) {
      race->known = race->count;
      return (struct race_step){.verb = RACE_REFINE, .who = 0};
    } else
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
    race->gain = who == race->winner ? 1 : race->gain;
    race->winner = who == race->winner ? 0 : race->winner;
  }
}

/* Who has come begins as the others did. */
void race_refined(struct race *race) {
  race->refinements++;
  race->heat = 0;
}

void race_hurry(struct race *race) {
  race->hurry = true;
}
