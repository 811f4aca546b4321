/* The rotation against the matrix that it stands for, in float64, and what it does to numbers that are not finite. */
#include "proto/gemm.h"
#include "proto/rotate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 1 << 2 * GEMM_ROTATE_MOST };

/* An element of the Kronecker power of the matrix of 4: digits of both places, to base 4. */
static double element(int row, int column, uint32_t stages) {
  double sign = 1;
  for (uint32_t i = 0; i < stages; i++, row /= 4, column /= 4)
    sign *= row % 4 + column % 4 == 3 ? -1 : 1;
  return sign / (double)(1 << stages);
}

static float value_of(int i) {
  return (float)((i * 7919 + 31) % 1009 - 504) / 64;
}

static void as_the_matrix(void **state) {
  for (uint32_t stages = 0; stages <= GEMM_ROTATE_MOST; stages++) {
    int size = 1 << 2 * stages;
    float values[2 * MOST];
    for (int i = 0; i < 2 * size; i++)
      values[i] = value_of(i);
    rotate_groups(values, 2 * size, stages);
    for (int i = 0; i < 2 * size; i++) {
      double sum = 0;
      for (int j = 0; j < size; j++)
        sum += (double)value_of(i / size * size + j) * element(j, i % size, stages);
      assert_true(fabs(sum - (double)values[i]) <= 1e-4);
    }
  }
}

static void twice_is_nothing(void **state) {
  float values[MOST], before[MOST];
  for (int i = 0; i < MOST; i++)
    before[i] = values[i] = (float)((i * 31) % 16); /* whole numbers: every sum is exact */
  rotate_groups(values, MOST, GEMM_ROTATE_MOST);
  rotate_groups(values, MOST, GEMM_ROTATE_MOST);
  assert_memory_equal(values, before, sizeof values);
}

static void a_group_with_what_is_not_finite(void **state) {
  const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f};
  for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
    float values[32];
    for (int j = 0; j < 32; j++)
      values[j] = j < 16 && i == 3 ? odd[i] : 1;
    values[5] = odd[i];
    rotate_groups(values, 32, 2);
    bool finite = true;
    for (int j = 0; j < 16; j++)
      finite = finite && isfinite(values[j]);
    assert_false(finite);
    for (int j = 16; j < 32; j++)
      assert_true(isfinite(values[j]));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(as_the_matrix),
      cmocka_unit_test(twice_is_nothing),
      cmocka_unit_test(a_group_with_what_is_not_finite),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
