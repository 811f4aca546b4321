/* The list of shapes that were served: what is to be tuned next, and what the device could do at best. */
#include "daemon/worker/tune/record/tune_book.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const struct variant_problem problem = {
    .weight = {.n = 4096, .k = 300, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW},
    .m = 64,
    .x_type = GEMM_BF16,
    .y_type = GEMM_F32,
    .bias_type = GEMM_F16};

static const struct book_visit early = {.user = 1000, .now_ns = 1};

static void test_most_to_win_goes_first(void **state) {
  struct book book;
  struct error error;
  struct variant_problem other = problem;
  bool waits;
  struct backend_weight *weight = (struct backend_weight *)&book; /* only ever compared */
  other.m = 1;
  assert_int_equal(book_open(&book, &error), STATUS_OK);
  struct book_entry *large = book_visit(&book, &problem, NULL, &early),
                    *small_one = book_visit(&book, &other, NULL, &early);
  assert_null(book_next(&book, false, true, &waits)); /* no weight to tune with */
  book_add_weight(large, weight);
  book_add_weight(small_one, weight);
  large->calls = small_one->calls = 10;
  large->device_ns = 900000;
  small_one->device_ns = 100000;
  assert_ptr_equal(book_next(&book, false, true, &waits), large);
  small_one->asked = true;
  assert_ptr_equal(book_next(&book, false, true, &waits), small_one);
  assert_ptr_equal(book_next(&book, true, true, &waits), small_one);
  small_one->asked = false;
  assert_null(book_next(&book, true, true, &waits));
  large->state = BOOK_TUNED;
  assert_ptr_equal(book_next(&book, false, true, &waits), small_one);
  assert_false(waits);
  large->library_waits = true; /* less is to be won there */
  assert_ptr_equal(book_next(&book, false, true, &waits), small_one);
  small_one->aside = true;
  assert_ptr_equal(book_next(&book, false, false, &waits), large);
  large->aside = true;
  assert_null(book_next(&book, false, false, &waits));
  assert_true(waits);
  assert_ptr_equal(book_next(&book, false, true, &waits), small_one);
  small_one->state = BOOK_TUNED;
  assert_ptr_equal(book_next(&book, false, true, &waits), large);
  large->library_waits = large->aside = small_one->aside = false;
  large->compiled_wait = true; /* nothing is compiled between requests */
  assert_null(book_next(&book, false, false, &waits));
  assert_true(waits);
  small_one->library_waits = true; /* and before that a library's are raced, however little is to be won */
  assert_ptr_equal(book_next(&book, false, true, &waits), small_one);
  small_one->library_waits = false;
  assert_ptr_equal(book_next(&book, false, true, &waits), large);
  assert_true(book_only_compiles(large) && !book_only_compiles(small_one));
  book_weight_gone(&book, weight);
  assert_null(book_next(&book, false, true, &waits));
  book_close(&book);
}

static void test_a_full_list_serves_untuned(void **state) {
  struct book book;
  struct error error;
  struct variant_problem other = problem;
  int refused = 0;
  assert_int_equal(book_open(&book, &error), STATUS_OK);
  for (int i = 1; i <= 2 * BOOK_ENTRIES; i++) {
    other.weight.n = i;
    refused += book_visit(&book, &other, NULL, &early) == NULL;
  }
  assert_true(refused >= BOOK_ENTRIES);
  assert_true(book.count <= BOOK_ENTRIES);
  book_close(&book);
}

/* How many of `count` shapes of this user, with so many columns and one row or more of W each, are listed. */
static int visits(struct book *book, int64_t columns, int count, uint32_t user, uint64_t now_ns) {
  const struct book_visit visit = {.user = user, .now_ns = now_ns};
  struct variant_problem other = problem;
  int listed = 0;
  other.weight.k = columns;
  for (int i = 1; i <= count; i++) {
    other.weight.n = i;
    listed += book_visit(book, &other, NULL, &visit) != NULL;
  }
  return listed;
}

static int still_listed(struct book *book, int64_t columns, int count) {
  struct variant_problem other = problem;
  int listed = 0;
  other.weight.k = columns;
  for (int i = 1; i <= count; i++) {
    other.weight.n = i;
    listed += book_find(book, &other, NULL) != NULL;
  }
  return listed;
}

/* Whoever asks for ever new shapes loses some of them to who asks for a few, and gets none of theirs. */
static void test_one_user_leaves_room_for_others(void **state) {
  enum { FEW = 500 };
  struct book book;
  struct error error;
  assert_int_equal(book_open(&book, &error), STATUS_OK);
  (void)visits(&book, 16, 4 * BOOK_ENTRIES, 1000, 1);
  assert_int_equal(book.count, BOOK_ENTRIES);
  assert_int_equal(visits(&book, 32, FEW, 1001, 2), FEW);
  assert_int_equal(still_listed(&book, 32, FEW), FEW);
  assert_int_equal(visits(&book, 48, 4 * BOOK_ENTRIES, 1000, 3), 0);
  assert_int_equal(still_listed(&book, 32, FEW), FEW);
  assert_int_equal(book.count, BOOK_ENTRIES);
  (void)visits(&book, 64, 4 * BOOK_ENTRIES, 1001, 4); /* no user gets the places of all others either */
  assert_true(still_listed(&book, 16, 4 * BOOK_ENTRIES) > BOOK_ENTRIES / 4);
  book_close(&book);
}

/* What nobody has asked for in ten minutes makes room; what is being tuned or was asked to be stays. */
static void test_what_is_out_of_use_makes_room(void **state) {
  const uint64_t later = 1 + (uint64_t)601 * 1000000000;
  struct book book;
  struct error error;
  assert_int_equal(book_open(&book, &error), STATUS_OK);
  (void)visits(&book, 16, 4 * BOOK_ENTRIES, 1000, 1);
  for (uint32_t i = 0; i < BOOK_ENTRIES; i++) {
    book.entries[i].held = i % 2 == 0;
    book.entries[i].asked = i % 4 == 1;
  }
  (void)visits(&book, 32, 4 * BOOK_ENTRIES, 1000, later);
  for (uint32_t i = 0; i < BOOK_ENTRIES; i++)
    assert_int_equal(book.entries[i].problem.weight.k, i % 4 == 3 ? 32 : 16);
  assert_int_equal(book.count, BOOK_ENTRIES);
  book_close(&book);
}

/* A shape that takes a thousandth of all time is left for a quiet moment, also where the others are tuned or wait; it
 * is looked at again when it has taken more. */
static void test_a_rare_one_waits(void **state) {
  struct book book;
  struct error error;
  struct variant_problem other = problem;
  bool waits;
  struct backend_weight *weight = (struct backend_weight *)&book; /* only ever compared */
  other.m = 1;
  assert_int_equal(book_open(&book, &error), STATUS_OK);
  struct book_entry *often = book_visit(&book, &problem, NULL, &early), *rare = book_visit(&book, &other, NULL, &early);
  book_add_weight(often, weight);
  book_add_weight(rare, weight);
  often->calls = 1000;
  often->device_ns = 9990000;
  rare->calls = 1;
  rare->device_ns = 10000;
  often->aside = true;
  assert_true(book_frequent(rare));
  assert_null(book_next(&book, false, false, &waits));
  assert_true(waits);
  assert_false(book_frequent(rare));
  assert_ptr_equal(book_next(&book, false, true, &waits), often);
  often->state = BOOK_TUNED;
  assert_ptr_equal(book_next(&book, false, true, &waits), rare);
  assert_null(book_next(&book, false, false, &waits));
  assert_true(waits);
  rare->asked = true;
  assert_ptr_equal(book_next(&book, true, false, &waits), rare);
  rare->asked = false;
  rare->state = BOOK_KEPT; /* to compare it with the reference costs little */
  assert_ptr_equal(book_next(&book, false, false, &waits), rare);
  rare->state = BOOK_SEEN;
  rare->device_ns = 49000;
  assert_null(book_next(&book, false, false, &waits));
  rare->device_ns = 51000;
  assert_false(book_frequent(rare)); /* not at once: looks become fewer */
  rare->device_ns = 98000;
  assert_true(book_frequent(rare));
  assert_ptr_equal(book_next(&book, false, false, &waits), rare);
  book_close(&book);
}

static void test_the_roof(void **state) {
  struct variant_problem product = {
      .weight = {.n = 1000, .k = 2000, .format = GEMM_FORMAT_INT8}, .m = 10, .x_type = GEMM_F16, .y_type = GEMM_F32};
  struct backend_roof memory = {.bytes_per_s = 1000000000}, arithmetic = {.bytes_per_s = UINT64_C(1000000000000)};
  memory.operations_per_s[GEMM_FORMAT_INT8] = UINT64_C(1000000000000);
  arithmetic.operations_per_s[GEMM_FORMAT_INT8] = 1000000000;
  arithmetic.operations_per_s[GEMM_FORMAT_F16] = 500000000;
  assert_int_equal(book_roof_ns(&product, &memory), 2000000 + 40000 + 40000);
  assert_int_equal(book_roof_ns(&product, &arithmetic), 40000000);
  product.weight.format = GEMM_FORMAT_F16;
  assert_int_equal(book_roof_ns(&product, &arithmetic), 80000000);
  assert_int_equal(book_roof_ns(&product, &memory), 0);
  arithmetic.bytes_per_s = 0;
  assert_int_equal(book_roof_ns(&product, &arithmetic), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_most_to_win_goes_first),
      cmocka_unit_test(test_a_full_list_serves_untuned),
      cmocka_unit_test(test_one_user_leaves_room_for_others),
      cmocka_unit_test(test_what_is_out_of_use_makes_room),
      cmocka_unit_test(test_a_rare_one_waits),
      cmocka_unit_test(test_the_roof),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
