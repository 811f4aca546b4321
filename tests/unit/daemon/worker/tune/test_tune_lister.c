/* The thread that lists what a library has: the answer is to the latest question, whoever is slow. */
#include "daemon/worker/tune/tune_lister.h"

#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const struct variant_family family = {
    .name = "library", .library = true, .count = 1, .parameters = {{"rows", "of the question", 0, 1 << 20, 1, 0}}};
static sem_t begun, may_end;

/* As many as are asked for, each with the question's rows. */
static int list(struct backend *backend, const struct variant_problem *problem, bool all, struct variant *out,
                int most) {
  sem_post(&begun);
  while (sem_wait(&may_end) != 0)
    ;
  for (int i = 0; i < most; i++)
    out[i] = (struct variant){.family = &family, .values = {(int32_t)problem->m + all}};
  return most;
}

static const struct backend_ops ops = {.library_variants = list};
static struct tune_lister *lister;

static int set_up(void **state) {
  struct error error;
  sem_init(&begun, 0, 0);
  sem_init(&may_end, 0, 0);
  return tune_lister_open(&ops, NULL, &lister, &error) == STATUS_OK ? 0 : -1;
}

static int tear_down(void **state) {
  tune_lister_close(lister);
  sem_destroy(&begun);
  sem_destroy(&may_end);
  return 0;
}

static void ask(int64_t rows, bool all, int most) {
  const struct variant_problem problem = {.m = rows};
  tune_lister_ask(lister, &problem, all, most);
}

static int wait_for_answer(const struct variant **out) {
  int count;
  while ((count = tune_lister_answer(lister, out)) < 0)
    sched_yield();
  return count;
}

static void wait_for(sem_t *event) {
  while (sem_wait(event) != 0)
    ;
}

static void test_an_answer(void **state) {
  const struct variant *answer;
  ask(16, false, 3);
  wait_for(&begun);
  assert_int_equal(tune_lister_answer(lister, &answer), -1);
  sem_post(&may_end);
  assert_int_equal(wait_for_answer(&answer), 3);
  assert_int_equal(answer[2].values[0], 16);
  assert_int_equal(tune_lister_answer(lister, &answer), 3); /* until the next question */
  ask(32, true, 2 * LISTER_MOST);
  assert_int_equal(tune_lister_answer(lister, &answer), -1);
  sem_post(&may_end);
  assert_int_equal(wait_for_answer(&answer), LISTER_MOST);
  assert_int_equal(answer[LISTER_MOST - 1].values[0], 33);
}

/* The answer to the first question comes when nobody wants it any more. */
static void test_the_latest_question_counts(void **state) {
  const struct variant *answer;
  ask(1, false, 5);
  wait_for(&begun);
  ask(2, false, 6);
  ask(3, false, 7);
  sem_post(&may_end);
  wait_for(&begun);
  assert_int_equal(tune_lister_answer(lister, &answer), -1);
  sem_post(&may_end);
  assert_int_equal(wait_for_answer(&answer), 7);
  assert_int_equal(answer[0].values[0], 3);
}

static void test_an_end_without_an_answer(void **state) {
  ask(1, false, 1);
  wait_for(&begun);
  sem_post(&may_end); /* the end waits for the list that is being made */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_an_answer, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_the_latest_question_counts, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_an_end_without_an_answer, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
