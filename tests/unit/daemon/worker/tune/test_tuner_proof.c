/* Kernels that no test has seen run in a process of their own first, and one that is wrong, faults, hangs or cannot be
 * built never runs in this one. This program is that process too. */
#include "daemon/log.h"
#include "daemon/worker/proof/prove.h"
#include "daemon/worker/proof/throttle.h"
#include "daemon/worker/tune/tuner_state.h"

#include "tests/support/worker/planted.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define LATE TUNING_LATE

static uint32_t compile_share = 1000; /* that the tuner is opened with */

static void open_tuner(const char *word) {
  static char self[] = "/proc/self/exe", argument[32];
  static char *const prover[] = {self, argument, NULL};
  struct tuner_options options = tuning_options(TUNE_BACKGROUND);
  snprintf(argument, sizeof argument, "%s", word);
  options.quiet_ns = 1000000000;
  options.prover = prover;
  options.compile_ns = UINT64_C(3600000000000);
  options.compile_share = compile_share;
  tuning_start(&options);
}

/* Dead ones that nobody has waited for are none. */
static bool child_runs(void) {
  siginfo_t info = {.si_pid = 0};
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

static int set_up(void **state) {
  int result = planted_set_up(state);
  planted_plant(true);
  return result;
}

static void offer(enum crime crime) {
  planted_offer(crime, 10);
}

static void test_an_honest_one_serves(void **state) {
  offer(HONEST);
  open_tuner("--prove");
  assert_null(planted_serving());
  tuning_run();
  assert_ptr_equal(planted_serving()->family, &planted_family);
  assert_true(planted.launched[HONEST] > 0); /* compared once more in this process */
}

static void test_criminals_run_elsewhere(void **state) {
  static const enum crime crimes[] = {WRONG, FAULTING, UNBUILT};
  for (size_t i = 0; i < sizeof crimes / sizeof *crimes; i++)
    offer(crimes[i]);
  offer(HONEST);
  open_tuner("--prove");
  (void)planted_serving();
  tuning_run();
  const struct variant *variant = planted_serving();
  assert_ptr_equal(variant->family, &planted_family);
  assert_int_equal(planted_crime(variant), HONEST);
  for (size_t i = 0; i < sizeof crimes / sizeof *crimes; i++)
    assert_int_equal(planted.launched[crimes[i]], 0);
}

/* Its patience is the tuner's clock, which this test moves on. */
static void test_one_that_hangs_is_ended(void **state) {
  uint64_t later = LATE + UINT64_C(600000000000), wait = 0;
  offer(HANGING);
  offer(HONEST);
  open_tuner("--prove");
  (void)planted_serving();
  while (!child_runs())
    (void)tuning_step(LATE);
  while (wait != UINT64_MAX) {
    wait = tuning_step(later);
    sched_yield();
  }
  const struct variant *variant = planted_serving();
  assert_ptr_equal(variant->family, &planted_family);
  assert_int_equal(planted_crime(variant), HONEST);
  assert_int_equal(planted.launched[HANGING], 0);
}

static void test_a_request_ends_it(void **state) {
  struct timespec clock;
  offer(HANGING);
  open_tuner("--prove");
  (void)planted_serving();
  while (!child_runs())
    (void)tuning_step(LATE);
  (void)planted_serving();
  while (child_runs()) { /* and none is started: the request was a moment ago */
    clock_gettime(CLOCK_MONOTONIC, &clock);
    assert_true(tuning_step((uint64_t)clock.tv_sec * 1000000000u + (uint64_t)clock.tv_nsec) > 0);
  }
  assert_string_equal(tuning_listed().state, "seen");
}

static void test_a_pin_is_proven_too(void **state) {
  struct tune_request request = {.verb = TUNE_PIN, .weight = &tuning.weight, .text = "planted crime=7"};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  open_tuner("--prove");
  tuner_request(tuning.tuner, &message);
  assert_int_equal(message.error.status, STATUS_OK);
  (void)planted_serving();
  tuning_run();
  assert_null(planted_serving());
  assert_int_equal(planted.launched[FAULTING], 0);
  strcpy(request.text, "planted crime=0");
  tuner_request(tuning.tuner, &message);
  (void)planted_serving();
  tuning_run();
  assert_ptr_equal(planted_serving()->family, &planted_family);
}

static struct tune_request asked_by_hand(const char *kernel, const char *word) {
  struct tune_request request = {.verb = TUNE_ASK, .weight = &tuning.weight};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  request.problem = (struct variant_problem){.m = TUNING_ROWS, .x_type = GEMM_F32, .y_type = GEMM_F32};
  snprintf(request.text, sizeof request.text, "%s", kernel);
  open_tuner(word);
  tuner_request(tuning.tuner, &message);
  tuning_run();
  assert_int_equal(message.error.status, STATUS_OK);
  tuning_stop();
  return request;
}

/* Who asked for it hears what became of it. */
static void test_by_hand(void **state) {
  struct tune_request request = asked_by_hand("planted crime=7", "--prove");
  assert_non_null(strstr(request.why, "it took its process along"));
  assert_string_not_equal(request.kernel, "planted crime=7");
  request = asked_by_hand("planted crime=9", "--prove");
  assert_string_equal(request.why, "the compiler complains");
  request = asked_by_hand("planted crime=0", "--prove-nothing");
  assert_non_null(strstr(request.why, "x and y take"));
  request = asked_by_hand("planted crime=0", "--prove");
  assert_string_equal(request.why, "");
  assert_string_equal(request.kernel, "planted crime=0");
  assert_true(request.results[0].hand);
  assert_false(request.results[1].hand);
}

/* What could not be tried is not called wrong. */
static void test_a_process_that_cannot_begin(void **state) {
  offer(HONEST);
  open_tuner("--prove-nothing");
  (void)planted_serving();
  tuning_run();
  assert_null(planted_serving());
  assert_int_equal(planted.launched[HONEST], 0);
  tuning_stop();
  open_tuner("--no-such-mode");
  (void)planted_serving();
  tuning_run();
  assert_null(planted_serving());
}

/* ---- those that are compiled where no built-in kernel wins */

static uint64_t now_ns(void) {
  struct timespec clock;
  clock_gettime(CLOCK_MONOTONIC, &clock);
  return (uint64_t)clock.tv_sec * 1000000000u + (uint64_t)clock.tv_nsec;
}

/* The library has answered; whatever comes next waits for what the test does. */
static void open_compiled(uint64_t library_time, const char *word) {
  planted_compiled(library_time);
  for (int i = 0; i < 8; i++)
    sem_post(&planted.may_list);
  open_tuner(word);
  (void)planted_serving();
}

static void test_compiled_where_a_library_wins(void **state) {
  offer(WRONG);
  offer(FAULTING);
  planted_offer(HONEST, 1000);
  open_compiled(5000, "--prove");
  tuning_run();
  const struct variant *variant = planted_serving();
  assert_ptr_equal(variant->family, &planted_family);
  assert_int_equal(planted_crime(variant), HONEST);
  assert_int_equal(planted.launched[WRONG] + planted.launched[FAULTING], 0);
  assert_int_equal(tuning_listed().library_ns / 1000, 5); /* by the race before */
}

static void test_none_is_compiled_where_a_built_in_one_wins(void **state) {
  planted_offer(HONEST, 1000);
  open_compiled(50000, "--prove");
  tuning_run();
  assert_null(planted_serving());
  assert_int_equal(planted.launched[HONEST], 0);
}

/* What has won before serves on. */
static void test_compiled_and_slower(void **state) {
  planted_offer(HONEST, 9000);
  open_compiled(5000, "--prove");
  tuning_run();
  assert_ptr_equal(planted_serving()->family, &planted_foreign);
  assert_true(planted.launched[HONEST] > 0);
}

static void until_child_runs(void) {
  while (!child_runs()) {
    (void)tuning_step(LATE);
    sched_yield();
  }
}

static void test_nothing_is_compiled_between_requests(void **state) {
  offer(HANGING);
  open_compiled(5000, "--prove");
  until_child_runs();
  assert_ptr_equal(planted_serving()->family, &planted_foreign); /* which has won by then; the request ends the child */
  while (child_runs())
    (void)tuning_step(now_ns());
  for (int i = 0; i < 100; i++) {
    (void)planted_serving();
    (void)tuning_step(now_ns());
    assert_false(child_runs());
  }
  until_child_runs(); /* it is quiet again */
  tuning_stop();
}

static void test_the_budget_of_a_shape(void **state) {
  uint64_t later = LATE;
  offer(HANGING);
  compile_share = 10; /* which makes it more patient than an hour */
  open_compiled(5000, "--prove");
  compile_share = 1000;
  until_child_runs();
  for (uint64_t wait = 0; wait != UINT64_MAX; later += UINT64_C(40000000000)) {
    wait = tuning_step(later);
    sched_yield();
  }
  assert_true(later - LATE > UINT64_C(3600000000000));
  assert_ptr_equal(planted_serving()->family, &planted_foreign);
  while (child_runs()) /* which has been killed, and dies */
    sched_yield();
  for (int i = 0; i < 1000; i++) { /* nor when it is quiet again */
    (void)tuning_step(later);
    assert_false(child_runs());
  }
}

static void test_an_exhaustive_search_compiles_all(void **state) {
  struct tune_request request = {.verb = TUNE_ASK, .weight = &tuning.weight, .all = true};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  request.problem = (struct variant_problem){.m = TUNING_ROWS, .x_type = GEMM_F32, .y_type = GEMM_F32};
  offer(UNBUILT);
  planted_offer(HONEST, 1000);
  planted_compiled(5000);
  sem_post(&planted.may_list);
  open_tuner("--prove");
  tuner_request(tuning.tuner, &message);
  tuning_run();
  assert_int_equal(message.error.status, STATUS_OK);
  assert_string_equal(request.kernel, "planted crime=0");
}

/* Under steady load it ends without them, and they wait for quiet. */
static void test_an_exhaustive_search_among_requests(void **state) {
  struct tune_request request = {.verb = TUNE_ASK, .weight = &tuning.weight, .all = true};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  request.problem = (struct variant_problem){.m = TUNING_ROWS, .x_type = GEMM_F32, .y_type = GEMM_F32};
  planted_offer(HONEST, 1000);
  planted_compiled(5000);
  for (int i = 0; i < 8; i++)
    sem_post(&planted.may_list);
  open_tuner("--prove");
  (void)planted_serving();
  tuner_request(tuning.tuner, &message);
  uint64_t now = now_ns();
  for (int i = 0; tuning.answered == 0; i++, now += 50000000) {
    assert_true(i < 1000000);
    tuning.tuner->last_request_ns = now; /* as a product of that moment */
    (void)tuning_step(now);
    assert_false(child_runs());
    sched_yield();
  }
  assert_int_equal(message.error.status, STATUS_OK);
  assert_non_null(strstr(request.kernel, "foreign"));
  assert_int_equal(planted.launched[HONEST], 0);
  tuning_run();
  assert_ptr_equal(planted_serving()->family, &planted_family);
}

static void test_a_share_of_a_core(void **state) {
  static const int shares[] = {100, 300};
  for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
    struct timespec spent;
    uint64_t begin = now_ns(), wall_ns, computed_ns = 0;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
    uint64_t before = (uint64_t)spent.tv_sec * 1000000000u + (uint64_t)spent.tv_nsec;
    throttle_begin(shares[i]);
    while ((wall_ns = now_ns() - begin) < 700000000 || computed_ns == 0) {
      clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
      computed_ns = (uint64_t)spent.tv_sec * 1000000000u + (uint64_t)spent.tv_nsec - before;
    }
    throttle_end();
    /* one tick, of at most 20 ms, has not been paid for yet */
    assert_true(computed_ns * 1000 <= wall_ns * (uint64_t)shares[i] + UINT64_C(20000000) * 1000);
  }
}

#define TUNER_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, planted_tear_down)

int main(int count, char **words) {
  struct backend_config config = {.in_flight = 1};
  planted_plant(true);
  if (count > 1 && strncmp(words[1], "--prove", 7) == 0)
    return prove_run(&tuning.ops, &config, words[1][7] == '\0' ? TUNING_ARENA_BYTES : 4096, stdin, stdout);
  if (count > 1)
    return 9;
  log_open("error", "test");
  const struct CMUnitTest tests[] = {
      TUNER_TEST(test_an_honest_one_serves),
      TUNER_TEST(test_criminals_run_elsewhere),
      TUNER_TEST(test_one_that_hangs_is_ended),
      TUNER_TEST(test_a_request_ends_it),
      TUNER_TEST(test_a_pin_is_proven_too),
      TUNER_TEST(test_by_hand),
      TUNER_TEST(test_a_process_that_cannot_begin),
      TUNER_TEST(test_compiled_where_a_library_wins),
      TUNER_TEST(test_none_is_compiled_where_a_built_in_one_wins),
      TUNER_TEST(test_compiled_and_slower),
      TUNER_TEST(test_nothing_is_compiled_between_requests),
      TUNER_TEST(test_the_budget_of_a_shape),
      TUNER_TEST(test_an_exhaustive_search_compiles_all),
      TUNER_TEST(test_an_exhaustive_search_among_requests),
      cmocka_unit_test(test_a_share_of_a_core),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
