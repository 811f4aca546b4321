/* Which products the kernel for few rows takes, and how it is configured. */
#include "kernels/cuda/families/few/config.h"
#include "tests/support/reference/hopper_problem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool takes(const struct kernel_problem *problem, int capability) {
  struct kernel_problem at = *problem;
  at.device.capability = capability;
  return few_takes(&at);
}

static void test_few_takes(void **state) {
  (void)state;
  struct kernel_problem int8 = product_of(GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 16, 8192, 8192);
  struct kernel_problem fp8 = product_of(GEMM_FORMAT_FP8, GEMM_SCALE_ONE, 1, 3, 16);
  struct kernel_problem block = product_of(GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK, 1, 128, 128);
  struct kernel_problem rows = product_of(GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 17, 128, 128);
  struct kernel_problem wide = product_of(GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 16, 128, 16384);
  assert_true(takes(&int8, 90));
  assert_false(takes(&int8, 80)); /* 16 rows of 8192 do not fit there */
  int8.m = 8;
  assert_true(takes(&int8, 80));
  assert_false(takes(&int8, 75));
  assert_true(takes(&fp8, 90));
  assert_false(takes(&fp8, 89));
  assert_false(takes(&block, 90));
  assert_false(takes(&rows, 90));
  assert_false(takes(&wide, 90));
}

/* Whatever is chosen can run, covers W, and leaves few multiprocessors without a tile. */
static void test_few_chooses(void **state) {
  (void)state;
  static const int64_t ns[] = {1, 7, 130, 1280, 8192, 57344, 1 << 24}, ks[] = {16, 304, 1024, 3584, 8192, 10000};
  struct few_config listed[400];
  for (size_t i = 0; i < sizeof ns / sizeof *ns; i++)
    for (size_t j = 0; j < sizeof ks / sizeof *ks; j++) {
      struct kernel_problem product = product_of(GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 9, ns[i], ks[j]);
      struct few_config config = few_configure(&product);
      assert_true(few_config_valid(&config));
      int count = few_candidates(&product, listed, 400);
      assert_int_equal(count, 8 + 16 + 32 + 64 + 128);
      assert_memory_equal(&listed[0], &config, sizeof config);
      for (int l = 0; l < count; l++)
        assert_true(few_config_valid(&listed[l]));
      if (ns[i] >= 1280)
        assert_true((ns[i] + config.rows - 1) / config.rows >= SMS / 2);
    }
  const struct few_config bad[] = {{3, 16}, {16, 18}, {8, 34}, {1, 258}, {4, 15}, {4, 0}, {32, 8}, {0, 16}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_false(few_config_valid(&bad[i]));
}

/* Neighbouring rows of x begin in other banks, and there is a unit of zeros behind each. */
static void test_few_shared(void **state) {
  (void)state;
  for (int64_t k = 16; k < 20000; k += 16) {
    int stride = few_x_stride(k);
    assert_int_equal(stride % 128, 64);
    assert_true(stride >= (k + 63) / 64 * 64 + 64);
    assert_true(few_shared_bytes(9, k) >= 9 * (int64_t)stride + 2 * 16 * 16 * 20 * 4);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_few_takes),
      cmocka_unit_test(test_few_chooses),
      cmocka_unit_test(test_few_shared),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
