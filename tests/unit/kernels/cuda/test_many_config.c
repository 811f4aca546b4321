/* Which products the kernel for many rows takes, and how it is configured. */
#include "kernels/cuda/families/sm90/many/config.h"
#include "tests/support/reference/hopper_problem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_many_chooses(void **state) {
  (void)state;
  double busy;
  struct kernel_problem product = product_of(GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 1024, 8192, 8192);
  product.y_type = GEMM_BF16;
  assert_true(many_takes(&product));
  assert_int_equal(many_configure(&product, &busy).columns, 256); /* 256 tiles in two rounds */
  assert_true(busy > 0.96 && busy <= 1);
  product.m = 256; /* 64 wide tiles, or 128 */
  assert_int_equal(many_configure(&product, &busy).columns, 128);
  assert_true(busy > 0.96 && busy <= 1);
  product.n = 130;
  product.m = 129;
  assert_true(many_config_valid(&(struct many_config){.columns = 128, .group = 1}));
  (void)many_configure(&product, &busy);
  assert_true(busy < 0.02);
  product.y_type = GEMM_S32;
  assert_false(many_takes(&product));
  product.y_type = GEMM_F32;
  product.m = 128;
  assert_false(many_takes(&product));
  product.m = 129;
  assert_true(many_takes(&product));
  product.format = GEMM_FORMAT_FP8;
  assert_false(many_takes(&product));
  const struct many_config bad[] = {{64, 16}, {192, 16}, {256, 0}, {256, 65}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_false(many_config_valid(&bad[i]));
  assert_true(many_shared_bytes(128) <= 227 * 1024 && many_shared_bytes(256) <= 227 * 1024);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_many_chooses),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
