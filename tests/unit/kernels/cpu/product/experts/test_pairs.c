#include "kernels/cpu/product/experts/pairs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static struct pairs make(int64_t rows, int64_t top, int64_t experts) {
  struct pairs pairs = {.top = top, .experts = experts};
  void *memory = malloc(pairs_bytes(&pairs, rows));
  assert_non_null(memory);
  pairs_place(&pairs, rows, memory);
  return pairs;
}

static void sorted_by_expert_and_row(void **state) {
  struct pairs pairs = make(4, 2, 4);
  const int32_t ids[] = {2, 0, -1, 2, 3, 3, 4, 0};
  const int32_t begins[] = {0, 2, 2, 4, 6}, sorted[] = {1, 7, 0, 3, 4, 5}, places[] = {2, 0, -1, 3, 4, 5, -1, 1};
  pairs_sort(&pairs, ids, 4);
  assert_memory_equal(pairs.begins, begins, sizeof begins);
  assert_memory_equal(pairs.sorted, sorted, sizeof sorted);
  assert_memory_equal(pairs.places, places, sizeof places);
  free(pairs.begins);
}

static void fewer_rows_than_there_is_memory_for(void **state) {
  struct pairs pairs = make(8, 3, 2);
  const int32_t ids[] = {1, 1, INT32_MIN}, begins[] = {0, 0, 2}, sorted[] = {0, 1}, places[] = {0, 1, -1};
  pairs_sort(&pairs, ids, 1);
  assert_memory_equal(pairs.begins, begins, sizeof begins);
  assert_memory_equal(pairs.sorted, sorted, sizeof sorted);
  assert_memory_equal(pairs.places, places, sizeof places);
  free(pairs.begins);
}

static void nothing_that_is_an_expert(void **state) {
  struct pairs pairs = make(2, 1, 1);
  const int32_t ids[] = {1, INT32_MAX}, begins[] = {0, 0}, places[] = {-1, -1};
  pairs_sort(&pairs, ids, 2);
  assert_memory_equal(pairs.begins, begins, sizeof begins);
  assert_memory_equal(pairs.places, places, sizeof places);
  free(pairs.begins);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sorted_by_expert_and_row),
      cmocka_unit_test(fewer_rows_than_there_is_memory_for),
      cmocka_unit_test(nothing_that_is_an_expert),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
