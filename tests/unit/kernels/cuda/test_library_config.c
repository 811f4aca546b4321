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

/* W of few rows in FP8 is multiplied in f32: no way of the library's is one, whoever asks. */
static void few_rows_of_fp8_are_not_the_librarys(void **state) {
  struct kernel_problem problem = {.device = {.capability = 90, .multiprocessors = 132},
                                   .scale = GEMM_SCALE_ROW,
                                   .k = 128,
                                   .k_padded = 128,
                                   .m = 1,
                                   .y_type = GEMM_BF16};
  struct library_way out;
  (void)state;
  for (int way = 0; way < LIBRARY_WAYS; way++)
    for (int64_t n = 1; n <= FP8_COLUMNS_LEAST; n += FP8_COLUMNS_LEAST - 1) {
      problem.n = n;
      problem.n_padded = 128;
      problem.format = GEMM_FORMAT_FP8;
      bool taken = library_way(&problem, way, &out);
      assert_true(n == FP8_COLUMNS_LEAST || !taken);
      problem.format = GEMM_FORMAT_F16;
      problem.scale = GEMM_SCALE_NONE;
      assert_true(way != 0 || library_way(&problem, way, &out));
      problem.scale = GEMM_SCALE_ROW;
    }
  problem.format = GEMM_FORMAT_FP8;
  assert_true(library_way(&problem, 1, &out));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(many_slices_of_halves_are_refused),
                                     cmocka_unit_test(few_rows_of_fp8_are_not_the_librarys)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
