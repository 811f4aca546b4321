#include "tuner.h"

#include "../log.h"
#include "tune_pins.h"
#include "tune_race.h"
#include "tune_trial.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum {
  CANDIDATES = 48,    /* that a search begins with */
  BASES = 3,          /* the best ones that are refined */
  LAUNCHES_MOST = 16, /* in one sample */
  PIECE_NS = 120000,  /* what a piece of a trial takes, about */
};
#define SAMPLE_NS 100000u
#define ARENA_LEAST ((uint64_t)1 << 20)
#define UNKNOWN_NS ((uint64_t)1 << 40)

/* What is done with the shape at hand, in this order. */
enum phase {
  PHASE_PREPARE,
  PHASE_OWN,   /* the backend's own choice is compared: it serves anyway, and others need not be better */
  PHASE_GIVEN, /* the kept variant or the pin is compared */
  PHASE_LIST,  /* the backend is asked for candidates */
  PHASE_RACE,
};

struct tuner {
  struct tuner_options options;
  struct book book;
  struct tune_db db;
  struct tune_pin *pins; /* owned */
  struct trial trial;
  struct race race;
  bool settled;               /* a look at the book found nothing to do, and nothing has changed since */
  struct book_entry *current; /* NULL: none */
  struct engine_message *ask; /* that it is tuned for; NULL: nobody's */
  enum phase phase;
  bool comparing;       /* trial_compare has begun */
  int compared;         /* candidate of the race that is */
  struct variant given; /* in PHASE_GIVEN */
  uint64_t sample_ns;   /* what the last sample took, all told */
  uint64_t list_ns;  /* what the longest list took; before the first, where there is a library, longer than any burst */
  uint32_t launches; /* in one sample */
  uint64_t spent_ns; /* on the current shape */
  uint32_t checked, timed; /* candidates of it */
  uint64_t last_request_ns;
  uint64_t not_before_ns;                  /* while requests come */
  struct engine_message *asks, *asks_last; /* TUNE_ASK, in order */
};

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- open and close */

static void read_kept(struct tuner *tuner) {
  struct variant_problem *problems = malloc(BOOK_ENTRIES / 2 * sizeof *problems), died;
  struct variant cause;
  uint32_t count = problems != NULL ? tune_db_list(&tuner->db, problems, BOOK_ENTRIES / 2) : 0;
  for (uint32_t i = 0; i < count && i < BOOK_ENTRIES / 2; i++) {
    struct book_entry kept = {.problem = problems[i], .used = true};
    if (!tune_db_load(&tuner->db, &kept))
      continue;
    struct book_entry *entry = book_find(&tuner->book, &problems[i], NULL, true);
    if (entry != NULL)
      *entry = kept;
  }
  free(problems);
  if (!tune_db_died(&tuner->db, &died, &cause))
    return;
  char shape[VARIANT_TEXT_BYTES], kernel[VARIANT_TEXT_BYTES];
  struct error error;
  log_warning("a worker died while it tried kernel %s for %s: it is not tried again", variant_text(&cause, kernel),
              variant_problem_text(&died, shape));
  struct book_entry *entry = book_find(&tuner->book, &died, NULL, true);
  if (entry == NULL)
    return;
  book_wrong(entry, &cause);
  if (variant_equal(&entry->variant, &cause)) {
    entry->variant.family = NULL;
    entry->state = BOOK_SEEN;
  }
  if (tune_db_save(&tuner->db, entry, &error) != STATUS_OK)
    log_warning("%s", error.text);
}

enum status tuner_open(const struct tuner_options *options, struct tuner **out, struct error *error) {
  struct backend_info info;
  struct error kept;
  struct tuner *tuner = calloc(1, sizeof *tuner);
  if (tuner == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for the tuner");
  tuner->options = *options;
  for (int i = 0; options->ops->families[i] != NULL; i++)
    tuner->list_ns = options->ops->families[i]->library ? UNKNOWN_NS : tuner->list_ns;
  tuner->options.share = options->share > 0 ? options->share : 1;
  enum status status = book_open(&tuner->book, error);
  if (status != STATUS_OK) {
    free(tuner);
    return status;
  }
  tuner->db.families = options->ops->families;
  options->ops->describe(options->backend, &info);
  if (options->state_dir != NULL && options->state_dir[0] != '\0' && options->mode != TUNE_OFF) {
    if (tune_db_open(&tuner->db, options->state_dir, info.identity, options->ops->families, &kept) == STATUS_OK)
      read_kept(tuner);
    else
      log_warning("%s", kept.text);
  }
  struct trial *trial = &tuner->trial;
  trial->ops = options->ops;
  trial->backend = options->backend;
  trial->bytes = options->arena_bytes > ARENA_LEAST ? options->arena_bytes : ARENA_LEAST;
  trial->base = mmap(NULL, trial->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  status = trial->base != MAP_FAILED
               ? options->ops->arena_register(options->backend, trial->base, trial->bytes, &trial->arena, error)
               : error_set(error, STATUS_NOMEM, "no memory for the tuner: %s", strerror(errno));
  if (status != STATUS_OK) {
    tuner_close(tuner);
    return status;
  }
  *out = tuner;
  return STATUS_OK;
}

void tuner_close(struct tuner *tuner) {
  if (tuner == NULL)
    return;
  if (tuner->trial.arena != NULL)
    tuner->options.ops->arena_unregister(tuner->options.backend, tuner->trial.arena);
  if (tuner->trial.base != NULL && tuner->trial.base != MAP_FAILED)
    munmap(tuner->trial.base, tuner->trial.bytes);
  tune_pins_close(&tuner->pins);
  book_close(&tuner->book);
  free(tuner);
}

static void keep(struct tuner *tuner, const struct book_entry *entry) {
  struct tune_save *save = tuner->db.folder[0] != '\0' && entry->pin == NULL ? malloc(sizeof *save) : NULL;
  if (save == NULL)
    return;
  *save = (struct tune_save){.message = {.verb = ENGINE_TUNE_SAVE}, .entry = *entry, .db = &tuner->db};
  tuner->options.notify(tuner->options.user, &save->message);
}

void tuner_save(struct tune_save *save) {
  struct error error;
  if (tune_db_save(save->db, &save->entry, &error) != STATUS_OK)
    log_warning("%s", error.text);
  free(save);
}

/* ---- serving */

struct book_entry *tuner_launch(struct tuner *tuner, const struct engine_weight *weight, struct backend_job *job,
                                int64_t rows) {
  struct variant_problem problem = {.weight = weight->shape,
                                    .m = variant_bucket(rows),
                                    .x_type = job->x_type,
                                    .y_type = job->y_type,
                                    .bias_type = job->bias != NULL ? job->bias_type : GEMM_TYPE_NONE};
  struct book_entry *entry = book_find(&tuner->book, &problem, weight->pin, true);
  if (entry == NULL)
    return NULL;
  book_add_weight(entry, weight->device);
  if ((entry->state == BOOK_SEEN || entry->state == BOOK_KEPT) &&
      (tuner->options.mode != TUNE_OFF || entry->pin != NULL))
    tuner->settled = false;
  job->variant = entry->serves ? &entry->variant : NULL;
  return entry;
}

void tuner_finished(struct tuner *tuner, struct book_entry *entry, uint64_t device_ns) {
  tuner->last_request_ns = now_ns();
  if (entry != NULL) {
    entry->calls++;
    entry->device_ns += device_ns;
  }
}

/* ---- one shape */

static void answer_ask(struct tuner *tuner, enum status status, const char *why) {
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

/* Leaves the current shape; it comes again where it is still to be tuned. */
static void leave(struct tuner *tuner) {
  struct book_entry *entry = tuner->current;
  tuner->current = NULL;
  if (entry == NULL)
    return;
  if (tuner->comparing)
    tune_db_trying(&tuner->db, &entry->problem, NULL);
  tuner->comparing = false;
  entry->asked = false;
  for (const struct engine_message *each = tuner->asks; each != NULL; each = each->next)
    entry->asked |= ask_is_for(tuner, each, entry);
}

static void give_up(struct tuner *tuner, enum status status, const char *why) {
  struct book_entry *entry = tuner->current;
  entry->state = BOOK_FAILED;
  snprintf(entry->why, sizeof entry->why, "%.127s", why);
  answer_ask(tuner, status, why);
  leave(tuner);
}

static bool begin_shape(struct tuner *tuner, struct book_entry *entry) {
  struct error error;
  tuner->current = entry;
  tuner->ask = take_ask(tuner, entry);
  tuner->phase = PHASE_PREPARE;
  tuner->comparing = false;
  book_gather_weights(&tuner->book, entry);
  tuner->spent_ns = 0;
  tuner->checked = tuner->timed = 0;
  if (trial_start(&tuner->trial, &entry->problem, entry->weights[0], &error) == STATUS_OK)
    return true;
  give_up(tuner, error.status, error.text);
  return false;
}

static uint64_t average_ns(const struct book_entry *entry) {
  return entry->own_ns > 0                          ? entry->own_ns
         : entry->calls > 0 && entry->device_ns > 0 ? entry->device_ns / entry->calls
                                                    : 0;
}

/* Candidates: the backend's own choice, what was kept, what was asked for by hand, and the backend's best guesses. */
static void begin_race(struct tuner *tuner) {
  static struct variant list[RACE_MOST]; /* one tuner a process, one thread */
  struct book_entry *entry = tuner->current;
  const struct tune_request *request = tuner->ask != NULL ? tuner->ask->tune : NULL;
  bool all = request != NULL && request->all;
  uint64_t begin = now_ns();
  int count = tuner->options.ops->variants(tuner->options.backend, &entry->problem, NULL, all, list,
                                           all ? RACE_MOST : CANDIDATES);
  struct variant hand;
  struct error ignored;
  uint64_t took = now_ns() - begin;
  tuner->list_ns = tuner->list_ns == UNKNOWN_NS || took > tuner->list_ns ? took : tuner->list_ns;
  tuner->phase = PHASE_RACE;
  race_start(&tuner->race, &list[0], all);
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

static void refine(struct tuner *tuner) {
  struct variant list[CANDIDATES];
  int best[BASES], bases = race_best(&tuner->race, best, BASES);
  for (int b = 0; b < bases; b++) {
    struct variant base = tuner->race.candidates[best[b]].variant;
    int count = tuner->options.ops->variants(tuner->options.backend, &tuner->current->problem, &base, tuner->race.all,
                                             list, CANDIDATES);
    for (int i = 0; i < count; i++)
      if (!book_is_wrong(tuner->current, &list[i]))
        race_add(&tuner->race, &list[i]);
  }
  race_refined(&tuner->race);
}

static void add_result(struct tune_request *request, const struct race *race, int who) {
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
  struct variant hand;
  struct error ignored;
  if (request->text[0] != '\0' &&
      variant_parse(tuner->options.ops->families, request->text, &hand, &ignored) == STATUS_OK)
    for (int i = 1; i < race->count; i++)
      by_hand = variant_equal(&race->candidates[i].variant, &hand) ? i : by_hand;
  request->count = 0;
  add_result(request, race, race->winner);
  for (int i = 0; i < count; i++)
    add_result(request, race, best[i]);
  add_result(request, race, 0);
  if (by_hand >= 0)
    add_result(request, race, by_hand);
  request->checked = tuner->checked;
  request->timed = tuner->timed;
  request->wrong = entry->wrong_count;
  request->spent_ns = tuner->spent_ns;
  request->library_first_ns = library_first_ns(race);
  request->library_ns = entry->library_ns;
  variant_text(&race->candidates[race->winner].variant, request->kernel);
}

static void end_race(struct tuner *tuner) {
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
  keep(tuner, entry);
  answer_ask(tuner, STATUS_OK, "");
  leave(tuner);
}

/* ---- pieces of work */

/* Begins to compare; false, with it noted as wrong, where the backend does not take the variant. */
static bool begin_compare(struct tuner *tuner, struct variant *variant) {
  struct error error;
  if (variant->family != NULL && tuner->options.ops->variant_check(tuner->options.backend, &tuner->current->problem,
                                                                   variant, NULL, &error) != STATUS_OK)
    return false;
  if (variant->family != NULL)
    tune_db_trying(&tuner->db, &tuner->current->problem, variant);
  trial_compare(&tuner->trial, variant);
  tuner->comparing = true;
  return true;
}

/* A piece of the comparison that has begun. *done: it is over. */
static enum status compare(struct tuner *tuner, bool *done, bool *right, struct error *error) {
  char why[128], shape[VARIANT_TEXT_BYTES], kernel[VARIANT_TEXT_BYTES];
  enum status status = trial_compare_next(&tuner->trial, done, right, why, sizeof why, error);
  if (status != STATUS_OK || !*done)
    return status;
  tuner->comparing = false;
  tune_db_trying(&tuner->db, &tuner->current->problem, NULL);
  if (!*right && tuner->trial.variant.family != NULL) {
    book_wrong(tuner->current, &tuner->trial.variant);
    log_warning("kernel %s is never used for %s: %s", variant_text(&tuner->trial.variant, kernel),
                variant_problem_text(&tuner->current->problem, shape), why);
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
    give_up(tuner, STATUS_UNSUPPORTED, "the backend's own choice does not agree with the plain kernel");
    return STATUS_OK;
  }
  tuner->given = entry->pin != NULL ? *entry->pin : entry->variant;
  if (entry->pin != NULL || (entry->state == BOOK_KEPT && tuner->given.family != NULL))
    tuner->phase = PHASE_GIVEN;
  else if (entry->state == BOOK_KEPT && entry->confirmed && tuner->ask == NULL) {
    entry->state = BOOK_TUNED; /* it was found before that nothing is faster */
    leave(tuner);
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
  }
  if (entry->pin != NULL) {
    if (right)
      entry->state = BOOK_TUNED;
    else
      give_up(tuner, STATUS_UNSUPPORTED, "the kernel that is set by hand cannot compute this, or is wrong");
    if (right)
      leave(tuner);
    return;
  }
  if (!right)
    entry->variant.family = NULL;
  entry->state = right && entry->confirmed ? BOOK_TUNED : BOOK_SEEN;
  if (entry->state == BOOK_TUNED && tuner->ask == NULL)
    leave(tuner);
  else
    tuner->phase = PHASE_LIST;
}

static enum status work_given(struct tuner *tuner, struct error *error) {
  bool done = true, right = false;
  if (tuner->comparing || begin_compare(tuner, &tuner->given)) {
    enum status status = compare(tuner, &done, &right, error);
    if (status != STATUS_OK)
      return status;
  }
  if (done)
    end_given(tuner, right);
  return STATUS_OK;
}

static enum status time_one(struct tuner *tuner, int who, struct error *error) {
  struct race_candidate *candidate = &tuner->race.candidates[who];
  struct backend_job job = tuner->trial.job;
  struct error failure;
  uint64_t ns = 0;
  job.variant = &candidate->variant;
  uint64_t begin = now_ns();
  enum status status = tuner->options.ops->measure(tuner->options.backend, &job, tuner->current->weights,
                                                   tuner->current->weight_count, tuner->launches, &ns, &failure);
  if (status == STATUS_DEVICE_LOST) {
    *error = failure;
    return status;
  }
  tuner->sample_ns = now_ns() - begin;
  tuner->timed += candidate->count == 0;
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
  struct race_step step = race_next(&tuner->race);
  switch (step.verb) {
  case RACE_CHECK:
    tuner->compared = step.who;
    tuner->checked++;
    if (!begin_compare(tuner, &tuner->race.candidates[step.who].variant))
      race_checked(&tuner->race, step.who, false);
    return STATUS_OK;
  case RACE_TIME:
    return time_one(tuner, step.who, error);
  case RACE_REFINE:
    refine(tuner);
    return STATUS_OK;
  case RACE_OVER:
    end_race(tuner);
    return STATUS_OK;
  }
  return STATUS_OK;
}

static enum status work(struct tuner *tuner, struct error *error) {
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
    begin_race(tuner);
    break;
  case PHASE_RACE:
    status = work_race(tuner, error);
    break;
  }
  if (status == STATUS_OK || status == STATUS_DEVICE_LOST)
    return status;
  give_up(tuner, status, error->text);
  return STATUS_OK;
}

/* Kernels of a library are loaded when they first run, which takes milliseconds; so does a library's list of them. */
static bool may_be_loaded(const struct variant *variant) {
  return variant->family != NULL && variant->family->library;
}

/* What a piece of the race takes, about. */
static uint64_t race_piece_ns(const struct tuner *tuner, uint64_t launch) {
  const struct race *race = &tuner->race;
  if (tuner->comparing && may_be_loaded(&tuner->trial.variant) && trial_launches_next(&tuner->trial))
    return UNKNOWN_NS;
  if (tuner->comparing)
    return trial_launches_next(&tuner->trial) ? launch : PIECE_NS;
  uint64_t own = race_median(&race->candidates[0]), sample = (own > 0 ? own : launch) * tuner->launches;
  return sample > tuner->sample_ns ? sample : tuner->sample_ns;
}

/* What the next piece takes, about. */
static uint64_t next_piece_ns(const struct tuner *tuner) {
  uint64_t average = average_ns(tuner->current), launch = average > 0 ? average * 3 / 2 : UNKNOWN_NS;
  switch (tuner->phase) {
  case PHASE_PREPARE:
    return PIECE_NS;
  case PHASE_OWN:
  case PHASE_GIVEN:
    if (may_be_loaded(&tuner->given) && tuner->phase == PHASE_GIVEN)
      return UNKNOWN_NS;
    return tuner->comparing && !trial_launches_next(&tuner->trial) ? PIECE_NS : launch;
  case PHASE_LIST:
    return tuner->list_ns;
  case PHASE_RACE:
    break;
  }
  return race_piece_ns(tuner, launch);
}

static uint32_t launches_for(uint64_t average) {
  uint64_t launches = average > 0 ? SAMPLE_NS / average : 1;
  return launches < 1 ? 1 : launches > LAUNCHES_MOST ? LAUNCHES_MOST : (uint32_t)launches;
}

/* ---- bursts */

static bool still_quiet(const struct tuner *tuner, uint64_t now) {
  return tuner->options.mode == TUNE_EAGER || tuner->last_request_ns == 0 ||
         now - tuner->last_request_ns >= tuner->options.quiet_ns;
}

static uint64_t wait_until(uint64_t when, uint64_t now) {
  return when > now ? when - now : 0;
}

uint64_t tuner_step(struct tuner *tuner, uint64_t now, bool (*wanted)(void *user), void *user, struct error *lost) {
  if (tuner->current == NULL) {
    if (tuner->settled)
      return UINT64_MAX;
    struct book_entry *entry = book_next(&tuner->book, tuner->options.mode == TUNE_OFF);
    tuner->settled = entry == NULL;
    if (entry == NULL)
      return UINT64_MAX;
    if (!begin_shape(tuner, entry))
      return 0;
  }
  bool quiet = still_quiet(tuner, now);
  if (!quiet && now < tuner->not_before_ns)
    return wait_until(tuner->not_before_ns, now);
  uint64_t begin = now_ns(), elapsed = 0;
  while (tuner->current != NULL && !wanted(user)) {
    tuner->launches = launches_for(average_ns(tuner->current));
    uint64_t piece = next_piece_ns(tuner);
    if (!quiet && piece > tuner->options.burst_ns) {
      tuner->sample_ns /= 2; /* it may have been an accident */
      return wait_until(tuner->last_request_ns + tuner->options.quiet_ns, now + elapsed);
    }
    if (elapsed > 0 && elapsed + piece > tuner->options.burst_ns)
      break;
    struct error error;
    if (work(tuner, &error) == STATUS_DEVICE_LOST) {
      *lost = error;
      return UINT64_MAX;
    }
    uint64_t after = now_ns();
    tuner->spent_ns += after - begin - elapsed;
    elapsed = after - begin;
    if (tuner->current != NULL && tuner->ask == NULL && tuner->phase == PHASE_RACE &&
        tuner->spent_ns > tuner->options.budget_ns)
      race_hurry(&tuner->race);
  }
  tuner->not_before_ns = now + elapsed + elapsed * (1000 / tuner->options.share);
  return quiet ? 0 : wait_until(tuner->not_before_ns, now + elapsed);
}

/* ---- requests */

static const char *state_text(const struct book_entry *entry) {
  static const char *const names[] = {"seen", "kept", "tuned", "failed"};
  return entry->pin != NULL && entry->state != BOOK_FAILED ? "pinned" : names[entry->state];
}

static void describe(const struct tuner *tuner, const struct book_entry *entry, struct tune_shape *out) {
  *out = (struct tune_shape){.state = state_text(entry),
                             .serves = entry->serves,
                             .confirmed = entry->confirmed,
                             .tuning = entry == tuner->current,
                             .calls = entry->calls,
                             .device_ns = entry->device_ns,
                             .own_ns = entry->own_ns,
                             .tuned_ns = entry->tuned_ns,
                             .library_ns = entry->library_ns};
  variant_problem_text(&entry->problem, out->shape);
  variant_text(entry->pin != NULL ? entry->pin : &entry->variant, out->kernel);
  snprintf(out->why, sizeof out->why, "%s", entry->why);
}

static void list(const struct tuner *tuner, struct tune_request *request) {
  uint32_t at = request->from;
  request->count = 0;
  for (; at < BOOK_ENTRIES && request->count < TUNE_PAGE; at++)
    if (tuner->book.entries[at].used)
      describe(tuner, &tuner->book.entries[at], &request->page[request->count++]);
  request->next = at < BOOK_ENTRIES ? at : 0;
}

static enum status check_by_hand(struct tuner *tuner, const struct variant_problem *problem, const char *text,
                                 struct variant *out, struct error *error) {
  struct variant nearest = {.family = NULL};
  char near[VARIANT_TEXT_BYTES];
  enum status status = variant_parse(tuner->options.ops->families, text, out, error);
  if (status != STATUS_OK)
    return status;
  status = tuner->options.ops->variant_check(tuner->options.backend, problem, out, &nearest, error);
  if (status == STATUS_OK || nearest.family == NULL)
    return status;
  struct error reason = *error;
  return error_set(error, status, "%.120s; nearest that can: %.120s", reason.text, variant_text(&nearest, near));
}

static enum status ask(struct tuner *tuner, struct engine_message *message) {
  struct tune_request *request = message->tune;
  struct variant hand;
  request->problem.weight = request->weight->shape;
  request->problem.m = variant_bucket(request->problem.m);
  if (request->text[0] != '\0' &&
      check_by_hand(tuner, &request->problem, request->text, &hand, &message->error) != STATUS_OK)
    return message->error.status;
  struct book_entry *entry = book_find(&tuner->book, &request->problem, NULL, true);
  if (entry == NULL)
    return error_set(&message->error, STATUS_NOMEM, "no room for one more shape");
  book_add_weight(entry, request->weight->device);
  entry->asked = true;
  message->next = NULL;
  if (tuner->asks_last != NULL)
    tuner->asks_last->next = message;
  else
    tuner->asks = message;
  tuner->asks_last = message;
  if (tuner->ask == NULL)
    leave(tuner); /* whoever waits goes first */
  return STATUS_OK;
}

static void forget(struct tuner *tuner, struct tune_request *request) {
  char shape[VARIANT_TEXT_BYTES];
  request->count = 0;
  for (uint32_t i = 0; i < BOOK_ENTRIES; i++) {
    struct book_entry *entry = &tuner->book.entries[i];
    if (!entry->used || entry->pin != NULL || entry == tuner->current ||
        fnmatch(request->text, variant_problem_text(&entry->problem, shape), 0) != 0)
      continue;
    bool asked = entry->asked;
    tune_db_remove(&tuner->db, &entry->problem);
    struct book_entry fresh = {.problem = entry->problem,
                               .used = true,
                               .asked = asked,
                               .calls = entry->calls,
                               .device_ns = entry->device_ns,
                               .weight_count = entry->weight_count};
    memcpy(fresh.weights, entry->weights, sizeof fresh.weights);
    *entry = fresh;
    request->count++;
  }
}

static enum status import(struct tuner *tuner, struct engine_message *message) {
  struct tune_request *request = message->tune;
  struct variant_problem problem;
  struct variant variant;
  enum status status = variant_problem_parse(request->shape, &problem, &message->error);
  if (status == STATUS_OK)
    status = check_by_hand(tuner, &problem, request->text, &variant, &message->error);
  if (status != STATUS_OK)
    return status;
  struct book_entry *entry = book_find(&tuner->book, &problem, NULL, true);
  if (entry == NULL)
    return error_set(&message->error, STATUS_NOMEM, "no room for one more shape");
  if (entry->state == BOOK_TUNED || entry == tuner->current)
    return STATUS_OK; /* what was measured here is better than what was measured elsewhere */
  entry->variant = variant;
  entry->state = BOOK_KEPT;
  entry->confirmed = entry->serves = false;
  keep(tuner, entry);
  return STATUS_OK;
}

static void unpin(struct tuner *tuner, struct engine_weight *weight) {
  const struct variant *pin = weight->pin;
  weight->pin = NULL;
  if (pin == NULL)
    return;
  if (tuner->current != NULL && tuner->current->pin == pin)
    leave(tuner);
  if (tune_pin_last(tuner->pins, pin))
    book_pin_gone(&tuner->book, pin);
  tune_pin_drop(&tuner->pins, pin);
}

static enum status pin(struct tuner *tuner, struct engine_message *message) {
  struct tune_request *request = message->tune;
  struct engine_weight *weight = request->weight;
  struct variant variant;
  if (request->text[0] == '\0') {
    unpin(tuner, weight);
    return STATUS_OK;
  }
  enum gemm_type type = weight->shape.format == GEMM_FORMAT_BF16 ? GEMM_BF16 : GEMM_F16;
  request->problem = (struct variant_problem){.weight = weight->shape, .m = 1, .x_type = type, .y_type = type};
  if (check_by_hand(tuner, &request->problem, request->text, &variant, &message->error) != STATUS_OK)
    return message->error.status;
  unpin(tuner, weight);
  weight->pin = tune_pin_take(&tuner->pins, &variant);
  return weight->pin != NULL ? STATUS_OK : error_set(&message->error, STATUS_NOMEM, "no memory for a pin");
}

void tuner_request(struct tuner *tuner, struct engine_message *message) {
  message->error.status = STATUS_OK;
  tuner->settled = false;
  switch (message->tune->verb) {
  case TUNE_LIST:
    list(tuner, message->tune);
    break;
  case TUNE_ASK:
    if (ask(tuner, message) == STATUS_OK)
      return;
    break;
  case TUNE_FORGET:
    forget(tuner, message->tune);
    break;
  case TUNE_IMPORT:
    (void)import(tuner, message);
    break;
  case TUNE_PIN:
    (void)pin(tuner, message);
    break;
  }
  tuner->options.notify(tuner->options.user, message);
}

/* ---- ends */

static void cancel_asks(struct tuner *tuner, const struct engine_weight *weight) {
  struct engine_message *kept = NULL, *last = NULL;
  for (struct engine_message *each = tuner->asks, *next; each != NULL; each = next) {
    next = each->next;
    each->next = NULL;
    if (weight != NULL && each->tune->weight != weight) {
      *(last != NULL ? &last->next : &kept) = each;
      last = each;
    } else {
      (void)error_set(&each->error, STATUS_CANCELLED, "the weight was unloaded, or the worker ends");
      tuner->options.notify(tuner->options.user, each);
    }
  }
  tuner->asks = kept;
  tuner->asks_last = last;
}

void tuner_weight_gone(struct tuner *tuner, struct engine_weight *weight) {
  struct book_entry *current = tuner->current;
  bool used = false;
  for (uint32_t i = 0; current != NULL && i < current->weight_count; i++)
    used |= current->weights[i] == weight->device;
  if (used) {
    answer_ask(tuner, STATUS_CANCELLED, "the weight was unloaded");
    leave(tuner);
  }
  cancel_asks(tuner, weight);
  unpin(tuner, weight);
  book_weight_gone(&tuner->book, weight->device);
}

void tuner_stop(struct tuner *tuner) {
  answer_ask(tuner, STATUS_CANCELLED, "the worker ends");
  cancel_asks(tuner, NULL);
  leave(tuner);
}
