/* What is asked of the tuner by hand: a search, kernels for it, pins, imports; refusals name the field and its range.
 * This program is the engine's thread. */
#include "tests/support/worker/planted.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_off_does_nothing_by_itself(void **state) {
  planted_offer(HONEST, 5000);
  planted_open(TUNE_OFF);
  (void)planted_serving();
  assert_int_equal(tuning_step(TUNING_LATE), UINT64_MAX);
}

static void test_asked_for_by_hand(void **state) {
  struct tune_request request = {.verb = TUNE_ASK, .weight = &tuning.weight, .text = "planted crime=0"};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  request.problem = (struct variant_problem){.m = TUNING_ROWS, .x_type = GEMM_F32, .y_type = GEMM_F32};
  planted.times[HONEST] = 4000;
  planted_open(TUNE_OFF);
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
  assert_non_null(planted_serving());
}

/* The row of a planted kernel in the table of the last search; NULL: there is none. */
static const struct tune_row *tried(struct tune_request *page, enum crime crime) {
  for (uint32_t i = 0; i < page->count; i++)
    if (page->trials[i].variant.family == &planted_family && planted_crime(&page->trials[i].variant) == crime)
      return &page->trials[i];
  return NULL;
}

static enum status fetch(struct tune_request *page, uint64_t search) {
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = page};
  *page = (struct tune_request){.verb = TUNE_TRIALS, .search = search};
  tuner_request(tuning.tuner, &message);
  return message.error.status;
}

static void search(struct tune_request *request) {
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = request};
  *request = (struct tune_request){.verb = TUNE_ASK, .weight = &tuning.weight, .warmup = 19, .iterations = 25};
  request->problem = (struct variant_problem){.m = TUNING_ROWS, .x_type = GEMM_F32, .y_type = GEMM_F32};
  tuner_request(tuning.tuner, &message);
  tuning_run();
  assert_int_equal(message.error.status, STATUS_OK);
}

static void test_the_table_has_all_that_was_tried(void **state) {
  static struct tune_request request, page;
  planted_offer(HONEST, 4000);
  planted_offer(WRONG, 1000);
  planted_offer(ONLY_RAGGED, 1000);
  planted_offer(FAILING, 1000);
  planted_open(TUNE_OFF);
  assert_int_equal(fetch(&page, 0), STATUS_NOT_FOUND);
  search(&request);
  assert_true(planted.warmed >= 2); /* the backend's own choice and the one that is right */
  assert_int_equal(fetch(&page, request.search), STATUS_OK);
  assert_int_equal(page.total, 5);
  assert_int_equal(page.count, 5);
  assert_int_equal(page.next, 0);
  assert_string_equal(page.shape, "fp8-row-96x300-f32-f32-none-m16");
  const struct tune_row *honest = tried(&page, HONEST), *wrong = tried(&page, WRONG), *failing = tried(&page, FAILING);
  assert_ptr_equal(honest, &page.trials[0]);
  assert_int_equal(honest->outcome, OUTCOME_TIMED);
  assert_int_equal(honest->ns, 4000);
  assert_true(honest->samples >= 25);
  assert_true(honest->error >= 0 && honest->error < 1e-5);
  assert_true(honest->winner && !honest->incumbent && !honest->own);
  assert_true(page.trials[1].own && page.trials[1].incumbent && page.trials[1].samples >= 25);
  assert_int_equal(wrong->outcome, OUTCOME_WRONG);
  assert_non_null(strstr(wrong->why, "is off by"));
  assert_true(wrong->error > 1e-3);
  assert_int_equal(wrong->ns, 0);
  assert_int_equal(tried(&page, ONLY_RAGGED)->outcome, OUTCOME_WRONG);
  assert_int_equal(failing->outcome, OUTCOME_FAILED);
  assert_string_equal(failing->why, "it never runs");
  assert_true(failing->error < 0);
  uint64_t first = request.search;
  search(&request); /* what was wrong is not tried again, and says so */
  assert_int_equal(request.search, first + 1);
  assert_int_equal(fetch(&page, first), STATUS_NOT_FOUND);
  assert_int_equal(fetch(&page, 0), STATUS_OK);
  assert_int_equal(page.total, 5);
  assert_true(tried(&page, HONEST)->incumbent);
  assert_int_equal(tried(&page, FAILING)->outcome, OUTCOME_WRONG);
  assert_non_null(strstr(tried(&page, FAILING)->why, "an earlier search"));
}

/* Somebody wants the device after every piece of work. */
static bool wanted_after_one(void *user) {
  int *pieces = user;
  return (*pieces)++ > 0;
}

/* While it is under way there is none, and none of one that was given up. */
static void test_no_table_of_what_has_not_ended(void **state) {
  static struct tune_request request, page;
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  planted_offer(HONEST, 4000);
  planted_open(TUNE_OFF);
  search(&request);
  assert_int_equal(fetch(&page, 0), STATUS_OK);
  request.verb = TUNE_ASK;
  tuner_request(tuning.tuner, &message);
  enum status status = STATUS_OK;
  for (int steps = 0; steps < 1000 && status == STATUS_OK; steps++) {
    struct error lost = {.status = STATUS_OK};
    int pieces = 0;
    (void)tuner_step(tuning.tuner, TUNING_LATE, wanted_after_one, &pieces, &lost);
    status = fetch(&page, 0);
  }
  assert_int_equal(status, STATUS_BUSY);
  tuner_weight_gone(tuning.tuner, &tuning.weight);
  assert_int_equal(message.error.status, STATUS_CANCELLED);
  assert_int_equal(fetch(&page, 0), STATUS_NOT_FOUND);
}

static void test_refused_by_hand(void **state) {
  static const struct {
    const char *kernel, *why;
  } rows[] = {
      {"planted crime=99", "crime must be 0..9 in steps of 1, got 99"},
      {"planted crime", "NAME=VALUE is expected, got crime"},
      {"planted crime=x", "crime takes a number, got x"},
      {"planted threads=1", "kernels of family planted have no threads"},
      {"other", "this backend has no kernels of family other"},
      {"any nothing=1", "no family of this backend's kernels has all of: nothing=1"},
      {"cpu threads=200", "threads must be 0.."},
  };
  planted_open(TUNE_OFF);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct tune_request request = {.verb = TUNE_ASK, .weight = &tuning.weight};
    struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
    request.problem = (struct variant_problem){.m = TUNING_ROWS, .x_type = GEMM_F32, .y_type = GEMM_F32};
    snprintf(request.text, sizeof request.text, "%s", rows[i].kernel);
    tuning.answered = 0;
    tuner_request(tuning.tuner, &message);
    assert_int_equal(tuning.answered, 1);
    assert_int_not_equal(message.error.status, STATUS_OK);
    if (strstr(message.error.text, rows[i].why) == NULL)
      fail_msg("%s: %s", rows[i].kernel, message.error.text);
  }
}

static struct error pin(const char *kernel, enum status expected) {
  struct tune_request request = {.verb = TUNE_PIN, .weight = &tuning.weight};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  snprintf(request.text, sizeof request.text, "%s", kernel);
  tuner_request(tuning.tuner, &message);
  assert_int_equal(message.error.status, expected);
  return message.error;
}

static void test_pin(void **state) {
  planted_open(TUNE_OFF);
  pin("planted crime=0", STATUS_OK);
  assert_null(planted_serving()); /* not before it has been compared */
  tuning_run();
  assert_non_null(planted_serving());
  pin("planted crime=99", STATUS_INVALID);
  pin("other", STATUS_UNSUPPORTED);
  assert_non_null(planted_serving()); /* as it was */
  pin("planted crime=1", STATUS_OK);
  (void)planted_serving();
  tuning_run();
  assert_null(planted_serving()); /* it is wrong */
  pin("", STATUS_OK);
  assert_null(tuning.weight.pin);
  assert_null(planted_serving());
}

/* What takes many rows alone serves these, and is in nobody else's way; what takes none is refused. */
static void test_a_pin_for_many_rows(void **state) {
  (void)state;
  planted.rows = TUNING_ROWS;
  planted_open(TUNE_OFF);
  pin("planted crime=0", STATUS_OK);
  (void)planted_serving();
  tuning_run();
  assert_non_null(planted_serving());
  planted.rows = 5000;
  struct error error = pin("planted crime=1", STATUS_UNSUPPORTED);
  assert_non_null(strstr(error.text, "as 1 are none"));
  assert_non_null(strstr(error.text, "at least 5000; nearest that can: foreign")); /* nothing is cut off */
  assert_non_null(planted_serving());                                              /* as it was */
}

static void test_import_serves_after_its_check(void **state) {
  char shape[VARIANT_TEXT_BYTES];
  struct variant_problem problem = {
      .weight = tuning.weight.shape, .m = variant_bucket(TUNING_ROWS), .x_type = GEMM_F32, .y_type = GEMM_F32};
  planted.times[HONEST] = 5000;
  planted_open(TUNE_EAGER);
  struct tune_request request = {.verb = TUNE_IMPORT, .text = "planted crime=0"};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  snprintf(request.shape, sizeof request.shape, "%s", variant_problem_text(&problem, shape));
  tuner_request(tuning.tuner, &message);
  assert_int_equal(message.error.status, STATUS_OK);
  assert_null(planted_serving());
  struct tune_request list = {.verb = TUNE_LIST};
  message.tune = &list;
  tuner_request(tuning.tuner, &message);
  assert_int_equal(list.count, 1);
  assert_string_equal(list.page[0].state, "kept");
  assert_false(list.page[0].confirmed);
  tuning_run();
  assert_non_null(planted_serving());
  tuner_request(tuning.tuner, &message);
  assert_true(list.page[0].confirmed);
  message.tune = &request;
  strcpy(request.shape, "int8-row-4x4-f32-f32-none-m3");
  tuner_request(tuning.tuner, &message);
  assert_int_equal(message.error.status, STATUS_INVALID);
}

static void test_a_weight_that_goes(void **state) {
  struct tune_request request = {.verb = TUNE_ASK, .weight = &tuning.weight};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  request.problem = (struct variant_problem){.m = TUNING_ROWS, .x_type = GEMM_F32, .y_type = GEMM_F32};
  planted_offer(HONEST, 5000);
  planted_open(TUNE_OFF);
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

#define TUNER_TEST(test) cmocka_unit_test_setup_teardown(test, planted_set_up, planted_tear_down)

/* ---- what direct clients say */

static enum status ask(struct tune_request *request) {
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = request};
  tuner_request(tuning.tuner, &message);
  return message.error.status;
}

static void allow(uint64_t until_ns) {
  struct tune_request request = {.verb = TUNE_ALLOW, .until_ns = until_ns};
  assert_int_equal(ask(&request), STATUS_OK);
}

static void propose(const char *kernel) {
  struct tune_request request = {.verb = TUNE_SEEN, .weight = &tuning.weight};
  request.problem = (struct variant_problem){.m = TUNING_ROWS, .x_type = GEMM_F32, .y_type = GEMM_F32};
  snprintf(request.text, sizeof request.text, "%s", kernel);
  assert_int_equal(ask(&request), STATUS_OK);
}

static void test_what_a_client_found_serves_when_it_has_won(void **state) {
  planted.times[HONEST] = 3000; /* the search does not find it */
  planted_open(TUNE_BACKGROUND);
  propose("");
  tuning_run();
  assert_null(planted_serving());
  propose("planted crime=0");
  assert_null(planted_serving()); /* nobody takes a client's word */
  tuning_run();
  assert_int_equal(planted_crime(planted_serving()), HONEST);
}

static void test_what_a_client_found_is_right_and_faster_or_nothing(void **state) {
  planted.times[HONEST] = 1000000000; /* slow */
  planted.times[WRONG] = 3000;
  planted_open(TUNE_BACKGROUND);
  propose("planted crime=1");
  tuning_run();
  assert_null(planted_serving());
  assert_true(planted.launched[WRONG] > 0);
  propose("planted crime=0");
  tuning_run();
  assert_null(planted_serving());
  assert_true(planted.launched[HONEST] > 0);
  int launched = planted.launched[WRONG];
  propose("planted crime=1"); /* it is known */
  propose("planted crime=99");
  propose("nonsense");
  tuning_run();
  assert_int_equal(planted.launched[WRONG], launched);
  assert_null(planted_serving());
}

static void test_others_hold_it_back(void **state) {
  struct tune_request request = {.verb = TUNE_ASK, .weight = &tuning.weight, .text = "planted crime=0"};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &request};
  planted_offer(HONEST, 3000);
  planted_open(TUNE_BACKGROUND);
  assert_int_equal(tuning_step(TUNING_LATE), UINT64_MAX);
  assert_false(tuner_has_work(tuning.tuner));
  allow(0);
  propose("");
  assert_true(tuner_has_work(tuning.tuner));
  for (int i = 0; i < 10; i++)
    assert_int_equal(tuning_step(TUNING_LATE), UINT64_MAX);
  assert_true(tuner_has_work(tuning.tuner)); /* it waits */
  assert_int_equal(planted.trials, 0);
  allow(TUNING_LATE + 1);
  while (planted.trials < 3)
    (void)tuning_step(TUNING_LATE);
  int trials = planted.trials;
  for (int i = 0; i < 10; i++)
    assert_int_equal(tuning_step(TUNING_LATE + 1), UINT64_MAX); /* in the middle of a race */
  assert_int_equal(planted.trials, trials);
  request.problem = (struct variant_problem){.m = 1, .x_type = GEMM_F32, .y_type = GEMM_F32};
  tuning.answered = 0;
  tuner_request(tuning.tuner, &message); /* whoever asks by hand wants it now */
  while (tuning.answered == 0)
    (void)tuning_step(TUNING_LATE + 1);
  assert_int_equal(message.error.status, STATUS_OK);
  assert_true(tuner_has_work(tuning.tuner));
  allow(UINT64_MAX);
  tuning_run();
  assert_false(tuner_has_work(tuning.tuner));
  assert_int_equal(planted_crime(planted_serving()), HONEST);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TUNER_TEST(test_off_does_nothing_by_itself),
      TUNER_TEST(test_asked_for_by_hand),
      TUNER_TEST(test_the_table_has_all_that_was_tried),
      TUNER_TEST(test_no_table_of_what_has_not_ended),
      TUNER_TEST(test_refused_by_hand),
      TUNER_TEST(test_pin),
      TUNER_TEST(test_a_pin_for_many_rows),
      TUNER_TEST(test_import_serves_after_its_check),
      TUNER_TEST(test_a_weight_that_goes),
      TUNER_TEST(test_what_a_client_found_serves_when_it_has_won),
      TUNER_TEST(test_what_a_client_found_is_right_and_faster_or_nothing),
      TUNER_TEST(test_others_hold_it_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
