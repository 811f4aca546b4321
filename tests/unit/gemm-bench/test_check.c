/* gemm-bench's look at y: differences of every type, and what was never written. */
#include "tests/gemm-bench/check.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void expect(double got, double wanted) {
  if (!(fabs(got - wanted) <= 1e-9))
    fail_msg("%g in place of %g", got, wanted);
}

static void test_types(void **state) {
  (void)state;
  const float f32[2][4] = {{3, 4, 0, 0}, {3, 4, 0, 5}};
  const int32_t s32[2][4] = {{3, 4, 0, 0}, {3, 4, 0, 5}};
  const uint16_t f16[2][4] = {{0x4200, 0x4400, 0, 0x8000}, {0x4200, 0x4400, 0, 0xc500}};
  const uint16_t bf16[2][4] = {{0x4040, 0x4080, 0, 0x8000}, {0x4040, 0x4080, 0, 0xc0a0}};
  const struct {
    enum gemmd_type type;
    const void *right, *wrong;
  } cases[] = {{GEMMD_F32, f32[0], f32[1]},
               {GEMMD_S32, s32[0], s32[1]},
               {GEMMD_F16, f16[0], f16[1]},
               {GEMMD_BF16, bf16[0], bf16[1]}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    expect(check_difference(cases[i].right, cases[i].right, cases[i].type, 1, 4), 0);
    expect(check_difference(cases[i].wrong, cases[i].right, cases[i].type, 1, 4), 1);
  }
}

static void test_the_worst_row_counts(void **state) {
  (void)state;
  const float right[] = {10, 0, 10, 0, 10, 0}, y[] = {10, 0, 10, 3, 10, 1};
  expect(check_difference(y, right, GEMMD_F32, 3, 2), 0.3);
}

static void test_f16_at_its_edges(void **state) {
  (void)state;
  expect(from_half(0x0001) * 0x1p24, 1);
  expect(from_half(0x7bff), 65504);
  expect(from_half(0xbc00), -1);
  assert_true(isinf(from_half(0xfc00)) && isnan(from_half(0x7e00)));
}

/* Not a number, or something where nothing ought to be: as wrong as can be. */
static void test_what_was_not_written(void **state) {
  (void)state;
  float right[] = {1, 2}, y[] = {1, NAN}, zeros[] = {0, 0};
  assert_true(isinf(check_difference(y, right, GEMMD_F32, 1, 2)));
  assert_true(isinf(check_difference(right, zeros, GEMMD_F32, 1, 2)));
  expect(check_difference(zeros, zeros, GEMMD_F32, 1, 2), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_types),
      cmocka_unit_test(test_the_worst_row_counts),
      cmocka_unit_test(test_f16_at_its_edges),
      cmocka_unit_test(test_what_was_not_written),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
