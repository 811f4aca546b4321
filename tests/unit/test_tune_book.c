/* The list of shapes that were served: what is to be tuned next, and what the device could do at best. */
#include "daemon/worker/tune_book.h"

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

static void test_most_to_win_goes_first(void **state) {
  (void)state;
  struct book book;
  struct error error;
  struct variant_problem other = problem;
  bool waits;
  struct backend_weight *weight = (struct backend_weight *)&book; /* only ever compared */
  other.m = 1;
  assert_int_equal(book_open(&book, &error), STATUS_OK);
  struct book_entry *large = book_find(&book, &problem, NULL, true), *small_one = book_find(&book, &other, NULL, true);
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
  book_weight_gone(&book, weight);
  assert_null(book_next(&book, false, true, &waits));
  book_close(&book);
}

static void test_a_full_list_serves_untuned(void **state) {
  (void)state;
  struct book book;
  struct error error;
  struct variant_problem other = problem;
  int refused = 0;
  assert_int_equal(book_open(&book, &error), STATUS_OK);
  for (int i = 1; i <= 2 * BOOK_ENTRIES; i++) {
    other.weight.n = i;
    refused += book_find(&book, &other, NULL, true) == NULL;
  }
  assert_true(refused >= BOOK_ENTRIES);
  assert_true(book.count <= BOOK_ENTRIES);
  book_close(&book);
}

/* A shape that takes a thousandth of all time is left for a quiet moment, also where the others are tuned or wait; it
 * is looked at again when it has taken more. */
static void test_a_rare_one_waits(void **state) {
  (void)state;
  struct book book;
  struct error error;
  struct variant_problem other = problem;
  bool waits;
  struct backend_weight *weight = (struct backend_weight *)&book; /* only ever compared */
  other.m = 1;
  assert_int_equal(book_open(&book, &error), STATUS_OK);
  struct book_entry *often = book_find(&book, &problem, NULL, true), *rare = book_find(&book, &other, NULL, true);
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
  (void)state;
  struct variant_problem product = {
      .weight = {.n = 1000, .k = 2000, .format = GEMM_FORMAT_INT8}, .m = 10, .x_type = GEMM_F16, .y_type = GEMM_F32};
  assert_int_equal(book_roof_ns(&product, 1000000000, UINT64_C(1000000000000)), 2000000 + 40000 + 40000);
  assert_int_equal(book_roof_ns(&product, UINT64_C(1000000000000), 1000000000), 40000000);
  product.weight.format = GEMM_FORMAT_F16;
  assert_int_equal(book_roof_ns(&product, UINT64_C(1000000000000), 1000000000), 80000000);
  assert_int_equal(book_roof_ns(&product, 0, 1), 0);
  assert_int_equal(book_roof_ns(&product, 1, 0), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_most_to_win_goes_first),
      cmocka_unit_test(test_a_full_list_serves_untuned),
      cmocka_unit_test(test_a_rare_one_waits),
      cmocka_unit_test(test_the_roof),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
