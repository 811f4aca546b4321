#include "planted.h"

#include "tests/support/system/folder.h"

#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const struct variant_family planted_family = {
    .name = "planted", .count = 1, .parameters = {{"crime", "that it commits", 0, CRIMES - 1, 1, 0}}};

const struct variant_family planted_foreign = {
    .name = "foreign", .library = true, .count = 1, .parameters = {{"number", "of its kernel", 0, 9, 1, 0}}};

struct planted planted;

static bool is_planted(const struct variant *variant) {
  return variant != NULL && variant->family == &planted_family;
}

enum crime planted_crime(const struct variant *variant) {
  return is_planted(variant) ? (enum crime)variant->values[0] : HONEST;
}

static void commit(const struct backend_job *job, enum crime crime) {
  float *y = job->y;
  size_t stride = job->y_stride / sizeof *y;
  bool ragged = job->m != variant_bucket(job->m);
  if (crime == WRONG || (crime == ONLY_RAGGED && ragged) || (crime == HONEST && planted.convicted))
    y[stride * (size_t)(job->m - 1) + TUNING_N / 2] += 1;
  if (crime == BEHIND)
    y[TUNING_N] = 0;
  if (crime == UNWRITTEN)
    memset(&y[TUNING_N - 1], 0xff, sizeof *y);
  if (crime == MIXED_ROWS && job->m > 8)
    memcpy(y + 8 * stride, y, TUNING_N * sizeof *y);
}

static enum status planted_submit(struct backend *backend, const struct backend_job *job, struct error *error) {
  struct backend_job plain = *job;
  planted.trials++;
  planted.trials_awake += job->awake;
  if (job->variant != NULL && job->variant->family == &planted_foreign) {
    planted.foreign_launches++;
    plain.variant = NULL;
    return cpu_backend.submit(backend, &plain, error);
  }
  if (!is_planted(job->variant))
    return cpu_backend.submit(backend, job, error);
  enum crime crime = planted_crime(job->variant);
  planted.launched[crime]++;
  if (crime == FAULTING)
    raise(SIGKILL);
  if (crime == HANGING)
    pause();
  if (crime == FAILING)
    return error_set(error, STATUS_UNSUPPORTED, "it never runs");
  plain.variant = NULL;
  enum status status = cpu_backend.submit(backend, &plain, error);
  commit(job, crime);
  return status;
}

static int planted_variants(struct backend *backend, const struct variant_problem *problem, const struct variant *base,
                            bool all, struct variant *out, int most) {
  if (base != NULL)
    return 0;
  int count = cpu_backend.variants(backend, problem, NULL, all, out, 1);
  for (int crime = CRIMES - 1; crime >= 0 && count < most; crime--) /* the honest one last */
    if (planted.offered[crime]) {
      out[count] = variant_default(&planted_family);
      out[count++].values[0] = crime;
    }
  return count;
}

static int compiled_variants(struct backend *backend, const struct variant_problem *problem, bool all,
                             struct variant *out, int most) {
  struct variant list[CRIMES + 1];
  int count = planted_variants(backend, problem, NULL, all, list, most < CRIMES ? most + 1 : CRIMES + 1) - 1;
  memcpy(out, list + 1, (size_t)count * sizeof *out);
  return count;
}

static int own_variant(struct backend *backend, const struct variant_problem *problem, const struct variant *base,
                       bool all, struct variant *out, int most) {
  return base != NULL ? 0 : cpu_backend.variants(backend, problem, NULL, all, out, 1);
}

static int foreign_variants(struct backend *backend, const struct variant_problem *problem, bool all,
                            struct variant *out, int most) {
  (void)backend, (void)problem, (void)all;
  while (sem_wait(&planted.may_list) != 0)
    ;
  for (int i = 0; i < 4 && i < most; i++)
    out[i] = (struct variant){.family = &planted_foreign, .values = {i}};
  return 4;
}

static enum status planted_check(struct backend *backend, const struct variant_problem *problem,
                                 struct variant *variant, struct variant *nearest, struct error *error) {
  if (is_planted(variant) && problem->m < planted.rows) {
    if (nearest != NULL)
      *nearest = (struct variant){.family = &planted_foreign};
    return error_set(error, STATUS_UNSUPPORTED,
                     "so few rows as %lld are none that any of the kernels planted here would take, whatever their "
                     "crime, at least %lld",
                     (long long)problem->m, (long long)planted.rows);
  }
  return variant->family == &planted_family || variant->family == &planted_foreign
             ? STATUS_OK
             : cpu_backend.variant_check(backend, problem, variant, nearest, error);
}

static enum status planted_measure(struct backend *backend, const struct backend_job *job,
                                   struct backend_weight *const *weights, size_t count,
                                   const struct backend_timing *timing, uint64_t *ns, struct error *error) {
  (void)backend, (void)weights, (void)count, (void)error;
  planted.trials++;
  planted.trials_awake += job->awake;
  planted.warmed += timing->launches > 16;
  planted.timed++;
  const struct timespec nap = {.tv_nsec = (long)planted.timing_ns};
  nanosleep(&nap, NULL);
  uint64_t time = job->variant->family == &planted_foreign
                      ? planted.foreign_time + (uint64_t)job->variant->values[0] * 100
                  : is_planted(job->variant) ? planted.times[planted_crime(job->variant)]
                                             : planted.own_time;
  *ns = (uint64_t)((double)time * (1 + planted.noise * oracle_uniform(&planted.randomness)));
  return STATUS_OK;
}

static enum status planted_build(struct backend *backend, const struct variant_problem *problem,
                                 const struct variant *variant, struct error *error) {
  (void)backend, (void)problem;
  return planted_crime(variant) == UNBUILT ? error_set(error, STATUS_INTERNAL, "the compiler complains") : STATUS_OK;
}

/* ---- one device, one weight, one tuner */

void planted_open(enum tune_mode mode) {
  struct tuner_options options = tuning_options(mode);
  options.state_dir = folder;
  tuning_start(&options);
}

void planted_follow(enum tune_mode mode, bool outside) {
  struct tune_request request = {.verb = TUNE_FOLLOW, .outside = outside, .faults = !outside};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  struct tuner_options options = tuning_options(mode);
  options.state_dir = folder;
  options.heir = true;
  tuning_start(&options);
  tuner_request(tuning.tuner, &message);
}

const struct variant *planted_serving(void) {
  return tuning_serving(TUNING_ROWS, 20000);
}

static void plant(const struct variant_family *library, bool unseen) {
  tuning_plant(&planted_family, library);
  tuning.ops.submit = planted_submit;
  tuning.ops.variants = planted_variants;
  tuning.ops.library_variants = library != NULL ? foreign_variants : NULL;
  tuning.ops.variant_check = planted_check;
  tuning.ops.measure = planted_measure;
  tuning.ops.variant_foreign = unseen ? is_planted : NULL;
  tuning.ops.variant_build = planted_build;
}

void planted_plant(bool unseen) {
  plant(NULL, unseen);
}

int planted_set_up(void **state) {
  planted_plant(false);
  planted = (struct planted){.own_time = 10000};
  sem_init(&planted.may_list, 0, 0);
  tuning_open();
  return folder_make(state);
}

int planted_tear_down(void **state) {
  sem_post(&planted.may_list); /* for a list that nobody waits for any more */
  tuning_close();
  sem_destroy(&planted.may_list);
  return folder_remove(state);
}

void planted_offer(enum crime crime, uint64_t time) {
  planted.offered[crime] = true;
  planted.times[crime] = time;
}

void planted_compiled(uint64_t time) {
  plant(&planted_foreign, true);
  planted.foreign_time = time;
  tuning.ops.variants = own_variant;
  tuning.ops.compiled_variants = compiled_variants;
}

void planted_library(uint64_t time) {
  plant(&planted_foreign, false);
  planted.foreign_time = time;
}
