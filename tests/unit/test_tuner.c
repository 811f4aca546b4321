/* The tuner over the real CPU backend with planted kernels and a planted clock: what is wrong, slow, faulting or only
 * lucky must never serve. This program is the engine's thread; a planted fault has a process of its own. */
#include "daemon/worker/tuner.h"

#include "tests/support/device.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

extern const struct backend_ops cpu_backend;

enum { N = 96, K = 300, M = 12, STEPS_MOST = 1000000 };

/* ---- planted kernels: the CPU backend's own product, and then a crime */

enum crime { HONEST, WRONG, ONLY_RAGGED, BEHIND, UNWRITTEN, MIXED_ROWS, FAILING, FAULTING, CRIMES };

static const struct variant_family planted = {
    .name = "planted", .count = 1, .parameters = {{"crime", "that it commits", 0, CRIMES - 1, 1, 0}}};

static const struct variant_family *families[] = {NULL, NULL, &planted, NULL};
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

static enum status planted_check(struct backend *backend, const struct variant_problem *problem,
                                 struct variant *variant, struct variant *nearest, struct error *error) {
  return variant->family == &planted ? STATUS_OK : cpu_backend.variant_check(backend, problem, variant, nearest, error);
}

static enum status planted_measure(struct backend *backend, const struct backend_job *job,
                                   struct backend_weight *const *weights, size_t count,
                                   const struct backend_timing *timing, uint64_t *ns, struct error *error) {
  bool ours = job->variant->family == &planted;
  (void)backend;
  (void)weights;
  (void)count;
  (void)timing;
  (void)error;
  uint64_t time = ours ? times[crime_of(job->variant)] : own_time;
  *ns = (uint64_t)((double)time * (1 + noise * oracle_uniform(&randomness)));
  return STATUS_OK;
}

static struct backend_ops ops;

/* ---- one device, one weight, one tuner */

static struct device device;
static struct oracle_weight values;
static struct engine_weight weight;
static struct tuner *tuner;
static char folder[] = "/tmp/gemmd-tuner-XXXXXX";
static int saved, answered;
static struct engine_message *last_answer;

static void notify(void *user, struct engine_message *message) {
  (void)user;
  if (message->verb == ENGINE_TUNE_SAVE) {
    saved++;
    tuner_save((struct tune_save *)(void *)((char *)message - offsetof(struct tune_save, message)));
    return;
  }
  answered++;
  last_answer = message;
}

static void open_tuner(enum tune_mode mode) {
  struct error error;
  struct tuner_options options = {.ops = &ops,
                                  .backend = device.backend,
                                  .mode = mode,
                                  .burst_ns = 300000,
                                  .quiet_ns = UINT64_C(3600000000000),
                                  .share = 5,
                                  .budget_ns = UINT64_C(60000000000),
                                  .arena_bytes = 4 << 20,
                                  .state_dir = folder,
                                  .notify = notify};
  assert_int_equal(tuner_open(&options, &tuner, &error), STATUS_OK);
}

static bool nobody_waits(void *user) {
  (void)user;
  return false;
}

static bool somebody_waits(void *user) {
  (void)user;
  return true;
}

/* What serves M rows, as a product that begins now would be told. */
static const struct variant *serving(void) {
  static float x[1], y[1];
  struct backend_job job = {.weight = weight.device, .m = M, .x_type = GEMM_F32, .y_type = GEMM_F32, .x = x, .y = y};
  struct book_entry *entry = tuner_launch(tuner, &weight, &job, M);
  assert_non_null(entry);
  tuner_finished(tuner, entry, 20000);
  return job.variant;
}

static void run_to_the_end(void) {
  struct error lost = {.status = STATUS_OK};
  for (int i = 0; i < STEPS_MOST; i++)
    if (tuner_step(tuner, UINT64_C(1) << 62, nobody_waits, NULL, &lost) == UINT64_MAX) {
      assert_int_equal(lost.status, STATUS_OK);
      return;
    }
  fail_msg("the tuner does not come to an end");
}

static int set_up(void **state) {
  (void)state;
  strcpy(folder + strlen("/tmp/gemmd-tuner-"), "XXXXXX");
  assert_non_null(mkdtemp(folder));
  ops = cpu_backend;
  families[0] = cpu_backend.families[0];
  families[1] = cpu_backend.families[1];
  ops.families = families;
  ops.submit = planted_submit;
  ops.variants = planted_variants;
  ops.variant_check = planted_check;
  ops.measure = planted_measure;
  memset(offered, 0, sizeof offered);
  memset(times, 0, sizeof times);
  own_time = 10000;
  noise = 0;
  launches = saved = answered = 0;
  convicted = false;
  struct gemm_weight shape = {.n = N, .k = K, .format = GEMM_FORMAT_FP8, .scale = GEMM_SCALE_ROW};
  device_open(&device, &cpu_backend, 2, 1 << 20);
  oracle_weight_make(&values, &shape, 3);
  weight = (struct engine_weight){.shape = shape, .device = device_load(&device, &values, 0)};
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  char command[128];
  tuner_close(tuner);
  tuner = NULL;
  cpu_backend.weight_detach(device.backend, weight.device);
  oracle_weight_free(&values);
  device_close(&device);
  close(device.slab_fd);
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command);
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
  run_to_the_end();
  const struct variant *variant = serving();
  assert_non_null(variant);
  assert_ptr_equal(variant->family, &planted);
  assert_int_equal(saved, 1);
}

static void test_criminals_never_serve(void **state) {
  (void)state;
  for (int crime = WRONG; crime < FAULTING; crime++)
    offer((enum crime)crime, 10); /* a thousand times as fast as what is right */
  open_tuner(TUNE_EAGER);
  (void)serving();
  run_to_the_end();
  assert_null(serving());
  offer(HONEST, 9000);
  struct tune_request request = {.verb = TUNE_FORGET, .text = "*"};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  tuner_request(tuner, &message);
  assert_int_equal(request.count, 1);
  run_to_the_end();
  assert_int_equal(crime_of(serving()), HONEST);
}

static void test_what_is_wrong_is_not_tried_again(void **state) {
  (void)state;
  offer(WRONG, 10);
  open_tuner(TUNE_EAGER);
  (void)serving();
  run_to_the_end();
  assert_true(launches > 0);
  tuner_close(tuner);
  launches = 0;
  open_tuner(TUNE_EAGER);
  (void)serving();
  run_to_the_end();
  assert_null(serving());
  assert_int_equal(launches, 0);
}

static void test_a_slow_one_does_not_serve(void **state) {
  (void)state;
  offer(HONEST, 50000);
  open_tuner(TUNE_EAGER);
  (void)serving();
  run_to_the_end();
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
    tuner_request(tuner, &message);
    randomness = (uint64_t)i;
    (void)serving();
    run_to_the_end();
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
    if (cpu_backend.open(&config, &device.backend, &error) != STATUS_OK)
      _exit(1);
    open_tuner(TUNE_EAGER);
    (void)serving();
    run_to_the_end();
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  open_tuner(TUNE_EAGER);
  (void)serving();
  run_to_the_end(); /* in this process: it would die of it */
  assert_int_equal(crime_of(serving()), HONEST);
  assert_non_null(serving());
}

static void test_kept_over_restarts(void **state) {
  (void)state;
  offer(HONEST, 5000);
  open_tuner(TUNE_EAGER);
  (void)serving();
  run_to_the_end();
  tuner_close(tuner);
  offered[HONEST] = false; /* so that a search would not find it */
  open_tuner(TUNE_EAGER);
  assert_null(serving()); /* not before it has been compared in this process */
  run_to_the_end();
  assert_non_null(serving());
}

static void test_kept_but_wrong_now(void **state) {
  (void)state;
  offer(HONEST, 5000);
  open_tuner(TUNE_EAGER);
  (void)serving();
  run_to_the_end();
  tuner_close(tuner);
  convicted = true;
  open_tuner(TUNE_EAGER);
  (void)serving();
  run_to_the_end();
  assert_null(serving());
}

static void test_gives_way(void **state) {
  (void)state;
  struct error lost = {.status = STATUS_OK};
  offer(HONEST, 5000);
  open_tuner(TUNE_EAGER);
  (void)serving();
  for (int i = 0; i < 1000; i++)
    (void)tuner_step(tuner, UINT64_C(1) << 62, somebody_waits, NULL, &lost);
  assert_int_equal(launches, 0);
  assert_null(serving());
}

/* A product of 20 ms does not fit into a burst of 300 us: while requests come, it is not tried. */
static void test_long_ones_wait_for_quiet(void **state) {
  (void)state;
  static float x[1], y[1];
  struct error lost = {.status = STATUS_OK};
  struct backend_job job = {.weight = weight.device, .m = M, .x_type = GEMM_F32, .y_type = GEMM_F32, .x = x, .y = y};
  offer(HONEST, 5000);
  open_tuner(TUNE_BACKGROUND);
  struct book_entry *entry = tuner_launch(tuner, &weight, &job, M);
  tuner_finished(tuner, entry, 20000000);
  uint64_t wait = 0, now = 0;
  for (int i = 0; i < 10000 && wait < UINT64_C(1000000000000); i++) {
    struct timespec clock;
    clock_gettime(CLOCK_MONOTONIC, &clock);
    now = (uint64_t)clock.tv_sec * 1000000000u + (uint64_t)clock.tv_nsec + (uint64_t)i * 1000000000;
    wait = tuner_step(tuner, now, nobody_waits, NULL, &lost);
  }
  assert_true(wait >= UINT64_C(1000000000000)); /* the hour of quiet that the options ask for */
  assert_int_equal(launches, 0);
}

static void test_off_does_nothing_by_itself(void **state) {
  (void)state;
  struct error lost = {.status = STATUS_OK};
  offer(HONEST, 5000);
  open_tuner(TUNE_OFF);
  (void)serving();
  assert_int_equal(tuner_step(tuner, UINT64_C(1) << 62, nobody_waits, NULL, &lost), UINT64_MAX);
}

static void test_asked_for_by_hand(void **state) {
  (void)state;
  struct tune_request request = {.verb = TUNE_ASK, .weight = &weight, .text = "planted crime=0"};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  request.problem = (struct variant_problem){.m = M, .x_type = GEMM_F32, .y_type = GEMM_F32};
  times[HONEST] = 4000;
  open_tuner(TUNE_OFF);
  tuner_request(tuner, &message);
  assert_int_equal(answered, 0);
  run_to_the_end();
  assert_int_equal(answered, 1);
  assert_ptr_equal(last_answer, &message);
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
    struct tune_request request = {.verb = TUNE_ASK, .weight = &weight};
    struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
    request.problem = (struct variant_problem){.m = M, .x_type = GEMM_F32, .y_type = GEMM_F32};
    snprintf(request.text, sizeof request.text, "%s", rows[i].kernel);
    answered = 0;
    tuner_request(tuner, &message);
    assert_int_equal(answered, 1);
    assert_int_not_equal(message.error.status, STATUS_OK);
    if (strstr(message.error.text, rows[i].why) == NULL)
      fail_msg("%s: %s", rows[i].kernel, message.error.text);
  }
}

static void pin(const char *kernel, enum status expected) {
  struct tune_request request = {.verb = TUNE_PIN, .weight = &weight};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  snprintf(request.text, sizeof request.text, "%s", kernel);
  tuner_request(tuner, &message);
  assert_int_equal(message.error.status, expected);
}

static void test_pin(void **state) {
  (void)state;
  open_tuner(TUNE_OFF);
  pin("planted crime=0", STATUS_OK);
  assert_null(serving()); /* not before it has been compared */
  run_to_the_end();
  assert_non_null(serving());
  pin("planted crime=99", STATUS_INVALID);
  assert_non_null(serving()); /* as it was */
  pin("planted crime=1", STATUS_OK);
  (void)serving();
  run_to_the_end();
  assert_null(serving()); /* it is wrong */
  pin("", STATUS_OK);
  assert_null(weight.pin);
  assert_null(serving());
}

static void test_import_serves_after_its_check(void **state) {
  (void)state;
  char shape[VARIANT_TEXT_BYTES];
  struct variant_problem problem = {
      .weight = weight.shape, .m = variant_bucket(M), .x_type = GEMM_F32, .y_type = GEMM_F32};
  times[HONEST] = 5000;
  open_tuner(TUNE_EAGER);
  struct tune_request request = {.verb = TUNE_IMPORT, .text = "planted crime=0"};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  snprintf(request.shape, sizeof request.shape, "%s", variant_problem_text(&problem, shape));
  tuner_request(tuner, &message);
  assert_int_equal(message.error.status, STATUS_OK);
  assert_null(serving());
  struct tune_request list = {.verb = TUNE_LIST};
  message.tune = &list;
  tuner_request(tuner, &message);
  assert_int_equal(list.count, 1);
  assert_string_equal(list.page[0].state, "kept");
  assert_false(list.page[0].confirmed);
  run_to_the_end();
  assert_non_null(serving());
  tuner_request(tuner, &message);
  assert_true(list.page[0].confirmed);
  message.tune = &request;
  strcpy(request.shape, "int8-row-4x4-f32-f32-none-m3");
  tuner_request(tuner, &message);
  assert_int_equal(message.error.status, STATUS_INVALID);
}

static void test_a_weight_that_goes(void **state) {
  (void)state;
  struct tune_request request = {.verb = TUNE_ASK, .weight = &weight};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  struct error lost = {.status = STATUS_OK};
  request.problem = (struct variant_problem){.m = M, .x_type = GEMM_F32, .y_type = GEMM_F32};
  offer(HONEST, 5000);
  open_tuner(TUNE_OFF);
  pin("planted crime=0", STATUS_OK);
  tuner_request(tuner, &message);
  (void)tuner_step(tuner, UINT64_C(1) << 62, nobody_waits, NULL, &lost);
  answered = 0;
  tuner_weight_gone(tuner, &weight);
  assert_int_equal(answered, 1);
  assert_int_equal(message.error.status, STATUS_CANCELLED);
  assert_null(weight.pin);
  run_to_the_end();
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
      TUNER_TEST(test_gives_way),
      TUNER_TEST(test_long_ones_wait_for_quiet),
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
