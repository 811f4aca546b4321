/* Kernels that no test has seen, planted over the real CPU backend: they run in a process of their own first, and one
 * that is wrong, faults, hangs or cannot be built never runs in this one. This program is that process too. */
#include "daemon/log.h"
#include "daemon/worker/prove.h"

#include "tests/support/tuning.h"

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

enum { M = TUNING_ROWS };
#define LATE TUNING_LATE

enum crime { HONEST, WRONG, FAULTING, HANGING, UNBUILT, CRIMES };

static const struct variant_family planted = {
    .name = "planted", .count = 1, .parameters = {{"crime", "that it commits", 0, CRIMES - 1, 1, 0}}};

static bool offered[CRIMES];
static int launched[CRIMES];

static bool is_planted(const struct variant *variant) {
  return variant != NULL && variant->family == &planted;
}

static enum status planted_submit(struct backend *backend, const struct backend_job *job, struct error *error) {
  struct backend_job plain = *job;
  if (!is_planted(job->variant))
    return cpu_backend.submit(backend, job, error);
  enum crime crime = (enum crime)job->variant->values[0];
  launched[crime]++;
  if (crime == FAULTING)
    raise(SIGSEGV);
  if (crime == HANGING)
    pause();
  plain.variant = NULL;
  enum status status = cpu_backend.submit(backend, &plain, error);
  if (crime == WRONG)
    ((float *)job->y)[TUNING_N / 2] += 1;
  return status;
}

static int planted_variants(struct backend *backend, const struct variant_problem *problem, const struct variant *base,
                            bool all, struct variant *out, int most) {
  if (base != NULL)
    return 0;
  int count = cpu_backend.variants(backend, problem, NULL, all, out, 1);
  for (int crime = CRIMES - 1; crime >= 0 && count < most; crime--)
    if (offered[crime]) {
      out[count] = variant_default(&planted);
      out[count++].values[0] = crime;
    }
  return count;
}

static enum status planted_check(struct backend *backend, const struct variant_problem *problem,
                                 struct variant *variant, struct variant *nearest, struct error *error) {
  return is_planted(variant) ? STATUS_OK : cpu_backend.variant_check(backend, problem, variant, nearest, error);
}

static enum status planted_measure(struct backend *backend, const struct backend_job *job,
                                   struct backend_weight *const *weights, size_t count,
                                   const struct backend_timing *timing, uint64_t *ns, struct error *error) {
  (void)backend, (void)weights, (void)count, (void)timing, (void)error;
  *ns = is_planted(job->variant) ? 10 : 10000;
  return STATUS_OK;
}

static enum status planted_build(struct backend *backend, const struct variant_problem *problem,
                                 const struct variant *variant, struct error *error) {
  (void)backend, (void)problem;
  return variant->values[0] == UNBUILT ? error_set(error, STATUS_INTERNAL, "the compiler complains") : STATUS_OK;
}

static void plant(void) {
  tuning_plant(&planted, NULL);
  tuning.ops.submit = planted_submit;
  tuning.ops.variants = planted_variants;
  tuning.ops.variant_check = planted_check;
  tuning.ops.variant_foreign = is_planted;
  tuning.ops.variant_build = planted_build;
  tuning.ops.measure = planted_measure;
}

static void open_tuner(const char *word) {
  static char self[] = "/proc/self/exe", argument[32];
  static char *const prover[] = {self, argument, NULL};
  struct tuner_options options = tuning_options(TUNE_BACKGROUND);
  snprintf(argument, sizeof argument, "%s", word);
  options.quiet_ns = 1000000000;
  options.prover = prover;
  tuning_start(&options);
}

static const struct variant *serving(void) {
  return tuning_serving(M, 20000);
}

/* Dead ones that nobody has waited for are none. */
static bool child_runs(void) {
  siginfo_t info = {.si_pid = 0};
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

static int set_up(void **state) {
  (void)state;
  plant();
  memset(offered, 0, sizeof offered);
  memset(launched, 0, sizeof launched);
  tuning_open();
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  tuning_close();
  return 0;
}

static void test_an_honest_one_serves(void **state) {
  (void)state;
  offered[HONEST] = true;
  open_tuner("--prove");
  assert_null(serving());
  tuning_run();
  assert_true(is_planted(serving()));
  assert_true(launched[HONEST] > 0); /* compared once more in this process */
}

static void test_criminals_run_elsewhere(void **state) {
  (void)state;
  offered[WRONG] = offered[FAULTING] = offered[UNBUILT] = offered[HONEST] = true;
  open_tuner("--prove");
  (void)serving();
  tuning_run();
  const struct variant *variant = serving();
  assert_true(is_planted(variant));
  assert_int_equal(variant->values[0], HONEST);
  for (int crime = WRONG; crime < CRIMES; crime++)
    assert_int_equal(launched[crime], 0);
}

/* Its patience is the tuner's clock, which this test moves on. */
static void test_one_that_hangs_is_ended(void **state) {
  (void)state;
  uint64_t later = LATE + UINT64_C(600000000000), wait = 0;
  offered[HANGING] = offered[HONEST] = true;
  open_tuner("--prove");
  (void)serving();
  while (!child_runs())
    (void)tuning_step(LATE);
  while (wait != UINT64_MAX) {
    wait = tuning_step(later);
    sched_yield();
  }
  const struct variant *variant = serving();
  assert_true(is_planted(variant));
  assert_int_equal(variant->values[0], HONEST);
  assert_int_equal(launched[HANGING], 0);
}

static void test_a_request_ends_it(void **state) {
  (void)state;
  struct timespec clock;
  offered[HANGING] = true;
  open_tuner("--prove");
  (void)serving();
  while (!child_runs())
    (void)tuning_step(LATE);
  (void)serving();
  while (child_runs()) { /* and none is started: the request was a moment ago */
    clock_gettime(CLOCK_MONOTONIC, &clock);
    assert_true(tuning_step((uint64_t)clock.tv_sec * 1000000000u + (uint64_t)clock.tv_nsec) > 0);
  }
  assert_string_equal(tuning_listed().state, "seen");
}

static void test_a_pin_is_proven_too(void **state) {
  (void)state;
  struct tune_request request = {.verb = TUNE_PIN, .weight = &tuning.weight, .text = "planted crime=2"};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  open_tuner("--prove");
  tuner_request(tuning.tuner, &message);
  assert_int_equal(message.error.status, STATUS_OK);
  (void)serving();
  tuning_run();
  assert_null(serving());
  assert_int_equal(launched[FAULTING], 0);
  strcpy(request.text, "planted crime=0");
  tuner_request(tuning.tuner, &message);
  (void)serving();
  tuning_run();
  assert_true(is_planted(serving()));
}

static struct tune_request asked_by_hand(const char *kernel, const char *word) {
  struct tune_request request = {.verb = TUNE_ASK, .weight = &tuning.weight};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  request.problem = (struct variant_problem){.m = M, .x_type = GEMM_F32, .y_type = GEMM_F32};
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
  (void)state;
  struct tune_request request = asked_by_hand("planted crime=2", "--prove");
  assert_non_null(strstr(request.why, "it took its process along"));
  assert_string_not_equal(request.kernel, "planted crime=2");
  request = asked_by_hand("planted crime=4", "--prove");
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
  (void)state;
  offered[HONEST] = true;
  open_tuner("--prove-nothing");
  (void)serving();
  tuning_run();
  assert_null(serving());
  assert_int_equal(launched[HONEST], 0);
  tuning_stop();
  open_tuner("--no-such-mode");
  (void)serving();
  tuning_run();
  assert_null(serving());
}

#define TUNER_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(int count, char **words) {
  struct backend_config config = {.in_flight = 1};
  struct error error;
  plant();
  if (count > 1 && strncmp(words[1], "--prove", 7) == 0)
    return prove_run(&tuning.ops, &config, words[1][7] == '\0' ? TUNING_ARENA_BYTES : 4096, stdin, stdout);
  if (count > 1)
    return 9;
  if (log_open("error", "test", &error) != STATUS_OK)
    return 1;
  const struct CMUnitTest tests[] = {
      TUNER_TEST(test_an_honest_one_serves),        TUNER_TEST(test_criminals_run_elsewhere),
      TUNER_TEST(test_one_that_hangs_is_ended),     TUNER_TEST(test_a_request_ends_it),
      TUNER_TEST(test_a_pin_is_proven_too),         TUNER_TEST(test_by_hand),
      TUNER_TEST(test_a_process_that_cannot_begin),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
