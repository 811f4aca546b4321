/* Whose turn it is: requests before the tuner, short pieces while they come, long ones and a library's kernels in
 * quiet. This program is the engine's thread. */
#include "tests/support/worker/planted.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { STEPS_MOST = 100000 };

static bool somebody_waits(void *user) {
  return true;
}

/* Own kernels are raced and serve while the library has not said yet what it has; then it joins. */
static void test_nothing_waits_for_a_library(void **state) {
  const struct variant *variant = NULL;
  planted_library(3000);
  planted_offer(HONEST, 5000);
  planted_open(TUNE_EAGER);
  while ((variant = planted_serving()) == NULL)
    (void)tuning_step(TUNING_LATE);
  assert_ptr_equal(variant->family, &planted_family);
  for (int i = 0; i < 100; i++)
    (void)tuning_step(TUNING_LATE);
  assert_int_equal(planted.foreign_launches, 0);
  assert_string_equal(tuning_listed().state, "tuned");
  sem_post(&planted.may_list);
  tuning_run();
  assert_ptr_equal(planted_serving()->family, &planted_foreign);
  assert_int_equal(planted_serving()->values[0], 0);
  assert_int_equal(tuning.saved, 2);
}

static void test_a_slower_library_changes_nothing(void **state) {
  planted_library(6000);
  planted_offer(HONEST, 5000);
  planted_open(TUNE_EAGER);
  (void)planted_serving();
  sem_post(&planted.may_list);
  tuning_run();
  assert_ptr_equal(planted_serving()->family, &planted_family);
  assert_true(planted.foreign_launches > 0);
  assert_int_equal(tuning_listed().library_ns, 6000);
}

/* Asked for by hand, the answer has what the library names first, and its fastest. */
static void test_asked_for_with_a_library(void **state) {
  struct tune_request request = {.verb = TUNE_ASK, .weight = &tuning.weight};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  request.problem = (struct variant_problem){.m = TUNING_ROWS, .x_type = GEMM_F32, .y_type = GEMM_F32};
  planted_library(3000);
  planted_offer(HONEST, 5000);
  sem_post(&planted.may_list);
  planted_open(TUNE_EAGER);
  tuner_request(tuning.tuner, &message);
  tuning_run();
  assert_string_equal(request.kernel, "foreign number=0");
  assert_int_equal(request.library_first_ns, 3000);
  assert_int_equal(request.library_ns, 3000);
  assert_int_equal(request.results[0].ns, 3000);
  assert_int_equal(tuning.saved, 1); /* one race, with all of them */
}

/* Steps of a tuner that always had a request a moment ago; *now, 0 at first, goes on a tenth of a second a step. */
static void run_for(uint64_t *now, int steps) {
  struct timespec clock;
  clock_gettime(CLOCK_MONOTONIC, &clock);
  uint64_t real = (uint64_t)clock.tv_sec * 1000000000u + (uint64_t)clock.tv_nsec;
  for (int i = 0; i < steps; i++) {
    *now = *now + 100000000 > real ? *now + 100000000 : real;
    (void)tuning_step(*now);
  }
}

static void run_under_load(uint64_t *now) {
  run_for(now, 7000);
}

/* A library's kernels take milliseconds to load: under load they are left for later, and the next shape has its turn.
 * What was found is kept, also that the library is still to be tried. */
static void test_under_load_only_the_library_waits(void **state) {
  uint64_t now = 0;
  planted_library(3000);
  planted_offer(HONEST, 5000);
  for (int i = 0; i < 2; i++)
    sem_post(&planted.may_list);
  planted_open(TUNE_BACKGROUND);
  (void)tuning_serving(TUNING_ROWS, 20000);
  (void)tuning_serving(1, 20000);
  run_under_load(&now);
  assert_ptr_equal(tuning_serving(TUNING_ROWS, 20000)->family, &planted_family);
  assert_ptr_equal(tuning_serving(1, 20000)->family, &planted_family);
  assert_int_equal(planted.foreign_launches, 0);
  tuning_stop();
  planted_open(TUNE_BACKGROUND);
  (void)planted_serving();
  run_under_load(&now);
  assert_ptr_equal(planted_serving()->family, &planted_family);
  assert_int_equal(planted.foreign_launches, 0);
  for (int i = 0; i < 2; i++)
    sem_post(&planted.may_list);
  tuning_run();
  assert_ptr_equal(planted_serving()->family, &planted_foreign);
}

static void test_gives_way(void **state) {
  struct error lost = {.status = STATUS_OK};
  planted_offer(HONEST, 5000);
  planted_open(TUNE_EAGER);
  (void)planted_serving();
  for (int i = 0; i < 1000; i++)
    (void)tuner_step(tuning.tuner, UINT64_C(1) << 62, somebody_waits, NULL, &lost);
  assert_int_equal(planted.launched[HONEST], 0);
  assert_null(planted_serving());
}

static bool waits_after_one(void *user) {
  int *pieces = user;
  return (*pieces)++ > 0;
}

static void assert_held(void) {
  int launched = planted.launched[HONEST];
  for (int i = 0; i < 100; i++)
    assert_in_range(tuning_step(TUNING_LATE), 1, 1000000);
  assert_int_equal(planted.launched[HONEST], launched);
}

/* While memory is registered nothing is begun, and a search that has begun does not go on. */
static void test_held_it_measures_nothing(void **state) {
  (void)state;
  struct error lost = {.status = STATUS_OK};
  planted_offer(HONEST, 5000);
  planted_open(TUNE_EAGER);
  tuner_hold(tuning.tuner);
  (void)planted_serving();
  assert_held();
  tuner_release(tuning.tuner);
  for (int pieces = 0; planted.launched[HONEST] == 0; pieces = 0)
    (void)tuner_step(tuning.tuner, TUNING_LATE, waits_after_one, &pieces, &lost);
  tuner_hold(tuning.tuner);
  tuner_hold(tuning.tuner);
  tuner_release(tuning.tuner);
  assert_held();
  tuner_release(tuning.tuner);
  tuning_run();
  assert_int_equal(planted_crime(planted_serving()), HONEST);
}

/* A product of 20 ms does not fit into a burst of 300 us: while requests come, it is not tried. */
static void test_long_ones_wait_for_quiet(void **state) {
  planted_offer(HONEST, 5000);
  planted_open(TUNE_BACKGROUND);
  (void)tuning_serving(TUNING_ROWS, 20000000);
  uint64_t wait = 0, now = 0;
  for (int i = 0; i < 10000 && wait < UINT64_C(1000000000000); i++) {
    struct timespec clock;
    clock_gettime(CLOCK_MONOTONIC, &clock);
    now = (uint64_t)clock.tv_sec * 1000000000u + (uint64_t)clock.tv_nsec + (uint64_t)i * 1000000000;
    wait = tuning_step(now);
  }
  assert_true(wait >= UINT64_C(1000000000000)); /* the hour of quiet that the options ask for */
  assert_int_equal(planted.launched[HONEST], 0);
}

/* Where one product in 64 takes as long, a request that has to wait for a trial waits no longer than it does anyway. */
static void test_long_ones_run_where_such_are_served(void **state) {
  uint64_t now = 0;
  planted.own_time = 20000000;
  planted_offer(HONEST, 5000000);
  planted_open(TUNE_BACKGROUND);
  for (int i = 0; i < 127; i++)
    (void)tuning_serving(TUNING_ROWS, i % 64 == 40 ? 20000000 : 100000);
  run_under_load(&now);
  assert_null(tuning_serving(TUNING_ROWS, 100000));
  assert_int_equal(planted.launched[HONEST], 0);
  run_under_load(&now);
  assert_int_equal(planted_crime(tuning_serving(TUNING_ROWS, 100000)), HONEST);
}

static uint64_t now_ns(void) {
  struct timespec clock;
  clock_gettime(CLOCK_MONOTONIC, &clock);
  return (uint64_t)clock.tv_sec * 1000000000u + (uint64_t)clock.tv_nsec;
}

/* After a burst that is no longer than what is served, the next one may come after fifty times its length: two
 * hundred times where requests are short. */
static void test_share_by_what_is_served(void **state) {
  planted_offer(HONEST, 5000);
  planted_open(TUNE_BACKGROUND);
  for (int i = 0; i < 128; i++)
    (void)tuning_serving(TUNING_ROWS, UINT64_C(3600000000000));
  uint64_t now = now_ns();
  for (int i = 0; i < 20; i++) {
    uint64_t begin = now_ns(), wait = tuning_step(now);
    assert_in_range(wait, 0, 50 * (now_ns() - begin));
    now += wait + 1000000000;
  }
}

/* A burst that takes twice as long may come after a hundred times its length; one that took four times as long, as on a
 * machine that does something else, tells nothing. */
static void test_share_of_bursts_that_are_longer(void **state) {
  planted.timing_ns = 40000000;
  planted_offer(HONEST, 5000);
  planted_open(TUNE_BACKGROUND);
  for (int i = 0; i < 128; i++)
    (void)tuning_serving(TUNING_ROWS, 20000000);
  uint64_t now = now_ns(), wait = 0, took = 0;
  for (int i = 0; i < STEPS_MOST && planted.timed < 3; i++) {
    uint64_t begin = now_ns();
    now += wait + 1000000000;
    wait = tuning_step(now);
    took = now_ns() - begin;
  }
  assert_int_equal(planted.timed, 3);
  assert_in_range(took, 40000000, UINT64_MAX);
  if (took < 75000000)
    assert_in_range(wait, 75 * planted.timing_ns, 200 * took - 1);
}

/* So that it may come so soon, a burst of several measurements is no longer: of 30 ms each where 100 are served. */
static void test_bursts_by_what_is_served(void **state) {
  planted.timing_ns = 30000000;
  planted_offer(HONEST, 5000);
  planted_open(TUNE_BACKGROUND);
  for (int i = 0; i < 128; i++)
    (void)tuning_serving(TUNING_ROWS, 100000000);
  uint64_t now = now_ns();
  for (int i = 0; i < STEPS_MOST && planted.timed < 12; i++) {
    int before = planted.timed;
    now += tuning_step(now) + 1000000000;
    assert_in_range(planted.timed - before, 0, 3);
  }
  assert_true(planted.timed >= 12);
}

/* While requests come, a few guesses are raced first; the others, the honest one behind them, have their turn behind
 * other shapes. */
static void test_few_first_under_load(void **state) {
  uint64_t now = 0;
  for (int crime = HONEST; crime <= FAILING; crime++)
    planted_offer(crime, 5000);
  planted_open(TUNE_BACKGROUND);
  (void)tuning_serving(TUNING_ROWS, 20000);
  for (int i = 0; i < STEPS_MOST && strcmp(tuning_listed().state, "tuned") != 0; i++)
    run_for(&now, 1);
  assert_true(planted.launched[FAILING] > 0);
  assert_int_equal(planted.launched[HONEST], 0);
  assert_int_equal(tuning.saved, 0);
  run_under_load(&now);
  assert_int_equal(planted_crime(tuning_serving(TUNING_ROWS, 20000)), HONEST);
  assert_int_equal(tuning.saved, 1);
}

/* Also the one whose kernels are being tried, for which nobody waits: it begins anew. */
static void test_forgotten_while_it_is_tried(void **state) {
  uint64_t now = 0;
  struct tune_request request = {.verb = TUNE_FORGET, .text = "*"};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  planted_offer(HONEST, 5000);
  planted_open(TUNE_BACKGROUND);
  (void)tuning_serving(TUNING_ROWS, 20000);
  for (int i = 0; i < STEPS_MOST && planted.launched[HONEST] == 0; i++)
    run_for(&now, 1);
  assert_true(planted.launched[HONEST] > 0);
  tuner_request(tuning.tuner, &message);
  assert_int_equal(request.count, 1);
  assert_string_equal(tuning_listed().state, "seen");
  run_under_load(&now);
  assert_int_equal(planted_crime(tuning_serving(TUNING_ROWS, 20000)), HONEST);
}

/* It is tuned in many short whiles without requests; what one has found is not lost in the next. */
static void test_long_ones_go_on_where_they_were(void **state) {
  struct timespec clock;
  planted.own_time = 20000000;
  planted_offer(HONEST, 5000000);
  planted_open(TUNE_BACKGROUND);
  for (int i = 0; i < 100000 && tuning_serving(TUNING_ROWS, 20000000) == NULL; i++) {
    clock_gettime(CLOCK_MONOTONIC, &clock);
    (void)tuning_step((uint64_t)clock.tv_sec * 1000000000u + (uint64_t)clock.tv_nsec);
    (void)tuning_step(TUNING_LATE);
  }
  assert_int_equal(planted_crime(tuning_serving(TUNING_ROWS, 20000000)), HONEST);
  assert_non_null(tuning_serving(TUNING_ROWS, 20000000));
}

/* Whoever asks by hand does not wait for quiet, also where everything else does. */
static void test_asked_for_under_load(void **state) {
  uint64_t now = 0;
  struct tune_request request = {.verb = TUNE_ASK, .weight = &tuning.weight};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  request.problem = (struct variant_problem){.m = 1, .x_type = GEMM_F32, .y_type = GEMM_F32};
  planted.own_time = 20000000;
  planted_offer(HONEST, 5000000);
  planted_open(TUNE_BACKGROUND);
  (void)tuning_serving(TUNING_ROWS, 20000000);
  run_under_load(&now);
  assert_int_equal(tuning.answered, 0);
  tuner_request(tuning.tuner, &message);
  run_under_load(&now);
  assert_int_equal(tuning.answered, 1);
  assert_string_equal(request.kernel, "planted crime=0");
  assert_null(tuning_serving(TUNING_ROWS, 20000000)); /* that one still waits */
}

/* A trial with a core more than a product has when it serves would choose by what never serves, and wait for the core
 * that a client spins on. */
static void test_trials_leave_a_core_to_who_asks(void **state) {
  planted_offer(HONEST, 5000);
  planted_open(TUNE_EAGER);
  (void)planted_serving();
  tuning_run();
  assert_string_equal(tuning_listed().state, "tuned");
  assert_true(planted.trials > 0);
  assert_int_equal(planted.trials_awake, planted.trials);
}

/* A kernel does not run before it is noted that it will; while the disk keeps that waiting nothing else does. */
static void test_nothing_but_its_kernel_waits_for_a_note(void **state) {
  uint64_t wait = 0;
  planted_offer(HONEST, 5000);
  planted_open(TUNE_EAGER);
  tuning.disk_stands = true;
  (void)planted_serving();
  for (int i = 0; i < STEPS_MOST && wait == 0; i++)
    wait = tuning_step(TUNING_LATE);
  assert_int_equal(tuning.unsaved_count, 1);
  assert_in_range(wait, 1, 1000000);
  for (int i = 0; i < 100; i++)
    assert_int_equal(tuning_step(TUNING_LATE), wait);
  assert_int_equal(planted.launched[HONEST], 0);
  assert_null(planted_serving());
  assert_string_equal(tuning_listed().state, "seen");
  tuning_disk_goes_on();
  tuning_run();
  assert_int_equal(planted_crime(planted_serving()), HONEST);
}

#define TUNER_TEST(test) cmocka_unit_test_setup_teardown(test, planted_set_up, planted_tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TUNER_TEST(test_nothing_waits_for_a_library),
      TUNER_TEST(test_a_slower_library_changes_nothing),
      TUNER_TEST(test_asked_for_with_a_library),
      TUNER_TEST(test_under_load_only_the_library_waits),
      TUNER_TEST(test_gives_way),
      TUNER_TEST(test_held_it_measures_nothing),
      TUNER_TEST(test_long_ones_wait_for_quiet),
      TUNER_TEST(test_long_ones_run_where_such_are_served),
      TUNER_TEST(test_share_by_what_is_served),
      TUNER_TEST(test_share_of_bursts_that_are_longer),
      TUNER_TEST(test_bursts_by_what_is_served),
      TUNER_TEST(test_few_first_under_load),
      TUNER_TEST(test_forgotten_while_it_is_tried),
      TUNER_TEST(test_long_ones_go_on_where_they_were),
      TUNER_TEST(test_asked_for_under_load),
      TUNER_TEST(test_trials_leave_a_core_to_who_asks),
      TUNER_TEST(test_nothing_but_its_kernel_waits_for_a_note),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
