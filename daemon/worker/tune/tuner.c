#include "tuner.h"

#include "../../log.h"
#include "tuner_current.h"
#include "tuner_kept.h"
#include "tuner_proof.h"
#include "tuner_race.h"
#include "tuner_requests.h"
#include "tuner_saves.h"
#include "tuner_shape.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
  LAUNCHES_MOST = 16, /* in one sample */
  SHARE_MORE = 4,     /* how often as much time bursts may take that are no longer than products commonly are */
  LIST_NAP_NS = 1000000,
  NOTE_NAP_NS = 50000,
  HELD_NAP_NS = 200000,
  HOLD_NAP_NS = 20000,
  HOLD_NAPS_MOST = 1000
};
#define ARENA_LEAST ((uint64_t)1 << 20)

/* ---- open and close */

enum status tuner_open(const struct tuner_options *options, struct tuner **out, struct error *error) {
  struct backend_info info;
  struct error kept;
  struct tuner *tuner = calloc(1, sizeof *tuner);
  if (tuner == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for the tuner");
  tuner->options = *options;
  tuner->options.share = options->share > 0 ? options->share : 1;
  tuner->allowed_until_ns = UINT64_MAX;
  enum status status = book_open(&tuner->book, error);
  if (status != STATUS_OK) {
    free(tuner);
    return status;
  }
  tuner->db.families = options->ops->families;
  options->ops->describe(options->backend, &info);
  memcpy(tuner->identity, info.identity, sizeof tuner->identity);
  if (options->state_dir != NULL && options->state_dir[0] != '\0' && options->mode != TUNE_OFF) {
    if (tune_db_open(&tuner->db, options->state_dir, info.identity, options->device, options->ops->families, &kept) ==
        STATUS_OK)
      tuner_read_kept(tuner);
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
  if (status == STATUS_OK && options->ops->library_variants != NULL)
    status = tune_lister_open(options->ops, options->backend, &tuner->lister, error);
  if (status != STATUS_OK) {
    tuner_close(tuner);
    return status;
  }
  const struct book_entry *blamed = options->heir ? NULL : tuner_heed_note(tuner, false);
  if (blamed != NULL && tune_db_save(&tuner->db, blamed, &kept) != STATUS_OK)
    log_warning("%s", kept.text);
  *out = tuner;
  return STATUS_OK;
}

void tuner_close(struct tuner *tuner) {
  if (tuner == NULL)
    return;
  tune_lister_close(tuner->lister);
  if (tuner->trial.arena != NULL)
    tuner->options.ops->arena_unregister(tuner->options.backend, tuner->trial.arena);
  if (tuner->trial.base != NULL && tuner->trial.base != MAP_FAILED)
    munmap(tuner->trial.base, tuner->trial.bytes);
  trial_end(&tuner->trial);
  proof_close(&tuner->proof);
  tune_pins_close(&tuner->pins);
  tune_table_close(&tuner->table);
  book_close(&tuner->book);
  free(tuner);
}

/* ---- serving */

/* `weight`: one more that the shape has; NULL: it has none. */
static struct book_entry *launch(struct tuner *tuner, const struct variant_problem *problem, const struct variant *pin,
                                 struct backend_weight *weight, const struct book_visit *visit,
                                 struct backend_job *job) {
  struct book_entry *entry = book_visit(&tuner->book, problem, pin, visit);
  if (entry == NULL)
    return NULL;
  if (weight != NULL)
    book_add_weight(entry, weight);
  if ((entry->state == BOOK_SEEN || entry->state == BOOK_KEPT) && !entry->aside && book_frequent(entry) &&
      entry != tuner->current && (tuner->options.mode != TUNE_OFF || entry->pin != NULL))
    tuner->settled = tuner->waiting = false;
  job->variant = entry->serves ? &entry->variant : NULL;
  proof_stop(&tuner->proof);
  return entry;
}

struct book_entry *tuner_launch(struct tuner *tuner, uint32_t user, const struct engine_weight *weight,
                                struct backend_job *job, int64_t rows) {
  const struct book_visit visit = {.user = user, .now_ns = tuner->last_request_ns};
  const struct variant_problem problem = {.weight = weight->shape,
                                          .m = variant_bucket(rows),
                                          .x_type = job->x_type,
                                          .y_type = job->y_type,
                                          .bias_type = job->bias != NULL ? job->bias_type : GEMM_TYPE_NONE};
  return launch(tuner, &problem, weight->pin, weight->device, &visit, job);
}

static uint64_t lowest_bit(uint64_t bits) {
  return bits & -bits;
}

/* What is copied to a device lies there as well as can be. */
static struct variant_tensors tensors_of(const struct backend_job *job) {
  const struct backend_operand *operand = job->operand;
  uint64_t bits = 16;
  if (job->x_memory != NULL)
    bits |= (uintptr_t)job->x | job->x_stride | operand->form.x_step;
  if (operand->memory != NULL)
    bits |= (uintptr_t)operand->w | operand->stride | operand->form.w_step;
  return (struct variant_tensors){.given = true,
                                  .x_turned = operand->form.x_turned,
                                  .w_turned = operand->form.w_turned,
                                  .align = (int)lowest_bit(bits)};
}

struct book_entry *tuner_launch_tensors(struct tuner *tuner, uint32_t user, struct backend_job *job) {
  const struct book_visit visit = {.user = user, .now_ns = tuner->last_request_ns};
  const struct variant_problem problem = {.weight = job->operand->shape,
                                          .m = variant_bucket(job->m),
                                          .x_type = job->x_type,
                                          .y_type = job->y_type,
                                          .bias_type = job->bias != NULL ? job->bias_type : GEMM_TYPE_NONE,
                                          .tensors = tensors_of(job)};
  return launch(tuner, &problem, NULL, NULL, &visit, job);
}

void tuner_finished(struct tuner *tuner, struct book_entry *entry, uint64_t device_ns) {
  tuner->last_request_ns = clock_ns();
  if (entry == NULL)
    return;
  entry->calls++;
  entry->device_ns += device_ns;
  tuner->served.ns[tuner->served.count++ % SERVED_TIMES] = device_ns;
}

/* ---- bursts */

/* What one product in 64 takes: so long one call in a hundred takes anyway. 0: not known. */
static uint64_t served_ns(const struct tuner *tuner) {
  uint64_t longest[SERVED_RARE] = {0};
  for (int i = 0; i < SERVED_TIMES; i++) {
    uint64_t ns = tuner->served.ns[i];
    for (int place = 0; place < SERVED_RARE; place++)
      if (ns > longest[place]) {
        uint64_t less = longest[place];
        longest[place] = ns;
        ns = less;
      }
  }
  return tuner->served.count < SERVED_TIMES ? 0 : longest[SERVED_RARE - 1];
}

/* That a burst takes at most; what is foretold of a launch is half as long again as the average. */
static uint64_t burst_limit(const struct tuner *tuner) {
  uint64_t served = served_ns(tuner) * 3 / 2;
  return served > tuner->options.burst_ns ? served : tuner->options.burst_ns;
}

/* That a burst which has taken `elapsed` is to take at most: as long as products commonly take it may come more often.
 */
static uint64_t common_limit(const struct tuner *tuner, uint64_t elapsed) {
  uint64_t served = served_ns(tuner);
  return elapsed <= served ? served : tuner->options.burst_ns;
}

/* What a launch of the backend's own choice takes, about; 0: not known. */
static uint64_t launch_ns(const struct tuner *tuner) {
  const struct book_entry *entry = tuner->current;
  return tuner->launch_ns > 0                       ? tuner->launch_ns
         : entry->own_ns > 0                        ? entry->own_ns
         : entry->calls > 0 && entry->device_ns > 0 ? entry->device_ns / entry->calls
                                                    : 0;
}

/* Kernels of a library, and those that were compiled, are loaded when they first run, which takes milliseconds. */
static bool may_be_loaded(const struct tuner *tuner, const struct variant *variant) {
  const struct backend_ops *ops = tuner->options.ops;
  return variant->family != NULL &&
         (variant->family->library || (ops->variant_foreign != NULL && ops->variant_foreign(variant)));
}

/* Whether the race goes on with one that was compiled, which is loaded before it is compared. */
static bool loads_next(const struct tuner *tuner) {
  bool unchecked = false;
  for (int i = 0; i < tuner->race.count && tuner->compiled && !unchecked; i++)
    unchecked = tuner->race.candidates[i].state == RACE_UNCHECKED;
  return unchecked && !tuner->comparing;
}

/* What a piece of a trial takes, with what it may take beyond that. */
static uint64_t piece_ns(const struct tuner *tuner) {
  uint64_t piece = trial_piece_ns(&tuner->trial);
  return piece + piece / 5;
}

/* What a piece of the race takes, about. */
static uint64_t race_piece_ns(const struct tuner *tuner, uint64_t launch) {
  bool first_launch = tuner->comparing && trial_launches_next(&tuner->trial);
  if (loads_next(tuner) || (first_launch && may_be_loaded(tuner, &tuner->trial.variant)))
    return TUNER_UNKNOWN_NS;
  if (tuner->comparing)
    return trial_launches_next(&tuner->trial) ? launch : piece_ns(tuner);
  uint64_t sample = (tuner->launch_ns > 0 ? tuner->launch_ns : launch) * tuner->launches;
  return sample > tuner->sample_ns ? sample : tuner->sample_ns;
}

/* What the next piece takes, about. */
static uint64_t next_piece_ns(const struct tuner *tuner) {
  uint64_t average = launch_ns(tuner), launch = average > 0 ? average * 3 / 2 : TUNER_UNKNOWN_NS;
  switch (tuner->phase) {
  case PHASE_PREPARE: /* for launches that will not fit either, there is nothing to prepare now */
    return average > 0 && launch > piece_ns(tuner) ? launch : piece_ns(tuner);
  case PHASE_OWN:
  case PHASE_GIVEN:
    if (may_be_loaded(tuner, &tuner->given) && tuner->phase == PHASE_GIVEN)
      return TUNER_UNKNOWN_NS;
    return tuner->comparing && !trial_launches_next(&tuner->trial) ? piece_ns(tuner) : launch;
  case PHASE_LIST:
    return piece_ns(tuner);
  case PHASE_LIBRARY:
    return TUNER_UNKNOWN_NS;
  case PHASE_RACE:
  case PHASE_PROOF:
    break;
  }
  return race_piece_ns(tuner, launch);
}

/* So that a sample is long against what starting it takes, and no longer. */
static uint32_t launches_for(const struct tuner *tuner, uint64_t ns) {
  uint64_t launches = ns > 0 ? trial_piece_ns(&tuner->trial) / ns : 1;
  return launches < 1 ? 1 : launches > LAUNCHES_MOST ? LAUNCHES_MOST : (uint32_t)launches;
}

static bool still_quiet(const struct tuner *tuner, uint64_t now) {
  return tuner->options.mode == TUNE_EAGER || tuner->last_request_ns == 0 ||
         now - tuner->last_request_ns >= tuner->options.quiet_ns;
}

static uint64_t wait_until(uint64_t when, uint64_t now) {
  return when > now ? when - now : 0;
}

/* Takes up the shape where most is to be won. Returns after how many ns to look again, 0: one has been taken up, or is
 * to be looked for at once. */
static uint64_t choose(struct tuner *tuner, uint64_t now, bool quiet) {
  if (tuner->settled)
    return UINT64_MAX;
  if (!tuner->waiting || quiet) {
    struct book_entry *entry = book_next(&tuner->book, tuner->options.mode == TUNE_OFF, quiet, &tuner->waiting);
    tuner->settled = entry == NULL && !tuner->waiting;
    if (entry != NULL)
      (void)tuner_begin(tuner, entry);
    if (entry != NULL || tuner->settled)
      return entry != NULL ? 0 : UINT64_MAX;
  }
  return wait_until(tuner->last_request_ns + tuner->options.quiet_ns, now);
}

/* Somebody has asked for what is at hand, or set its kernel. */
static bool by_hand(const struct tuner *tuner) {
  return tuner->ask != NULL || (tuner->current != NULL && tuner->current->pin != NULL);
}

/* Others use the device, or may: what nobody asks for waits, wherever it stands. Returns as tuner_step does. */
static uint64_t hold_back(struct tuner *tuner) {
  bool waits;
  proof_stop(&tuner->proof);
  if (tuner->current != NULL)
    return UINT64_MAX;
  struct book_entry *asked = book_next(&tuner->book, true, true, &waits);
  if (asked != NULL) {
    (void)tuner_begin(tuner, asked);
    return 0;
  }
  tuner->settled = tuner->options.mode == TUNE_OFF || book_next(&tuner->book, false, true, &waits) == NULL;
  return UINT64_MAX;
}

/* What comes next for the shape at hand takes a while without requests: it is set aside where another one can make use
 * of the time, else it waits with what has been found so far. Returns as tuner_step does. */
static uint64_t take_turns(struct tuner *tuner, uint64_t now) {
  struct book_entry *next = NULL;
  if (!tuner->waiting) {
    tuner->current->aside = true;
    next = book_next(&tuner->book, tuner->options.mode == TUNE_OFF, false, &tuner->waiting);
    tuner->current->aside = next != NULL;
    tuner->waiting = next == NULL;
  }
  if (next == NULL)
    return wait_until(tuner->last_request_ns + tuner->options.quiet_ns, now);
  tuner_leave(tuner);
  (void)tuner_begin(tuner, next);
  return 0;
}

/* A sample that took longer than its launches should: it may have been an accident, and is tried again some time. */
static bool excused(struct tuner *tuner, uint64_t limit) {
  uint64_t launches = tuner->launch_ns * tuner->launches;
  if (tuner->phase != PHASE_RACE || tuner->comparing || launches > limit)
    return false;
  tuner->sample_ns /= 2;
  return true;
}

/* Another thread has the driver, or is about to. */
static bool held(const struct tuner *tuner) {
  return atomic_load(&tuner->holds) > 0;
}

/* Pieces of work until the burst is over. *too_long: the next one does not fit into any. */
static enum status burst(struct tuner *tuner, bool patient, bool (*wanted)(void *user), void *user, uint64_t *elapsed,
                         bool *too_long, struct error *lost) {
  uint64_t begin = clock_ns(), limit = burst_limit(tuner);
  struct error error;
  while (tuner->current != NULL && tuner->phase != PHASE_PROOF && tuner->phase != PHASE_LIBRARY &&
         !tuner_notes(tuner) && !held(tuner) && !wanted(user)) {
    tuner->launches = launches_for(tuner, tuner->launch_ns);
    uint64_t piece = next_piece_ns(tuner);
    bool fits = *elapsed + piece <= (*elapsed > 0 ? common_limit(tuner, *elapsed) : limit);
    *too_long = !patient && piece > limit && !excused(tuner, limit);
    if (!fits && (*elapsed > 0 || !patient))
      break;
    if (tuner_work(tuner, &error) == STATUS_DEVICE_LOST) {
      *lost = error;
      return STATUS_DEVICE_LOST;
    }
    uint64_t after = tuner->worked_ns = clock_ns();
    tuner->spent_ns += after - begin - *elapsed;
    *elapsed = after - begin;
    if (tuner->current != NULL && tuner->ask == NULL && tuner->phase == PHASE_RACE &&
        tuner->spent_ns > tuner->options.budget_ns)
      race_hurry(&tuner->race);
  }
  return STATUS_OK;
}

/* Thousandths of the time that bursts such as this one may take: the fewer, the longer it is against what products
 * commonly take. */
static uint64_t share_after(const struct tuner *tuner, uint64_t elapsed) {
  uint64_t least = tuner->options.share, most = SHARE_MORE * least;
  uint64_t share = elapsed > 0 ? most * served_ns(tuner) / elapsed : most;
  share = share < least ? least : share > most ? most : share;
  return share < 1000 ? share : 1000;
}

static uint64_t step(struct tuner *tuner, uint64_t now, bool (*wanted)(void *user), void *user, struct error *lost) {
  bool quiet = still_quiet(tuner, now);
  bool held = now >= tuner->allowed_until_ns && tuner->options.mode != TUNE_EAGER;
  if (held && !tuner->settled && !by_hand(tuner)) {
    uint64_t wait = hold_back(tuner);
    if (!by_hand(tuner))
      return wait;
  }
  if (tuner->current == NULL) {
    uint64_t wait = choose(tuner, now, quiet);
    if (tuner->current == NULL)
      return wait;
  }
  if (tuner_notes(tuner))
    return NOTE_NAP_NS;
  bool patient = tuner->patient = quiet || tuner->ask != NULL; /* whoever asked by hand wants it now */
  if (tuner->phase == PHASE_PROOF && (quiet || tuner->ask != NULL))
    return tuner_proof_step(tuner, now, quiet);
  if (!quiet && now < tuner->not_before_ns)
    return wait_until(tuner->not_before_ns, now);
  if (tuner->phase == PHASE_LIBRARY && patient && !tuner_race_library(tuner))
    return LIST_NAP_NS;
  uint64_t elapsed = 0;
  bool too_long = (tuner->phase == PHASE_PROOF || tuner->phase == PHASE_LIBRARY) && !patient;
  if (!too_long && burst(tuner, patient, wanted, user, &elapsed, &too_long, lost) != STATUS_OK)
    return UINT64_MAX;
  if (quiet)
    return 0;
  tuner->not_before_ns = now + elapsed + elapsed * 1000 / share_after(tuner, elapsed);
  return too_long ? take_turns(tuner, now + elapsed) : wait_until(tuner->not_before_ns, now + elapsed);
}

uint64_t tuner_step(struct tuner *tuner, uint64_t now, bool (*wanted)(void *user), void *user, struct error *lost) {
  uint64_t wait = HELD_NAP_NS;
  atomic_store(&tuner->stepping, true);
  if (!held(tuner))
    wait = step(tuner, now, wanted, user, lost);
  else if (tuner->current == NULL && tuner->settled)
    wait = UINT64_MAX;
  atomic_store(&tuner->stepping, false);
  atomic_store_explicit(&tuner->has_work, tuner->current != NULL || !tuner->settled, memory_order_release);
  return wait;
}

void tuner_hold(struct tuner *tuner) {
  const struct timespec nap = {.tv_nsec = HOLD_NAP_NS};
  atomic_fetch_add(&tuner->holds, 1);
  for (int naps = 0; atomic_load(&tuner->stepping) && naps < HOLD_NAPS_MOST; naps++)
    nanosleep(&nap, NULL);
}

void tuner_release(struct tuner *tuner) {
  atomic_fetch_sub(&tuner->holds, 1);
}

uint64_t tuner_worked_ns(const struct tuner *tuner) {
  return tuner->worked_ns;
}

void tuner_rest(struct tuner *tuner) {
  if (tuner->options.ops->on_cores && tuner->current == NULL)
    (void)madvise(tuner->trial.base, tuner->trial.bytes, MADV_DONTNEED);
}

bool tuner_has_work(const struct tuner *tuner) {
  return atomic_load_explicit(&tuner->has_work, memory_order_acquire);
}

/* ---- ends */

void tuner_weight_gone(struct tuner *tuner, struct engine_weight *weight) {
  struct book_entry *current = tuner->current;
  bool used = false;
  for (uint32_t i = 0; current != NULL && i < current->weight_count; i++)
    used |= current->weights[i] == weight->device;
  if (used) {
    tuner_answer(tuner, STATUS_CANCELLED, "the weight was unloaded");
    tuner_leave(tuner);
  }
  tuner_cancel_asks(tuner, weight);
  tuner_unpin(tuner, weight);
  book_weight_gone(&tuner->book, weight->device);
}

void tuner_stop(struct tuner *tuner) {
  tuner_answer(tuner, STATUS_CANCELLED, "the worker ends");
  tuner_cancel_asks(tuner, NULL);
  tuner_leave(tuner);
}
