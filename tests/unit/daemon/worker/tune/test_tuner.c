/* The tuner over the real CPU backend with planted kernels and a planted clock: what is wrong, slow, faulting or only
 * lucky must never serve. This program is the engine's thread; a planted fault has a process of its own. */
#include "tests/support/system/folder.h"
#include "tests/support/worker/planted.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void test_the_fastest_serves(void **state) {
  planted_offer(HONEST, 5000);
  planted_open(TUNE_EAGER);
  assert_null(planted_serving());
  tuning_run();
  const struct variant *variant = planted_serving();
  assert_non_null(variant);
  assert_ptr_equal(variant->family, &planted_family);
  assert_int_equal(tuning.saved, 1);
}

static void test_criminals_never_serve(void **state) {
  for (int crime = WRONG; crime < FAULTING; crime++)
    planted_offer((enum crime)crime, 10); /* a thousand times as fast as what is right */
  planted_open(TUNE_EAGER);
  (void)planted_serving();
  tuning_run();
  assert_null(planted_serving());
  planted_offer(HONEST, 9000);
  struct tune_request request = {.verb = TUNE_FORGET, .text = "*"};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  tuner_request(tuning.tuner, &message);
  assert_int_equal(request.count, 1);
  tuning_run();
  assert_int_equal(planted_crime(planted_serving()), HONEST);
}

static void test_what_is_wrong_is_not_tried_again(void **state) {
  planted_offer(WRONG, 10);
  planted_open(TUNE_EAGER);
  (void)planted_serving();
  tuning_run();
  assert_true(planted.launched[WRONG] > 0);
  tuning_stop();
  planted.launched[WRONG] = 0;
  planted_open(TUNE_EAGER);
  (void)planted_serving();
  tuning_run();
  assert_null(planted_serving());
  assert_int_equal(planted.launched[WRONG], 0);
}

static void test_a_slow_one_does_not_serve(void **state) {
  planted_offer(HONEST, 50000);
  planted_open(TUNE_EAGER);
  (void)planted_serving();
  tuning_run();
  assert_null(planted_serving());
}

/* The clock is off by up to a third, and nothing is faster than what serves. */
static void test_a_lucky_one_does_not_serve(void **state) {
  int changed = 0;
  planted_offer(HONEST, 10000);
  planted.noise = 0.33;
  for (int i = 0; i < 20; i++) {
    struct tune_request request = {.verb = TUNE_FORGET, .text = "*"};
    struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
    if (i == 0)
      planted_open(TUNE_EAGER);
    tuner_request(tuning.tuner, &message);
    planted.randomness = (uint64_t)i;
    (void)planted_serving();
    tuning_run();
    changed += planted_serving() != NULL;
  }
  assert_true(changed <= 1);
}

/* In a process of its own; true where that dies of a kernel. */
static bool tuning_kills(void (*open)(void)) {
  int status;
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    /* The pool's threads are not here any more: a backend of its own. */
    struct backend_config config = {.in_flight = 2, .library_bytes = (uint64_t)64 << 20}; /* of the same identity */
    struct error error;
    if (cpu_backend.open(&config, &tuning.device.backend, &error) != STATUS_OK)
      _exit(1);
    open();
    (void)planted_serving();
    tuning_run();
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

static void open_first(void) {
  planted_open(TUNE_EAGER);
}

static void open_after_a_kill(void) {
  planted_follow(TUNE_EAGER, true);
}

static void test_a_fault_is_not_repeated(void **state) {
  planted_offer(FAULTING, 10);
  planted_offer(HONEST, 5000);
  assert_true(tuning_kills(open_first));
  planted_open(TUNE_EAGER);
  (void)planted_serving();
  tuning_run(); /* in this process: it would die of it */
  assert_non_null(planted_serving());
  assert_int_equal(planted_crime(planted_serving()), HONEST);
}

/* A worker that somebody killed leaves the same note, and no kernel is to blame. */
static void test_a_kill_from_outside_blames_no_kernel(void **state) {
  planted_offer(FAULTING, 10);
  planted_offer(HONEST, 5000);
  assert_true(tuning_kills(open_first));
  assert_true(tuning_kills(open_after_a_kill)); /* it was tried again */
  planted_follow(TUNE_EAGER, false);
  (void)planted_serving();
  tuning_run();
  assert_non_null(planted_serving());
  assert_int_equal(planted_crime(planted_serving()), HONEST);
}

/* What an earlier worker has kept of the shape. */
static void keep(struct book_entry entry) {
  struct backend_info info;
  struct tune_db db;
  struct error error;
  entry.problem = (struct variant_problem){.weight = tuning.weight.shape,
                                           .m = variant_bucket(TUNING_ROWS),
                                           .x_type = GEMM_F32,
                                           .y_type = GEMM_F32,
                                           .bias_type = GEMM_TYPE_NONE};
  tuning.ops.describe(tuning.device.backend, &info);
  assert_int_equal(tune_db_open(&db, folder, info.identity, 0, tuning.ops.families, &error), STATUS_OK);
  assert_int_equal(tune_db_save(&db, &entry, &error), STATUS_OK);
}

static struct variant planted_variant(enum crime crime) {
  return (struct variant){.family = &planted_family, .values = {crime}};
}

/* The shape is tuned anew, also by a later worker: nothing was found that would be faster than the backend's choice. */
static void test_a_kept_one_that_faults(void **state) {
  keep((struct book_entry){
      .state = BOOK_TUNED, .serves = true, .confirmed = true, .variant = planted_variant(FAULTING)});
  planted_offer(FAULTING, 10);
  planted_offer(HONEST, 5000);
  assert_true(tuning_kills(open_first));
  planted_open(TUNE_EAGER);
  tuning_stop();
  planted_open(TUNE_EAGER);
  (void)planted_serving();
  tuning_run();
  assert_non_null(planted_serving());
  assert_int_equal(planted_crime(planted_serving()), HONEST);
}

/* However many were wrong before, of which no more are remembered. */
static void test_a_fault_beside_many_wrong_ones(void **state) {
  struct book_entry entry = {.state = BOOK_SEEN};
  for (int crime = 0; crime < CRIMES && entry.wrong_count < BOOK_WRONG; crime++)
    if (crime != HONEST && crime != FAULTING)
      entry.wrong[entry.wrong_count++] = planted_variant((enum crime)crime);
  assert_int_equal(entry.wrong_count, BOOK_WRONG);
  keep(entry);
  planted_offer(FAULTING, 10);
  planted_offer(HONEST, 5000);
  assert_true(tuning_kills(open_first));
  planted_open(TUNE_EAGER);
  (void)planted_serving();
  tuning_run();
  assert_non_null(planted_serving());
  assert_int_equal(planted_crime(planted_serving()), HONEST);
}

static void open_pinned(void) {
  char kernel[VARIANT_TEXT_BYTES];
  struct variant faulting = planted_variant(FAULTING);
  struct tune_request request = {.verb = TUNE_PIN, .weight = &tuning.weight};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  snprintf(request.text, sizeof request.text, "%s", variant_text(&faulting, kernel));
  planted_open(TUNE_EAGER);
  tuner_request(tuning.tuner, &message);
  assert_int_equal(message.error.status, STATUS_OK);
}

/* Pins are set again in every worker. */
static void test_a_pin_that_faults(void **state) {
  assert_true(tuning_kills(open_pinned));
  open_pinned();
  (void)planted_serving();
  tuning_run();
  assert_null(planted_serving());
  assert_int_equal(planted.launched[FAULTING], 0);
}

static void test_kept_over_restarts(void **state) {
  planted_offer(HONEST, 5000);
  planted_open(TUNE_EAGER);
  (void)planted_serving();
  tuning_run();
  tuning_stop();
  planted.offered[HONEST] = false; /* so that a search would not find it */
  planted_open(TUNE_EAGER);
  assert_null(planted_serving()); /* not before it has been compared in this process */
  tuning_run();
  assert_non_null(planted_serving());
}

static void test_kept_but_wrong_now(void **state) {
  planted_offer(HONEST, 5000);
  planted_open(TUNE_EAGER);
  (void)planted_serving();
  tuning_run();
  tuning_stop();
  planted.convicted = true;
  planted_open(TUNE_EAGER);
  (void)planted_serving();
  tuning_run();
  assert_null(planted_serving());
}

#define TUNER_TEST(test) cmocka_unit_test_setup_teardown(test, planted_set_up, planted_tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TUNER_TEST(test_the_fastest_serves),
      TUNER_TEST(test_criminals_never_serve),
      TUNER_TEST(test_what_is_wrong_is_not_tried_again),
      TUNER_TEST(test_a_slow_one_does_not_serve),
      TUNER_TEST(test_a_lucky_one_does_not_serve),
      TUNER_TEST(test_a_fault_is_not_repeated),
      TUNER_TEST(test_a_kill_from_outside_blames_no_kernel),
      TUNER_TEST(test_a_kept_one_that_faults),
      TUNER_TEST(test_a_fault_beside_many_wrong_ones),
      TUNER_TEST(test_a_pin_that_faults),
      TUNER_TEST(test_kept_over_restarts),
      TUNER_TEST(test_kept_but_wrong_now),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
