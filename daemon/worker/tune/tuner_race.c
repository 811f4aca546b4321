#include "tuner_race.h"

#include "../../log.h"
#include "tuner_current.h"
#include "tuner_publish.h"
#include "tuner_saves.h"

#include <string.h>

enum {
  CANDIDATES = 64, /* that a search begins with */
  BRIEF = 24,      /* that are raced first while requests come, at most */
  EVERY = 3,       /* of these, of the family that serves */
  FEW = 6,         /* that are raced at once */
  LIBRARY_CANDIDATES = 48,
  COMPILED_MOST = 32,
  BASES = 3, /* the best ones that are refined */
};

/* The candidate's number; -1: it is not in the race. */
static int find(const struct race *race, const struct variant *variant) {
  for (int i = 0; i < race->count; i++)
    if (variant_equal(&race->candidates[i].variant, variant))
      return i;
  return -1;
}

static void add_right(struct tuner *tuner, const struct variant *list, int count) {
  for (int i = 0; i < count; i++)
    if (!book_is_wrong(tuner->current, &list[i]))
      race_add(&tuner->race, &list[i]);
    else if (find(&tuner->race, &list[i]) < 0)
      tune_table_left_out(&tuner->table, &list[i]);
}

/* Among what has been added from a list: what a library names first. */
static void note_library_first(struct tuner *tuner, const struct variant *list, int count) {
  const struct race *race = &tuner->race;
  int first = 0;
  while (first < count && !list[first].family->library)
    first++;
  int found = first < count ? find(race, &list[first]) : -1;
  tuner->library_first = found >= 0 ? found : tuner->library_first;
}

void tuner_note_needs(struct tuner *tuner, int who) {
  const struct backend_ops *ops = tuner->options.ops;
  struct backend_needs needs;
  if (!tuner->table.open || ops->variant_needs == NULL)
    return;
  ops->variant_needs(tuner->options.backend, &tuner->current->problem, &tuner->race.candidates[who].variant, &needs);
  tune_table_needs(&tuner->table, who, &needs);
}

/* Whether the fastest is of those that are made for such products and built in; a library's, the plain one or one that
 * was compiled here leave room for another tile. */
static bool built_in_wins(const struct tuner *tuner) {
  const struct variant *winner = &tuner->race.candidates[tuner->race.winner].variant;
  const struct backend_ops *ops = tuner->options.ops;
  return !winner->family->library && winner->family != ops->families[0] && !ops->variant_foreign(winner);
}

/* Whether what has to be compiled may have something faster. */
static bool compiled_may_win(const struct tuner *tuner) {
  const struct tuner_options *options = &tuner->options;
  return options->ops->compiled_variants != NULL && options->ops->variant_foreign != NULL && options->prover != NULL &&
         options->compile_ns > 0 && !tuner->compiled && !built_in_wins(tuner);
}

/* False where there is none. */
static bool add_compiled(struct tuner *tuner, bool all) {
  static struct variant list[COMPILED_MOST];
  int before = tuner->race.count, count = tuner->options.ops->compiled_variants(
                                      tuner->options.backend, &tuner->current->problem, all, list, COMPILED_MOST);
  add_right(tuner, list, count);
  tuner->compiled = true;
  return tuner->race.count > before;
}

/* How many of list[0..i) are of list[i]'s family. */
static int ahead_of_family(const struct variant *list, int i) {
  int ahead = 0;
  for (int j = 0; j < i; j++)
    ahead += list[j].family == list[i].family;
  return ahead;
}

/* Leaves the best guess of every family, and of that which serves every third: its kinds, each best guess first, are
 * all among them. Returns how many. */
static int cut_brief(struct variant *list, int count) {
  struct variant kept[BRIEF] = {{.family = NULL}};
  int total = 0;
  for (int i = 0; i < count && total < BRIEF; i++)
    if (ahead_of_family(list, i) % (list[i].family == list[0].family ? EVERY : CANDIDATES) == 0)
      kept[total++] = list[i];
  memcpy(list, kept, (size_t)total * sizeof *kept);
  return total;
}

void tuner_race_begin(struct tuner *tuner) {
  static struct variant list[RACE_MOST]; /* one tuner a process, one thread */
  struct book_entry *entry = tuner->current;
  const struct tune_request *request = tuner->ask != NULL ? tuner->ask->tune : NULL;
  bool all = request != NULL && request->all, to_compile = request == NULL && book_only_compiles(entry);
  bool raced = to_compile || (request == NULL && entry->library_waits && !entry->brief);
  int most = raced ? 1 : all ? RACE_MOST : CANDIDATES;
  struct variant hand;
  struct error ignored;
  tuner->library_due = tuner->lister != NULL && !to_compile;
  tuner->compiled = false;
  tuner->library_first = -1;
  int count = tuner->options.ops->variants(tuner->options.backend, &entry->problem, NULL, all, list, most);
  int found = count;
  if (!tuner->patient && !raced && !entry->brief && found > FEW)
    count = cut_brief(list, count);
  tuner->brief = count < found;
  if (tuner->library_due && !tuner->brief)
    tune_lister_ask(tuner->lister, &entry->problem, all, all ? LISTER_MOST : LIBRARY_CANDIDATES);
  race_start(&tuner->race, &list[0], all);
  tuner->race.brief = tuner->brief;
  if (request != NULL) {
    tuner->race.iterations = request->iterations;
    tune_table_begin(&tuner->table, &entry->problem, tuner_roof_ns(tuner, &entry->problem));
    tune_table_compared(&tuner->table, 0, tuner->trial.own_error, OPERANDS_KINDS);
    tuner_note_needs(tuner, 0);
  }
  memset(tuner->proven, 0, sizeof tuner->proven);
  tuner->race.candidates[0].state = RACE_RUNNING; /* PHASE_OWN has compared it */
  if (entry->variant.family != NULL)
    add_right(tuner, &entry->variant, 1);
  if (entry->proposed.family != NULL)
    add_right(tuner, &entry->proposed, 1);
  if (request != NULL && request->text[0] != '\0' &&
      variant_parse(tuner->options.ops->families, request->text, &hand, &ignored) == STATUS_OK)
    race_invite(&tuner->race, &hand);
  add_right(tuner, list + 1, count - 1);
  if (to_compile)
    (void)add_compiled(tuner, false);
  tuner->incumbent = entry->serves ? find(&tuner->race, &entry->variant) : 0;
  note_library_first(tuner, list, count);
  /* Whoever asked waits for all of it, and one race is shorter than two; the whole of a library is long in coming. */
  bool together = raced || (request != NULL && !all);
  tuner->phase = together && tuner->library_due ? PHASE_LIBRARY : PHASE_RACE;
}

bool tuner_race_library(struct tuner *tuner) {
  struct race *race = &tuner->race;
  const struct variant *list;
  int count = tune_lister_answer(tuner->lister, &list);
  if (count < 0)
    return false;
  if (race->over)
    race_reopen(race);
  add_right(tuner, list, count);
  note_library_first(tuner, list, count);
  tuner->library_due = false;
  tuner->phase = PHASE_RACE;
  return true;
}

/* The best ones that are still in the race, and what was asked for by hand. */
void tuner_race_refine(struct tuner *tuner) {
  static struct variant list[RACE_MOST];
  static int order[RACE_MOST];
  struct race *race = &tuner->race;
  int bases[BASES + 1], base_count = 0, ordered = race_ahead(race, order, RACE_MOST), guest = race->guest;
  bool among = guest < 0 || race_median(&race->candidates[guest]) == 0;
  for (int i = 0; i < ordered && base_count < (race->brief ? 1 : BASES); i++)
    if (race->candidates[order[i]].state == RACE_RUNNING)
      bases[base_count++] = order[i];
  for (int b = 0; b < base_count; b++)
    among |= bases[b] == guest;
  if (!among)
    bases[base_count++] = guest;
  for (int b = 0; b < base_count; b++) {
    struct variant base = race->candidates[bases[b]].variant;
    int count = tuner->options.ops->variants(tuner->options.backend, &tuner->current->problem, &base, race->all, list,
                                             race->all ? RACE_MOST : CANDIDATES);
    add_right(tuner, list, count);
  }
  race_refined(race);
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

/* The candidate that the request names; -1: none. */
static int find_by_hand(const struct tuner *tuner) {
  for (int i = 0; i < tuner->race.count && tuner->ask->tune->text[0] != '\0'; i++)
    if (tuner_by_hand(tuner, &tuner->race.candidates[i].variant))
      return i;
  return -1;
}

static void fill_results(struct tuner *tuner, struct tune_request *request) {
  const struct race *race = &tuner->race;
  const struct book_entry *entry = tuner->current;
  int best[TUNE_RESULTS], count = race_best(race, best, TUNE_RESULTS - 3), by_hand = find_by_hand(tuner);
  const struct tune_marks marks = {
      .incumbent = tuner->incumbent, .library_first = tuner->library_first, .hand = by_hand};
  tune_table_end(&tuner->table, race, &marks);
  request->search = tuner->table.search;
  request->count = 0;
  add_result(tuner, request, race->winner);
  for (int i = 0; i < count; i++)
    add_result(tuner, request, best[i]);
  add_result(tuner, request, 0);
  if (by_hand >= 0)
    add_result(tuner, request, by_hand);
  request->checked = tuner->checked;
  request->timed = 0;
  for (int i = 0; i < race->count; i++)
    request->timed += race->candidates[i].count > 0;
  request->wrong = entry->wrong_count;
  request->spent_ns = tuner->spent_ns;
  request->roof_ns = tuner_roof_ns(tuner, &entry->problem);
  if (tuner->library_first >= 0)
    request->library_first_ns = race_median(&race->candidates[tuner->library_first]);
  request->library_ns = entry->library_ns;
  variant_text(&race->candidates[race->winner].variant, request->kernel);
}

/* The fastest right one that every build of this program has; NULL: none was timed. */
static const struct race_candidate *fastest_built_in(const struct tuner *tuner) {
  const struct backend_ops *ops = tuner->options.ops;
  const struct race_candidate *best = NULL;
  for (int i = 0; i < tuner->race.count; i++) {
    const struct race_candidate *each = &tuner->race.candidates[i];
    bool here =
        !each->variant.family->library && (ops->variant_foreign == NULL || !ops->variant_foreign(&each->variant));
    bool right = each->state == RACE_RUNNING || each->state == RACE_OUT;
    if (here && right && race_median(each) > 0 && (best == NULL || race_median(each) < race_median(best)))
      best = each;
  }
  return best;
}

/* Stays what it was where the race was without a library. */
static void note_library_best(const struct tuner *tuner, struct book_entry *entry) {
  const struct race *race = &tuner->race;
  uint64_t best = 0;
  for (int i = 0; i < race->count; i++) {
    uint64_t ns = race->candidates[i].variant.family->library ? race_median(&race->candidates[i]) : 0;
    if (ns > 0 && (best == 0 || ns < best))
      best = ns;
  }
  if (best > 0 || !tuner->compiled)
    entry->library_ns = best;
}

void tuner_race_end(struct tuner *tuner) {
  const struct race *race = &tuner->race;
  struct book_entry *entry = tuner->current;
  const struct race_candidate *winner = &race->candidates[race->winner];
  char shape[VARIANT_TEXT_BYTES], kernel[VARIANT_TEXT_BYTES];
  bool news = entry->state != BOOK_TUNED || !variant_equal(&entry->variant, &winner->variant);
  entry->tuned_ns = race_median(winner);
  entry->own_ns =
      (uint64_t)(race->gain * (double)entry->tuned_ns + 0.5); /* at the same moments, not in an early heat */
  note_library_best(tuner, entry);
  /* The order matters to products that are prepared between: none is, this is the engine's thread. */
  entry->variant = winner->variant;
  entry->serves = race->winner != 0;
  entry->state = BOOK_TUNED;
  entry->confirmed = true;
  entry->library_waits = tuner->library_due;
  bool may_win = compiled_may_win(tuner);
  /* whoever wants all of it waits for it */
  bool more = may_win && !tuner->library_due && race->all && add_compiled(tuner, true);
  entry->compiled_wait = tuner->interrupted || more || (may_win && !tuner->compiled);
  if (news)
    log_info("tuned %s: %s, %llu ns where the first choice takes %llu", variant_problem_text(&entry->problem, shape),
             variant_text(&entry->variant, kernel), (unsigned long long)entry->tuned_ns,
             (unsigned long long)entry->own_ns);
  entry->brief = tuner->brief;
  if (!entry->brief)
    tuner_keep(tuner, entry);
  tuner_publish(tuner, entry, fastest_built_in(tuner));
  if (tuner->library_due && !entry->brief) {
    tuner->phase = PHASE_LIBRARY;
    return;
  }
  if (more) {
    race_reopen(&tuner->race);
    return;
  }
  if (tuner->ask != NULL)
    fill_results(tuner, tuner->ask->tune);
  tuner_answer(tuner, STATUS_OK, "");
  tuner_leave(tuner);
}
