/* Which algorithms of cuBLASLt are asked for. */
#include "kernels/cuda/families/cublaslt/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static bool keeps(enum gemm_format format, int32_t slices, int32_t cluster) {
  const int32_t attributes[ALGORITHM_ATTRIBUTES] = {
      [ALGORITHM_ID] = 66, [ALGORITHM_SPLIT_K] = slices, [ALGORITHM_CLUSTER] = cluster};
  return library_keeps_sums(format, attributes);
}

/* Halves whose K is cut up by kernels in clusters are added up as halves. */
static void many_slices_of_halves_are_refused(void **state) {
  (void)state;
  assert_false(keeps(GEMM_FORMAT_F16, 82, 2));
  assert_false(keeps(GEMM_FORMAT_BF16, 82, 2));
  assert_true(keeps(GEMM_FORMAT_F16, 1, 2));
  assert_true(keeps(GEMM_FORMAT_F16, 82, 0));
  assert_true(keeps(GEMM_FORMAT_INT8, 82, 2));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(many_slices_of_halves_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
