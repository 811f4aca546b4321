#include "tuner_state.h"

#include "../log.h"

#include <string.h>

enum {
  CANDIDATES = 56, /* that a search begins with */
  BASES = 3,       /* the best ones that are refined */
};

void tuner_race_begin(struct tuner *tuner) {
  static struct variant list[RACE_MOST]; /* one tuner a process, one thread */
  struct book_entry *entry = tuner->current;
  const struct tune_request *request = tuner->ask != NULL ? tuner->ask->tune : NULL;
  bool all = request != NULL && request->all;
  uint64_t begin = tuner_clock_ns();
  int count = tuner->options.ops->variants(tuner->options.backend, &entry->problem, NULL, all, list,
                                           all ? RACE_MOST : CANDIDATES);
  struct variant hand;
  struct error ignored;
  uint64_t took = tuner_clock_ns() - begin;
  tuner->list_ns = tuner->list_ns == TUNER_UNKNOWN_NS || took > tuner->list_ns ? took : tuner->list_ns;
  tuner->phase = PHASE_RACE;
  race_start(&tuner->race, &list[0], all);
  memset(tuner->proven, 0, sizeof tuner->proven);
  tuner->race.candidates[0].state = RACE_RUNNING; /* PHASE_OWN has compared it */
  if (entry->variant.family != NULL && !book_is_wrong(entry, &entry->variant))
    race_add(&tuner->race, &entry->variant);
  if (request != NULL && request->text[0] != '\0' &&
      variant_parse(tuner->options.ops->families, request->text, &hand, &ignored) == STATUS_OK)
    race_invite(&tuner->race, &hand);
  for (int i = 1; i < count; i++)
    if (!book_is_wrong(entry, &list[i]))
      race_add(&tuner->race, &list[i]);
}

/* The best ones so far, and what was asked for by hand. */
void tuner_race_refine(struct tuner *tuner) {
  static struct variant list[RACE_MOST];
  int best[BASES + 1], bases = race_best(&tuner->race, best, BASES), guest = tuner->race.guest;
  bool among = guest < 0 || race_median(&tuner->race.candidates[guest]) == 0;
  for (int b = 0; b < bases; b++)
    among |= best[b] == guest;
  if (!among)
    best[bases++] = guest;
  for (int b = 0; b < bases; b++) {
    struct variant base = tuner->race.candidates[best[b]].variant;
    int count = tuner->options.ops->variants(tuner->options.backend, &tuner->current->problem, &base, tuner->race.all,
                                             list, tuner->race.all ? RACE_MOST : CANDIDATES);
    for (int i = 0; i < count; i++)
      if (!book_is_wrong(tuner->current, &list[i]))
        race_add(&tuner->race, &list[i]);
  }
  race_refined(&tuner->race);
}

static void add_result(const struct tuner *tuner, struct tune_request *request, int who) {
  const struct race *race = &tuner->race;
  const struct race_candidate *candidate = &race->candidates[who];
  char kernel[VARIANT_TEXT_BYTES];
  variant_text(&candidate->variant, kernel);
  for (uint32_t i = 0; i < request->count; i++)
    if (strcmp(request->results[i].kernel, kernel) == 0)
      return;
  struct tune_result *result = &request->results[request->count++];
  memcpy(result->kernel, kernel, sizeof result->kernel);
  result->ns = race_median(candidate);
  result->spread = race_spread(candidate);
  result->samples = candidate->count;
  result->own = who == 0;
  result->hand = tuner_by_hand(tuner, &candidate->variant);
}

/* The first of a library in the backend's order; the backend's own choice may be that one. */
static uint64_t library_first_ns(const struct race *race) {
  for (int i = 0; i < race->count; i++)
    if (race->candidates[i].variant.family->library && race_median(&race->candidates[i]) > 0)
      return race_median(&race->candidates[i]);
  return 0;
}

static void fill_results(struct tuner *tuner, struct tune_request *request) {
  const struct race *race = &tuner->race;
  const struct book_entry *entry = tuner->current;
  int best[TUNE_RESULTS], count = race_best(race, best, TUNE_RESULTS - 3), by_hand = -1;
  for (int i = 1; i < race->count && request->text[0] != '\0'; i++)
    by_hand = tuner_by_hand(tuner, &race->candidates[i].variant) ? i : by_hand;
  request->count = 0;
  add_result(tuner, request, race->winner);
  for (int i = 0; i < count; i++)
    add_result(tuner, request, best[i]);
  add_result(tuner, request, 0);
  if (by_hand >= 0)
    add_result(tuner, request, by_hand);
  request->checked = tuner->checked;
  request->timed = tuner->timed;
  request->wrong = entry->wrong_count;
  request->spent_ns = tuner->spent_ns;
  request->roof_ns = book_roof_ns(&entry->problem, tuner->bytes_per_s, tuner->operations_per_s);
  request->library_first_ns = library_first_ns(race);
  request->library_ns = entry->library_ns;
  variant_text(&race->candidates[race->winner].variant, request->kernel);
}

void tuner_race_end(struct tuner *tuner) {
  const struct race *race = &tuner->race;
  struct book_entry *entry = tuner->current;
  const struct race_candidate *winner = &race->candidates[race->winner];
  char shape[VARIANT_TEXT_BYTES], kernel[VARIANT_TEXT_BYTES];
  entry->own_ns = race_median(&race->candidates[0]);
  entry->tuned_ns = race_median(winner);
  entry->library_ns = 0;
  for (int i = 0; i < race->count; i++) {
    uint64_t ns = race->candidates[i].variant.family->library ? race_median(&race->candidates[i]) : 0;
    if (ns > 0 && (entry->library_ns == 0 || ns < entry->library_ns))
      entry->library_ns = ns;
  }
  /* The order matters to products that are prepared between: none is, this is the engine's thread. */
  entry->variant = winner->variant;
  entry->serves = race->winner != 0;
  entry->state = BOOK_TUNED;
  entry->confirmed = true;
  log_info("tuned %s: %s, %llu ns where the first choice takes %llu", variant_problem_text(&entry->problem, shape),
           variant_text(&entry->variant, kernel), (unsigned long long)entry->tuned_ns,
           (unsigned long long)entry->own_ns);
  if (tuner->ask != NULL)
    fill_results(tuner, tuner->ask->tune);
  tuner_keep(tuner, entry);
  tuner_answer(tuner, STATUS_OK, "");
  tuner_leave(tuner);
}
