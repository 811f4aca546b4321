/* The tuner over the real CPU backend with planted kernels and a planted clock: what is wrong, slow, faulting or only
 * lucky must never serve. This program is the engine's thread; a planted fault has a process of its own. */
#include "tests/support/folder.h"
#include "tests/support/tuning.h"

#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { N = TUNING_N, M = TUNING_ROWS };

/* ---- planted kernels: the CPU backend's own product, and then a crime */

enum crime { HONEST, WRONG, ONLY_RAGGED, BEHIND, UNWRITTEN, MIXED_ROWS, FAILING, FAULTING, CRIMES };

static const struct variant_family planted = {
    .name = "planted", .count = 1, .parameters = {{"crime", "that it commits", 0, CRIMES - 1, 1, 0}}};

/* A library that keeps everybody waiting for its list. */
static const struct variant_family foreign = {
    .name = "foreign", .library = true, .count = 1, .parameters = {{"number", "of its kernel", 0, 9, 1, 0}}};
static sem_t may_list;
static uint64_t foreign_time;
static int foreign_launches;

static uint64_t times[CRIMES]; /* that measure says; 0: as long as it takes */
static bool offered[CRIMES];
static uint64_t own_time;
static double noise; /* of measure, relative */
static uint64_t randomness;
static int launches;   /* of planted kernels */
static bool convicted; /* the honest one has turned wrong */

static enum crime crime_of(const struct variant *variant) {
  return variant != NULL && variant->family == &planted ? (enum crime)variant->values[0] : HONEST;
}

static void commit(const struct backend_job *job, enum crime crime) {
  float *y = job->y;
  size_t stride = job->y_stride / sizeof *y;
  bool ragged = job->m != variant_bucket(job->m);
  if (crime == WRONG || (crime == ONLY_RAGGED && ragged) || (crime == HONEST && convicted))
    y[stride * (size_t)(job->m - 1) + N / 2] += 1;
  if (crime == BEHIND)
    y[N] = 0;
  if (crime == UNWRITTEN)
    memset(&y[N - 1], 0xff, sizeof *y);
  if (crime == MIXED_ROWS && job->m > 8)
    memcpy(y + 8 * stride, y, N * sizeof *y);
}

static enum status planted_submit(struct backend *backend, const struct backend_job *job, struct error *error) {
  struct backend_job plain = *job;
  bool ours = job->variant != NULL && job->variant->family == &planted;
  if (job->variant != NULL && job->variant->family == &foreign) {
    foreign_launches++;
    plain.variant = NULL;
    return cpu_backend.submit(backend, &plain, error);
  }
  if (!ours)
    return cpu_backend.submit(backend, job, error);
  launches++;
  if (crime_of(job->variant) == FAULTING)
    raise(SIGKILL);
  if (crime_of(job->variant) == FAILING)
    return error_set(error, STATUS_UNSUPPORTED, "it never runs");
  plain.variant = NULL;
  enum status status = cpu_backend.submit(backend, &plain, error);
  commit(job, crime_of(job->variant));
  return status;
}

static int planted_variants(struct backend *backend, const struct variant_problem *problem, const struct variant *base,
                            bool all, struct variant *out, int most) {
  if (base != NULL)
    return 0;
  int count = cpu_backend.variants(backend, problem, NULL, all, out, 1);
  for (int crime = 0; crime < CRIMES && count < most; crime++)
    if (offered[crime]) {
      out[count] = variant_default(&planted);
      out[count++].values[0] = crime;
    }
  return count;
}

static int foreign_variants(struct backend *backend, const struct variant_problem *problem, bool all,
                            struct variant *out, int most) {
  (void)backend, (void)problem, (void)all;
  while (sem_wait(&may_list) != 0)
    ;
  for (int i = 0; i < 4 && i < most; i++)
    out[i] = (struct variant){.family = &foreign, .values = {i}};
  return 4;
}

static enum status planted_check(struct backend *backend, const struct variant_problem *problem,
                                 struct variant *variant, struct variant *nearest, struct error *error) {
  return variant->family == &planted || variant->family == &foreign
             ? STATUS_OK
             : cpu_backend.variant_check(backend, problem, variant, nearest, error);
}

static enum status planted_measure(struct backend *backend, const struct backend_job *job,
                                   struct backend_weight *const *weights, size_t count,
                                   const struct backend_timing *timing, uint64_t *ns, struct error *error) {
  (void)backend, (void)weights, (void)count, (void)timing, (void)error;
  bool ours = job->variant->family == &planted;
  uint64_t time = job->variant->family == &foreign ? foreign_time + (uint64_t)job->variant->values[0] * 100
                  : ours                           ? times[crime_of(job->variant)]
                                                   : own_time;
  *ns = (uint64_t)((double)time * (1 + noise * oracle_uniform(&randomness)));
  return STATUS_OK;
}

/* ---- one device, one weight, one tuner */

static void open_tuner(enum tune_mode mode) {
  struct tuner_options options = tuning_options(mode);
  options.state_dir = folder;
  tuning_start(&options);
}

static bool somebody_waits(void *user) {
  (void)user;
  return true;
}

static const struct variant *serving(void) {
  return tuning_serving(M, 20000);
}

static int set_up(void **state) {
  tuning_plant(&planted, NULL);
  tuning.ops.submit = planted_submit;
  tuning.ops.variants = planted_variants;
  tuning.ops.variant_check = planted_check;
  tuning.ops.measure = planted_measure;
  memset(offered, 0, sizeof offered);
  memset(times, 0, sizeof times);
  own_time = 10000;
  noise = 0;
  launches = foreign_launches = 0;
  convicted = false;
  sem_init(&may_list, 0, 0);
  tuning_open();
  return folder_make(state);
}

static int tear_down(void **state) {
  sem_post(&may_list); /* for a list that nobody waits for any more */
  tuning_close();
  sem_destroy(&may_list);
  return folder_remove(state);
}

static void offer(enum crime crime, uint64_t time) {
  offered[crime] = true;
  times[crime] = time;
}

static void test_the_fastest_serves(void **state) {
  (void)state;
  offer(HONEST, 5000);
  open_tuner(TUNE_EAGER);
  assert_null(serving());
  tuning_run();
  const struct variant *variant = serving();
  assert_non_null(variant);
  assert_ptr_equal(variant->family, &planted);
  assert_int_equal(tuning.saved, 1);
}

static void test_criminals_never_serve(void **state) {
  (void)state;
  for (int crime = WRONG; crime < FAULTING; crime++)
    offer((enum crime)crime, 10); /* a thousand times as fast as what is right */
  open_tuner(TUNE_EAGER);
  (void)serving();
  tuning_run();
  assert_null(serving());
  offer(HONEST, 9000);
  struct tune_request request = {.verb = TUNE_FORGET, .text = "*"};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  tuner_request(tuning.tuner, &message);
  assert_int_equal(request.count, 1);
  tuning_run();
  assert_int_equal(crime_of(serving()), HONEST);
}

static void test_what_is_wrong_is_not_tried_again(void **state) {
  (void)state;
  offer(WRONG, 10);
  open_tuner(TUNE_EAGER);
  (void)serving();
  tuning_run();
  assert_true(launches > 0);
  tuning_stop();
  launches = 0;
  open_tuner(TUNE_EAGER);
  (void)serving();
  tuning_run();
  assert_null(serving());
  assert_int_equal(launches, 0);
}

static void test_a_slow_one_does_not_serve(void **state) {
  (void)state;
  offer(HONEST, 50000);
  open_tuner(TUNE_EAGER);
  (void)serving();
  tuning_run();
  assert_null(serving());
}

/* The clock is off by up to a third, and nothing is faster than what serves. */
static void test_a_lucky_one_does_not_serve(void **state) {
  (void)state;
  int changed = 0;
  offer(HONEST, 10000);
  noise = 0.33;
  for (int i = 0; i < 20; i++) {
    struct tune_request request = {.verb = TUNE_FORGET, .text = "*"};
    struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
    if (i == 0)
      open_tuner(TUNE_EAGER);
    tuner_request(tuning.tuner, &message);
    randomness = (uint64_t)i;
    (void)serving();
    tuning_run();
    changed += serving() != NULL;
  }
  assert_true(changed <= 1);
}

static void test_a_fault_is_not_repeated(void **state) {
  (void)state;
  offer(FAULTING, 10);
  offer(HONEST, 5000);
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    /* The pool's threads are not here any more: a backend of its own. */
    struct backend_config config = {.in_flight = 2};
    struct error error;
    if (cpu_backend.open(&config, &tuning.device.backend, &error) != STATUS_OK)
      _exit(1);
    open_tuner(TUNE_EAGER);
    (void)serving();
    tuning_run();
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  open_tuner(TUNE_EAGER);
  (void)serving();
  tuning_run(); /* in this process: it would die of it */
  assert_int_equal(crime_of(serving()), HONEST);
  assert_non_null(serving());
}

static void test_kept_over_restarts(void **state) {
  (void)state;
  offer(HONEST, 5000);
  open_tuner(TUNE_EAGER);
  (void)serving();
  tuning_run();
  tuning_stop();
  offered[HONEST] = false; /* so that a search would not find it */
  open_tuner(TUNE_EAGER);
  assert_null(serving()); /* not before it has been compared in this process */
  tuning_run();
  assert_non_null(serving());
}

static void test_kept_but_wrong_now(void **state) {
  (void)state;
  offer(HONEST, 5000);
  open_tuner(TUNE_EAGER);
  (void)serving();
  tuning_run();
  tuning_stop();
  convicted = true;
  open_tuner(TUNE_EAGER);
  (void)serving();
  tuning_run();
  assert_null(serving());
}

/* Puts the library there; its fastest kernel takes `time`. */
static void plant_library(uint64_t time) {
  tuning_plant(&planted, &foreign);
  tuning.ops.submit = planted_submit;
  tuning.ops.variants = planted_variants;
  tuning.ops.library_variants = foreign_variants;
  tuning.ops.variant_check = planted_check;
  tuning.ops.measure = planted_measure;
  foreign_time = time;
}

/* Own kernels are raced and serve while the library has not said yet what it has; then it joins. */
static void test_nothing_waits_for_a_library(void **state) {
  (void)state;
  const struct variant *variant = NULL;
  plant_library(3000);
  offer(HONEST, 5000);
  open_tuner(TUNE_EAGER);
  while ((variant = serving()) == NULL)
    (void)tuning_step(TUNING_LATE);
  assert_ptr_equal(variant->family, &planted);
  for (int i = 0; i < 100; i++)
    (void)tuning_step(TUNING_LATE);
  assert_int_equal(foreign_launches, 0);
  assert_string_equal(tuning_listed().state, "tuned");
  sem_post(&may_list);
  tuning_run();
  assert_ptr_equal(serving()->family, &foreign);
  assert_int_equal(serving()->values[0], 0);
  assert_int_equal(tuning.saved, 2);
}

static void test_a_slower_library_changes_nothing(void **state) {
  (void)state;
  plant_library(6000);
  offer(HONEST, 5000);
  open_tuner(TUNE_EAGER);
  (void)serving();
  sem_post(&may_list);
  tuning_run();
  assert_ptr_equal(serving()->family, &planted);
  assert_true(foreign_launches > 0);
  assert_int_equal(tuning_listed().library_ns, 6000);
}

/* Asked for by hand, the answer has what the library names first, and its fastest. */
static void test_asked_for_with_a_library(void **state) {
  (void)state;
  struct tune_request request = {.verb = TUNE_ASK, .weight = &tuning.weight};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  request.problem = (struct variant_problem){.m = M, .x_type = GEMM_F32, .y_type = GEMM_F32};
  plant_library(3000);
  offer(HONEST, 5000);
  sem_post(&may_list);
  open_tuner(TUNE_OFF);
  tuner_request(tuning.tuner, &message);
  tuning_run();
  assert_string_equal(request.kernel, "foreign number=0");
  assert_int_equal(request.library_first_ns, 3000);
  assert_int_equal(request.library_ns, 3000);
  assert_int_equal(request.results[0].ns, 3000);
}

/* Steps of a tuner that always had a request a moment ago; *now, 0 at first, goes on a tenth of a second a step. */
static void run_under_load(uint64_t *now) {
  struct timespec clock;
  clock_gettime(CLOCK_MONOTONIC, &clock);
  uint64_t real = (uint64_t)clock.tv_sec * 1000000000u + (uint64_t)clock.tv_nsec;
  for (int i = 0; i < 7000; i++) {
    *now = *now + 100000000 > real ? *now + 100000000 : real;
    (void)tuning_step(*now);
  }
}

/* A library's kernels take milliseconds to load: under load they are left for later, and the next shape has its turn.
 * What was found is kept, also that the library is still to be tried. */
static void test_under_load_only_the_library_waits(void **state) {
  (void)state;
  uint64_t now = 0;
  plant_library(3000);
  offer(HONEST, 5000);
  for (int i = 0; i < 2; i++)
    sem_post(&may_list);
  open_tuner(TUNE_BACKGROUND);
  (void)tuning_serving(M, 20000);
  (void)tuning_serving(1, 20000);
  run_under_load(&now);
  assert_ptr_equal(tuning_serving(M, 20000)->family, &planted);
  assert_ptr_equal(tuning_serving(1, 20000)->family, &planted);
  assert_int_equal(foreign_launches, 0);
  tuning_stop();
  open_tuner(TUNE_BACKGROUND);
  (void)serving();
  run_under_load(&now);
  assert_ptr_equal(serving()->family, &planted);
  assert_int_equal(foreign_launches, 0);
  for (int i = 0; i < 2; i++)
    sem_post(&may_list);
  tuning_run();
  assert_ptr_equal(serving()->family, &foreign);
}

static void test_gives_way(void **state) {
  (void)state;
  struct error lost = {.status = STATUS_OK};
  offer(HONEST, 5000);
  open_tuner(TUNE_EAGER);
  (void)serving();
  for (int i = 0; i < 1000; i++)
    (void)tuner_step(tuning.tuner, UINT64_C(1) << 62, somebody_waits, NULL, &lost);
  assert_int_equal(launches, 0);
  assert_null(serving());
}

/* A product of 20 ms does not fit into a burst of 300 us: while requests come, it is not tried. */
static void test_long_ones_wait_for_quiet(void **state) {
  (void)state;
  offer(HONEST, 5000);
  open_tuner(TUNE_BACKGROUND);
  (void)tuning_serving(M, 20000000);
  uint64_t wait = 0, now = 0;
  for (int i = 0; i < 10000 && wait < UINT64_C(1000000000000); i++) {
    struct timespec clock;
    clock_gettime(CLOCK_MONOTONIC, &clock);
    now = (uint64_t)clock.tv_sec * 1000000000u + (uint64_t)clock.tv_nsec + (uint64_t)i * 1000000000;
    wait = tuning_step(now);
  }
  assert_true(wait >= UINT64_C(1000000000000)); /* the hour of quiet that the options ask for */
  assert_int_equal(launches, 0);
}

/* It is tuned in many short whiles without requests; what one has found is not lost in the next. */
static void test_long_ones_go_on_where_they_were(void **state) {
  struct timespec clock;
  (void)state;
  own_time = 20000000;
  offer(HONEST, 5000000);
  open_tuner(TUNE_BACKGROUND);
  for (int i = 0; i < 100000 && tuning_serving(M, 20000000) == NULL; i++) {
    clock_gettime(CLOCK_MONOTONIC, &clock);
    (void)tuning_step((uint64_t)clock.tv_sec * 1000000000u + (uint64_t)clock.tv_nsec);
    (void)tuning_step(TUNING_LATE);
  }
  assert_int_equal(crime_of(tuning_serving(M, 20000000)), HONEST);
  assert_non_null(tuning_serving(M, 20000000));
}

/* Whoever asks by hand does not wait for quiet, also where everything else does. */
static void test_asked_for_under_load(void **state) {
  (void)state;
  uint64_t now = 0;
  struct tune_request request = {.verb = TUNE_ASK, .weight = &tuning.weight};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  request.problem = (struct variant_problem){.m = 1, .x_type = GEMM_F32, .y_type = GEMM_F32};
  own_time = 20000000;
  offer(HONEST, 5000000);
  open_tuner(TUNE_BACKGROUND);
  (void)tuning_serving(M, 20000000);
  run_under_load(&now);
  assert_int_equal(tuning.answered, 0);
  tuner_request(tuning.tuner, &message);
  run_under_load(&now);
  assert_int_equal(tuning.answered, 1);
  assert_string_equal(request.kernel, "planted crime=0");
  assert_null(tuning_serving(M, 20000000)); /* that one still waits */
}

static void test_off_does_nothing_by_itself(void **state) {
  (void)state;
  offer(HONEST, 5000);
  open_tuner(TUNE_OFF);
  (void)serving();
  assert_int_equal(tuning_step(TUNING_LATE), UINT64_MAX);
}

static void test_asked_for_by_hand(void **state) {
  (void)state;
  struct tune_request request = {.verb = TUNE_ASK, .weight = &tuning.weight, .text = "planted crime=0"};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  request.problem = (struct variant_problem){.m = M, .x_type = GEMM_F32, .y_type = GEMM_F32};
  times[HONEST] = 4000;
  open_tuner(TUNE_OFF);
  tuner_request(tuning.tuner, &message);
  assert_int_equal(tuning.answered, 0);
  tuning_run();
  assert_int_equal(tuning.answered, 1);
  assert_ptr_equal(tuning.last_answer, &message);
  assert_int_equal(message.error.status, STATUS_OK);
  assert_string_equal(request.kernel, "planted crime=0");
  assert_string_equal(request.results[0].kernel, "planted crime=0");
  assert_int_equal(request.results[0].ns, 4000);
  assert_true(request.results[1].own);
  assert_non_null(serving());
}

static void test_the_roof(void **state) {
  (void)state;
  struct variant_problem problem = {
      .weight = {.n = 1000, .k = 2000, .format = GEMM_FORMAT_INT8}, .m = 10, .x_type = GEMM_F16, .y_type = GEMM_F32};
  assert_int_equal(book_roof_ns(&problem, 1000000000, UINT64_C(1000000000000)), 2000000 + 40000 + 40000);
  assert_int_equal(book_roof_ns(&problem, UINT64_C(1000000000000), 1000000000), 40000000);
  problem.weight.format = GEMM_FORMAT_F16;
  assert_int_equal(book_roof_ns(&problem, UINT64_C(1000000000000), 1000000000), 80000000);
  assert_int_equal(book_roof_ns(&problem, 0, 1), 0);
  assert_int_equal(book_roof_ns(&problem, 1, 0), 0);
  open_tuner(TUNE_OFF);
}

static void test_refused_by_hand(void **state) {
  (void)state;
  static const struct {
    const char *kernel, *why;
  } rows[] = {
      {"planted crime=99", "crime must be 0..7 in steps of 1, got 99"},
      {"planted crime", "NAME=VALUE is expected, got crime"},
      {"planted crime=x", "crime takes a number, got x"},
      {"planted threads=1", "kernels of family planted have no threads"},
      {"other", "this backend has no kernels of family other"},
      {"any nothing=1", "no family of this backend's kernels has all of: nothing=1"},
      {"cpu threads=200", "threads must be 0.."},
  };
  open_tuner(TUNE_OFF);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct tune_request request = {.verb = TUNE_ASK, .weight = &tuning.weight};
    struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
    request.problem = (struct variant_problem){.m = M, .x_type = GEMM_F32, .y_type = GEMM_F32};
    snprintf(request.text, sizeof request.text, "%s", rows[i].kernel);
    tuning.answered = 0;
    tuner_request(tuning.tuner, &message);
    assert_int_equal(tuning.answered, 1);
    assert_int_not_equal(message.error.status, STATUS_OK);
    if (strstr(message.error.text, rows[i].why) == NULL)
      fail_msg("%s: %s", rows[i].kernel, message.error.text);
  }
}

static void pin(const char *kernel, enum status expected) {
  struct tune_request request = {.verb = TUNE_PIN, .weight = &tuning.weight};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  snprintf(request.text, sizeof request.text, "%s", kernel);
  tuner_request(tuning.tuner, &message);
  assert_int_equal(message.error.status, expected);
}

static void test_pin(void **state) {
  (void)state;
  open_tuner(TUNE_OFF);
  pin("planted crime=0", STATUS_OK);
  assert_null(serving()); /* not before it has been compared */
  tuning_run();
  assert_non_null(serving());
  pin("planted crime=99", STATUS_INVALID);
  assert_non_null(serving()); /* as it was */
  pin("planted crime=1", STATUS_OK);
  (void)serving();
  tuning_run();
  assert_null(serving()); /* it is wrong */
  pin("", STATUS_OK);
  assert_null(tuning.weight.pin);
  assert_null(serving());
}

static void test_import_serves_after_its_check(void **state) {
  (void)state;
  char shape[VARIANT_TEXT_BYTES];
  struct variant_problem problem = {
      .weight = tuning.weight.shape, .m = variant_bucket(M), .x_type = GEMM_F32, .y_type = GEMM_F32};
  times[HONEST] = 5000;
  open_tuner(TUNE_EAGER);
  struct tune_request request = {.verb = TUNE_IMPORT, .text = "planted crime=0"};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  snprintf(request.shape, sizeof request.shape, "%s", variant_problem_text(&problem, shape));
  tuner_request(tuning.tuner, &message);
  assert_int_equal(message.error.status, STATUS_OK);
  assert_null(serving());
  struct tune_request list = {.verb = TUNE_LIST};
  message.tune = &list;
  tuner_request(tuning.tuner, &message);
  assert_int_equal(list.count, 1);
  assert_string_equal(list.page[0].state, "kept");
  assert_false(list.page[0].confirmed);
  tuning_run();
  assert_non_null(serving());
  tuner_request(tuning.tuner, &message);
  assert_true(list.page[0].confirmed);
  message.tune = &request;
  strcpy(request.shape, "int8-row-4x4-f32-f32-none-m3");
  tuner_request(tuning.tuner, &message);
  assert_int_equal(message.error.status, STATUS_INVALID);
}

static void test_a_weight_that_goes(void **state) {
  (void)state;
  struct tune_request request = {.verb = TUNE_ASK, .weight = &tuning.weight};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  request.problem = (struct variant_problem){.m = M, .x_type = GEMM_F32, .y_type = GEMM_F32};
  offer(HONEST, 5000);
  open_tuner(TUNE_OFF);
  pin("planted crime=0", STATUS_OK);
  tuner_request(tuning.tuner, &message);
  (void)tuning_step(TUNING_LATE);
  tuning.answered = 0;
  tuner_weight_gone(tuning.tuner, &tuning.weight);
  assert_int_equal(tuning.answered, 1);
  assert_int_equal(message.error.status, STATUS_CANCELLED);
  assert_null(tuning.weight.pin);
  tuning_run();
}

#define TUNER_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TUNER_TEST(test_the_fastest_serves),
      TUNER_TEST(test_criminals_never_serve),
      TUNER_TEST(test_what_is_wrong_is_not_tried_again),
      TUNER_TEST(test_a_slow_one_does_not_serve),
      TUNER_TEST(test_a_lucky_one_does_not_serve),
      TUNER_TEST(test_a_fault_is_not_repeated),
      TUNER_TEST(test_kept_over_restarts),
      TUNER_TEST(test_kept_but_wrong_now),
      TUNER_TEST(test_nothing_waits_for_a_library),
      TUNER_TEST(test_a_slower_library_changes_nothing),
      TUNER_TEST(test_asked_for_with_a_library),
      TUNER_TEST(test_under_load_only_the_library_waits),
      TUNER_TEST(test_gives_way),
      TUNER_TEST(test_long_ones_wait_for_quiet),
      TUNER_TEST(test_long_ones_go_on_where_they_were),
      TUNER_TEST(test_asked_for_under_load),
      TUNER_TEST(test_off_does_nothing_by_itself),
      TUNER_TEST(test_asked_for_by_hand),
      TUNER_TEST(test_refused_by_hand),
      TUNER_TEST(test_the_roof),
      TUNER_TEST(test_pin),
      TUNER_TEST(test_import_serves_after_its_check),
      TUNER_TEST(test_a_weight_that_goes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
