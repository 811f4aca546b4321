/* The fastest kernels for this process's own products, looked for in this process: the race that the worker runs, over
 * the candidates of the same table of families, without those whose code no test has seen. */
#include "../../kernels/race.h"
#include "error.h"
#include "trial.h"
#include "tuned.h"

#include <stdlib.h>
#include <time.h>

enum {
  CANDIDATES = 64,
  LIBRARY_CANDIDATES = 24,
  BASES = 3,     /* the best ones that are refined */
  IN_TURN = 256, /* weights that are computed with one after the other, at most */
  LAUNCHES_LEAST = 4,
  LAUNCHES_MOST = 64,
  BUDGET_USUAL_MS = 1000,
};
#define SAMPLE_NS 200000 /* that one sample takes, about */

struct search {
  struct gemmd_direct *direct;
  struct gemmd_direct_weight *weight;
  struct variant_problem problem;
  struct variant before; /* that products use at present; no family: what the library chooses */
  struct trial trial;
  struct backend_weight *weights[IN_TURN];
  size_t weight_count;
  uint32_t launches;
  uint64_t hurry_ns, end_ns; /* of the clock: when the race goes on to its final, when it is left */
  struct race race;
  struct variant list[CANDIDATES];
};

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- under direct_enter */

/* The M that a bucket is tuned with: its largest, as far as products may have so many rows. */
static int64_t rows_of(const struct search *search) {
  return search->problem.m < search->direct->rows_most ? search->problem.m : search->direct->rows_most;
}

/* Those of the shape that this process has, the one that was asked for first. */
static void weights_find(struct search *search) {
  const struct gemm_weight *shape = &search->weight->shape;
  search->weights[search->weight_count++] = search->weight->handle;
  struct gemmd_direct_weight *each;
  LIST_FOREACH (each, &search->direct->weights, link)
    if (each != search->weight && each->shape.n == shape->n && each->shape.k == shape->k &&
        each->shape.format == shape->format && each->shape.scale == shape->scale && search->weight_count < IN_TURN)
      search->weights[search->weight_count++] = each->handle;
}

static enum status time_one(struct search *search, const struct variant *variant, uint64_t *ns, struct error *error) {
  const struct backend_timing timing = {
      .launches = search->launches, .quantize = true, .dependent = true, .lane = search->trial.lane};
  struct backend_job job = search->trial.job;
  job.variant = variant;
  return search->direct->ops->measure(search->direct->backend, &job, search->weights, search->weight_count, &timing, ns,
                                      error);
}

static void add(struct search *search, int count) {
  const struct backend_ops *ops = search->direct->ops;
  for (int i = 0; i < count; i++)
    if (ops->variant_foreign == NULL || !ops->variant_foreign(&search->list[i]))
      (void)race_add(&search->race, &search->list[i]);
}

/* The library's own choice first, which serves where nothing was found. */
static enum status begin(struct search *search, int lane, struct error *error) {
  const struct backend_ops *ops = search->direct->ops;
  struct backend *backend = search->direct->backend;
  uint64_t ns = 0;
  weights_find(search);
  enum status status = trial_open(&search->trial, search->weight, &search->problem, rows_of(search), lane, error);
  int count = ops->variants(backend, &search->problem, NULL, false, search->list, CANDIDATES);
  if (status == STATUS_OK)
    status = ops->variant_check(backend, &search->problem, &search->list[0], NULL, error);
  search->launches = LAUNCHES_LEAST;
  if (status == STATUS_OK)
    status = time_one(search, &search->list[0], &ns, error);
  if (status != STATUS_OK)
    return status;
  uint64_t launches = SAMPLE_NS / (ns > 0 ? ns : 1);
  search->launches = launches < LAUNCHES_LEAST  ? LAUNCHES_LEAST
                     : launches > LAUNCHES_MOST ? LAUNCHES_MOST
                                                : (uint32_t)launches;
  race_start(&search->race, &search->list[0], false);
  search->race.candidates[0].state = RACE_RUNNING;
  if (search->before.family != NULL)
    (void)race_add(&search->race, &search->before);
  add(search, count);
  if (ops->library_variants != NULL)
    add(search, ops->library_variants(backend, &search->problem, false, search->list, LIBRARY_CANDIDATES));
  return STATUS_OK;
}

/* One that can run and computes what it should stays in the race. */
static enum status check(struct search *search, int who, struct error *error) {
  struct variant *variant = &search->race.candidates[who].variant;
  bool right = false;
  enum status status =
      search->direct->ops->variant_check(search->direct->backend, &search->problem, variant, NULL, error);
  if (status == STATUS_OK)
    status = trial_compare(&search->trial, &search->problem, variant, &right, error);
  race_checked(&search->race, who, right);
  return status == STATUS_DEVICE_LOST || status == STATUS_BUSY ? status : STATUS_OK;
}

static enum status time_candidate(struct search *search, int who, struct error *error) {
  uint64_t ns = 0;
  enum status status = time_one(search, &search->race.candidates[who].variant, &ns, error);
  if (status == STATUS_OK)
    race_timed(&search->race, who, ns);
  else
    race_failed(&search->race, who);
  return status == STATUS_DEVICE_LOST || status == STATUS_BUSY ? status : STATUS_OK;
}

static void refine(struct search *search) {
  const struct race *race = &search->race;
  int order[CANDIDATES], bases[BASES], base_count = 0, ordered = race_ahead(race, order, CANDIDATES);
  for (int i = 0; i < ordered && base_count < BASES; i++)
    if (race->candidates[order[i]].state == RACE_RUNNING)
      bases[base_count++] = order[i];
  for (int i = 0; i < base_count; i++) {
    const struct variant base = race->candidates[bases[i]].variant;
    add(search, search->direct->ops->variants(search->direct->backend, &search->problem, &base, false, search->list,
                                              CANDIDATES));
  }
  race_refined(&search->race);
}

static enum status step(struct search *search, bool *over, struct error *error) {
  const struct race_step next = race_next(&search->race);
  switch (next.verb) {
  case RACE_CHECK:
    return check(search, next.who, error);
  case RACE_TIME:
    return time_candidate(search, next.who, error);
  case RACE_REFINE:
    refine(search);
    return STATUS_OK;
  default:
    *over = true;
    return STATUS_OK;
  }
}

/* ---- one bucket of rows */

/* Other threads' products that have to look something up go between the steps. */
static enum status run(struct search *search, int lane, struct error *error) {
  struct gemmd_direct *direct = search->direct;
  bool over = false;
  void *saved = direct_enter(direct);
  enum status status = begin(search, lane, error);
  direct_leave(direct, saved);
  while (status == STATUS_OK && !over && now_ns() < search->end_ns) {
    if (now_ns() > search->hurry_ns)
      race_hurry(&search->race);
    saved = direct_enter(direct);
    status = step(search, &over, error);
    direct_leave(direct, saved);
  }
  saved = direct_enter(direct);
  trial_close(&search->trial);
  direct_leave(direct, saved);
  return status;
}

/* gemmd tries it itself; one that takes no proposals, or is gone, finds its own. */
static void propose(const struct search *search, const struct variant *variant) {
  const struct variant_problem *problem = &search->problem;
  char text[VARIANT_TEXT_BYTES];
  const gemmd_proposal proposal = {.m = problem->m,
                                   .x_type = (enum gemmd_type)problem->x_type,
                                   .y_type = (enum gemmd_type)problem->y_type,
                                   .bias_type = (enum gemmd_type)problem->bias_type,
                                   .kernel = variant_text(variant, text)};
  (void)!gemmd_tune_propose(search->direct->session, search->weight->borrowed, &proposal);
}

/* The kernel that products use at present takes part, and stays where nothing beats it. */
static enum status bucket_tune(struct search *search, int lane, unsigned *found, struct error *error) {
  const struct race *race = &search->race;
  if (!tuned_current(search->direct, &search->problem, &search->before))
    search->before.family = NULL;
  enum status status = run(search, lane, error);
  if (status != STATUS_OK || !race->over || race->winner == 0)
    return status;
  const struct variant *winner = &race->candidates[race->winner].variant;
  if (variant_equal(winner, &search->before))
    return STATUS_OK;
  ++*found;
  propose(search, winner);
  return tuned_set(search->direct, &search->problem, winner, error);
}

/* ---- all of it */

static enum status tuning_check(const struct gemmd_direct_weight *weight, const gemmd_direct_tuning *tuning,
                                struct error *error) {
  const struct gemmd_direct *direct = weight->direct;
  if (tuning->bytes < sizeof *tuning)
    return error_set(error, STATUS_INVALID, "bytes of the tuning must be at least %zu, got %zu", sizeof *tuning,
                     tuning->bytes);
  if (tuning->lane < 0 || tuning->lane >= direct->lanes)
    return error_set(error, STATUS_INVALID, "lane must be 0..%d, got %d", direct->lanes - 1, tuning->lane);
  if (tuning->row_count == 0 || tuning->rows == NULL)
    return error_set(error, STATUS_INVALID, "rows must name at least one M");
  for (unsigned i = 0; i < tuning->row_count; i++)
    if (tuning->rows[i] < 1 || tuning->rows[i] > direct->rows_most)
      return error_field(error, STATUS_INVALID, FIELD_M, tuning->rows[i], 1, direct->rows_most);
  if (!gemm_takes_x(weight->shape.format, (enum gemm_type)tuning->x_type))
    return error_field(error, STATUS_UNSUPPORTED, FIELD_X_TYPE, tuning->x_type, 1, 0);
  if (!gemm_takes_y(weight->shape.format, (enum gemm_type)tuning->x_type, (enum gemm_type)tuning->y_type))
    return error_field(error, STATUS_UNSUPPORTED, FIELD_Y_TYPE, tuning->y_type, 1, 0);
  return STATUS_OK;
}

static bool seen_before(const gemmd_direct_tuning *tuning, unsigned at) {
  for (unsigned i = 0; i < at; i++)
    if (variant_bucket(tuning->rows[i]) == variant_bucket(tuning->rows[at]))
      return true;
  return false;
}

static enum status tune(struct gemmd_direct_weight *weight, const gemmd_direct_tuning *tuning, struct search *search,
                        unsigned *found, struct error *error) {
  uint64_t budget_ns = (uint64_t)(tuning->budget_ms > 0 ? tuning->budget_ms : BUDGET_USUAL_MS) * 1000000u;
  uint64_t begin_ns = now_ns();
  enum status status = STATUS_OK;
  for (unsigned i = 0; i < tuning->row_count && status == STATUS_OK; i++) {
    if (seen_before(tuning, i))
      continue;
    uint64_t now = now_ns(), spent = now - begin_ns;
    uint64_t share = spent < budget_ns ? (budget_ns - spent) / (tuning->row_count - i) : 0;
    search->direct = weight->direct;
    search->weight = weight;
    search->weight_count = 0;
    search->problem = (struct variant_problem){.weight = weight->shape,
                                               .m = variant_bucket(tuning->rows[i]),
                                               .x_type = (enum gemm_type)tuning->x_type,
                                               .y_type = (enum gemm_type)tuning->y_type,
                                               .bias_type = (enum gemm_type)tuning->bias_type};
    search->hurry_ns = now + share * 7 / 10;
    search->end_ns = now + share;
    status = bucket_tune(search, tuning->lane, found, error);
  }
  return status;
}

int gemmd_direct_tune(gemmd_direct_weight *weight, const gemmd_direct_tuning *tuning, unsigned *found) {
  struct error error = {0};
  unsigned ignored = 0;
  found = found != NULL ? found : &ignored;
  *found = 0;
  enum status status = tuning_check(weight, tuning, &error);
  if (status != STATUS_OK)
    return direct_result(status, &error);
  struct search *search = malloc(sizeof *search);
  if (search == NULL)
    return direct_result(error_set(&error, STATUS_NOMEM, "no memory to tune with"), &error);
  status = tune(weight, tuning, search, found, &error);
  free(search);
  return direct_result(status, &error);
}
