/* When a device that direct clients use may be used for what nobody waits for, and which of their shapes wait. */
#include "daemon/supervisor/idle/quiet.h"
#include "daemon/supervisor/idle/untuned.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define S 1000000000u

/* One look at a GPU that is measured, and left alone. */
static struct quiet_sight sight_at(uint64_t now_ns) {
  return (struct quiet_sight){
      .now_ns = now_ns, .quiet_ns = 5 * (uint64_t)S, .products = 7, .hidden = true, .measured = true};
}

static uint64_t look(struct quiet *quiet, struct quiet_sight sight) {
  return quiet_look(quiet, &sight);
}

static void it_has_to_be_left_alone_for_a_while(void **state) {
  struct quiet quiet = {0};
  assert_int_equal(look(&quiet, sight_at(S)), 0); /* who knows what was before */
  assert_int_equal(look(&quiet, sight_at(6 * (uint64_t)S - 1)), 0);
  assert_int_equal(quiet.why, QUIET_IN_USE);
  assert_int_equal(look(&quiet, sight_at(6 * (uint64_t)S)), 6 * (uint64_t)S + QUIET_TURN_NS);
  assert_int_equal(quiet.why, QUIET_ALLOWED);
}

static void whoever_computes_ends_it(void **state) {
  struct quiet quiet = {0};
  struct quiet_sight sight = sight_at(S);
  look(&quiet, sight);
  sight = sight_at(7 * (uint64_t)S);
  assert_true(look(&quiet, sight) > 0);
  sight.now_ns += S / 10;
  sight.products++; /* in the middle of a turn */
  assert_int_equal(look(&quiet, sight), 0);
  sight.now_ns += 5 * (uint64_t)S - 1;
  assert_int_equal(look(&quiet, sight), 0);
  sight.now_ns++;
  assert_true(look(&quiet, sight) > 0);
}

/* What is measured during a turn, and shortly after it, may be gemmd itself. */
static void own_work_is_not_taken_for_that_of_others(void **state) {
  struct quiet quiet = {0};
  struct quiet_sight sight = sight_at(S);
  look(&quiet, sight);
  sight.now_ns = 6 * (uint64_t)S;
  uint64_t end_ns = look(&quiet, sight);
  sight.busy = true;
  sight.now_ns = end_ns - 1;
  assert_int_equal(look(&quiet, sight), end_ns);
  sight.now_ns = end_ns;
  assert_int_equal(look(&quiet, sight), 0);
  assert_int_equal(quiet.why, QUIET_LOOKING);
  sight.now_ns = end_ns + QUIET_SETTLE_NS;
  sight.busy = false;
  assert_int_equal(look(&quiet, sight), sight.now_ns + QUIET_TURN_NS); /* it was */
  sight.now_ns += QUIET_TURN_NS + QUIET_SETTLE_NS;
  sight.busy = true;
  assert_int_equal(look(&quiet, sight), 0); /* now it is somebody else */
  assert_int_equal(quiet.why, QUIET_IN_USE);
  sight.busy = false;
  sight.now_ns += 5 * (uint64_t)S - 1;
  assert_int_equal(look(&quiet, sight), 0);
}

static void what_cannot_be_seen_is_not_assumed(void **state) {
  struct quiet quiet = {0};
  struct quiet_sight sight = sight_at(S);
  sight.measured = false;
  look(&quiet, sight);
  sight.now_ns = 100 * (uint64_t)S;
  assert_int_equal(look(&quiet, sight), 0);
  assert_int_equal(quiet.why, QUIET_BLIND);
  sight.pause_until_ns = 101 * (uint64_t)S; /* but engines are believed */
  assert_int_equal(look(&quiet, sight), 101 * (uint64_t)S);
  assert_int_equal(quiet.why, QUIET_PAUSED);
  sight.now_ns = sight.pause_until_ns;
  assert_int_equal(look(&quiet, sight), 0);
  sight.hidden = false; /* all that clients compute is told of, as on the cpu backend */
  sight.now_ns += 4 * (uint64_t)S;
  assert_int_equal(look(&quiet, sight), 0); /* whoever paused goes on */
  sight.now_ns += S;
  assert_int_equal(look(&quiet, sight), sight.now_ns + QUIET_TURN_NS);
  sight.now_ns += QUIET_TURN_NS;
  assert_int_equal(look(&quiet, sight), sight.now_ns + QUIET_TURN_NS); /* with no need to stop for a look */
}

static void a_pause_that_ends_early_ends_at_once(void **state) {
  struct quiet quiet = {0};
  struct quiet_sight sight = sight_at(S);
  sight.pause_until_ns = 60 * (uint64_t)S;
  assert_int_equal(look(&quiet, sight), 60 * (uint64_t)S);
  sight.now_ns = 10 * (uint64_t)S;
  sight.pause_until_ns = 0;
  assert_int_equal(look(&quiet, sight), 0);
  assert_int_equal(quiet.why, QUIET_IN_USE);
}

static void every_reason_has_a_text(void **state) {
  for (int i = QUIET_ALLOWED; i <= QUIET_LOOKING; i++)
    assert_true(strlen(quiet_text((enum quiet_why)i)) > 4);
}

/* ---- shapes */

static struct message_weight_seen shape_of(uint32_t weight, int64_t m) {
  return (struct message_weight_seen){.weight = weight, .m = m, .x_type = 2, .y_type = 2};
}

static void a_shape_is_told_once_to_each_worker(void **state) {
  struct untuned untuned = {.list = NULL};
  struct message_weight_seen a = shape_of(1, 4), b = shape_of(2, 4);
  assert_null(untuned_tell(&untuned));
  untuned_add(&untuned, &a);
  untuned_add(&untuned, &a);
  untuned_add(&untuned, &b);
  assert_int_equal(untuned.count, 2);
  assert_int_equal(untuned_tell(&untuned)->weight, 1);
  assert_int_equal(untuned_tell(&untuned)->weight, 2);
  untuned_add(&untuned, &a);
  assert_null(untuned_tell(&untuned));
  untuned_again(&untuned); /* the next worker */
  assert_int_equal(untuned_tell(&untuned)->weight, 1);
  untuned_done(&untuned); /* of the other one it has not heard */
  assert_int_equal(untuned.count, 1);
  assert_int_equal(untuned_tell(&untuned)->weight, 2);
  untuned_free(&untuned);
}

static void a_kernel_that_was_found_is_news(void **state) {
  struct untuned untuned = {.list = NULL};
  struct message_weight_seen a = shape_of(1, 4);
  untuned_add(&untuned, &a);
  assert_string_equal(untuned_tell(&untuned)->kernel, "");
  snprintf(a.kernel, sizeof a.kernel, "cpu threads=2");
  untuned_add(&untuned, &a);
  assert_int_equal(untuned.count, 1);
  assert_string_equal(untuned_tell(&untuned)->kernel, "cpu threads=2");
  untuned_free(&untuned);
}

static void the_oldest_goes_where_there_are_too_many(void **state) {
  struct untuned untuned = {.list = NULL};
  for (uint32_t i = 0; i < UNTUNED_MOST + 3; i++) {
    struct message_weight_seen seen = shape_of(i, 1);
    untuned_add(&untuned, &seen);
  }
  assert_int_equal(untuned.count, UNTUNED_MOST);
  assert_int_equal(untuned_tell(&untuned)->weight, 3);
  untuned_free(&untuned);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(it_has_to_be_left_alone_for_a_while),      cmocka_unit_test(whoever_computes_ends_it),
      cmocka_unit_test(own_work_is_not_taken_for_that_of_others), cmocka_unit_test(what_cannot_be_seen_is_not_assumed),
      cmocka_unit_test(a_pause_that_ends_early_ends_at_once),     cmocka_unit_test(every_reason_has_a_text),
      cmocka_unit_test(a_shape_is_told_once_to_each_worker),      cmocka_unit_test(a_kernel_that_was_found_is_news),
      cmocka_unit_test(the_oldest_goes_where_there_are_too_many),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
