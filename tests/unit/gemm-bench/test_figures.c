/* Figures of gemm-bench. Its histogram: every value falls into the bucket that stands for it, and quantiles are as
 * close as its header says. Its account of what a machine takes away: recorded gaps in, what calls at random times
 * would take out. Its look at y: differences of every type, and what was never written. The tools' objects are no part
 * of a library: the files themselves. */
#include "tests/gemm-bench/check.c"
#include "tests/gemm-bench/gaps.c"
#include "tests/gemm-bench/histogram.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_buckets_have_their_values(void **state) {
  for (unsigned bucket = 0; bucket < HISTOGRAM_BUCKETS; bucket++)
    assert_int_equal(bucket_of(histogram_value(bucket)), bucket);
  assert_int_equal(bucket_of(UINT64_MAX), HISTOGRAM_BUCKETS - 1);
}

static void test_values_are_within_half_a_step(void **state) {
  uint64_t value = 1;
  for (int i = 0; i < 4096; i++) {
    value = value % ((uint64_t)1 << 62) + value / 97 + 1;
    double back = (double)histogram_value(bucket_of(value));
    assert_true(fabs(back - (double)value) <= (double)value / 255);
  }
}

static struct histogram *make(void) {
  struct histogram *histogram = calloc(1, sizeof *histogram);
  assert_non_null(histogram);
  return histogram;
}

static void test_quantiles(void **state) {
  struct histogram *histogram = make();
  assert_int_equal(histogram_at(histogram, 0.5), 0);
  assert_true(histogram_mean(histogram) == 0);
  for (uint64_t value = 1; value <= 1000; value++)
    histogram_add(histogram, value);
  assert_int_equal(histogram->count, 1000);
  assert_true(histogram_mean(histogram) == 500.5);
  assert_in_range(histogram_at(histogram, 0.5), 498, 502);
  assert_in_range(histogram_at(histogram, 0.99), 986, 994);
  assert_in_range(histogram_at(histogram, 0.999), 995, 1000);
  assert_in_range(histogram_at(histogram, 1), 996, 1000);
  assert_int_equal(histogram_at(histogram, 0.1), 100);
  free(histogram);
}

static void test_small_values_are_exact(void **state) {
  struct histogram *histogram = make();
  for (int i = 0; i < 99; i++)
    histogram_add(histogram, 7);
  histogram_add(histogram, 200);
  assert_int_equal(histogram_at(histogram, 0.99), 7);
  assert_int_equal(histogram_at(histogram, 0.999), 200);
  free(histogram);
}

static void test_never_above_the_largest(void **state) {
  struct histogram *histogram = make();
  histogram_add(histogram, 1 << 20);
  assert_int_equal(histogram_at(histogram, 0.5), 1 << 20);
  free(histogram);
}

static void test_merge(void **state) {
  struct histogram *first = make(), *second = make();
  histogram_add(first, 10);
  histogram_add(second, 20);
  histogram_add(second, 30);
  histogram_merge(first, second);
  assert_int_equal(first->count, 3);
  assert_int_equal(first->total, 60);
  assert_int_equal(first->most, 30);
  assert_int_equal(histogram_at(first, 0.5), 20);
  free(first);
  free(second);
}

enum { US = 1000, MS = 1000000 };

static struct histogram *tail(const struct gap *gaps, size_t count, uint64_t run_ns, uint64_t work_ns) {
  static struct histogram out;
  out = (struct histogram){0};
  gaps_tail(gaps, count, run_ns, work_ns, &out);
  assert_int_equal(out.count, ARRIVALS);
  return &out;
}

/* Buckets are exact to 0.4 %. */
static void expect(const struct histogram *histogram, double quantile, double wanted_ns) {
  double got = (double)histogram_at(histogram, quantile);
  if (got < 0.99 * wanted_ns || got > 1.01 * wanted_ns)
    fail_msg("%g of all: %g ns in place of %g", quantile, got, wanted_ns);
}

static void a_quiet_machine_has_no_tail(void **state) {
  const struct histogram *quiet = tail(NULL, 0, 1000 * (uint64_t)MS, 30 * US);
  expect(quiet, 0.001, 30 * US);
  expect(quiet, 1, 30 * US);
}

/* One gap of 8 ms in a second: 0.8 % of the calls arrive in it, and wait 4 ms on average. As one stretch of work among
 * 33,000 it would not show at p99.9. */
static void who_arrives_in_a_gap_waits(void **state) {
  const struct gap gap = {500 * (uint64_t)MS, 508 * (uint64_t)MS};
  const struct histogram *one = tail(&gap, 1, 1000 * (uint64_t)MS, 30 * US);
  expect(one, 0.5, 30 * US);
  expect(one, 0.99, 30 * US);
  expect(one, 0.996, 4 * MS + 30 * US);
  expect(one, 0.999, 7 * MS + 30 * US);
  expect(one, 1, 8 * MS + 30 * US);
}

/* Work of 10 ms that begins before several gaps waits for all of them. */
static void long_work_meets_several_gaps(void **state) {
  struct gap gaps[100];
  for (unsigned i = 0; i < 100; i++)
    gaps[i] = (struct gap){i * (uint64_t)(10 * MS), i * (uint64_t)(10 * MS) + 5 * MS};
  const struct histogram *half = tail(gaps, 100, 1000 * (uint64_t)MS, 10 * MS);
  expect(half, 0.5, 20 * MS);
  assert_in_range(half->most, 19 * MS, 20 * MS + 100 * US);
}

/* What is under way when the record ends goes on undisturbed. */
static void the_end_takes_nothing(void **state) {
  const struct gap gap = {90 * MS, 100 * MS};
  const struct histogram *end = tail(&gap, 1, 100 * (uint64_t)MS, 1 * MS);
  expect(end, 0.5, 1 * MS);
  expect(end, 1, 11 * MS);
}

static void gaps_of_threads_are_joined(void **state) {
  struct gap gaps[] = {{70, 80}, {10, 20}, {30, 40}, {15, 30}, {50, 60}, {52, 55}, {0, 5}};
  const struct gap wanted[] = {{0, 5}, {10, 40}, {50, 60}, {70, 80}};
  assert_int_equal(gaps_merge(gaps, sizeof gaps / sizeof *gaps), 4);
  assert_memory_equal(gaps, wanted, sizeof wanted);
  assert_int_equal(gaps_total(gaps, 4), 55);
  assert_int_equal(gaps_merge(gaps, 0), 0);
}

static void expect_difference(double got, double wanted) {
  if (!(fabs(got - wanted) <= 1e-9))
    fail_msg("%g in place of %g", got, wanted);
}

static void test_types(void **state) {
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
    expect_difference(check_difference(cases[i].right, cases[i].right, cases[i].type, 1, 4), 0);
    expect_difference(check_difference(cases[i].wrong, cases[i].right, cases[i].type, 1, 4), 1);
  }
}

static void test_the_worst_row_counts(void **state) {
  const float right[] = {10, 0, 10, 0, 10, 0}, y[] = {10, 0, 10, 3, 10, 1};
  expect_difference(check_difference(y, right, GEMMD_F32, 3, 2), 0.3);
}

static void test_f16_at_its_edges(void **state) {
  expect_difference(from_half(0x0001) * 0x1p24, 1);
  expect_difference(from_half(0x7bff), 65504);
  expect_difference(from_half(0xbc00), -1);
  assert_true(isinf(from_half(0xfc00)) && isnan(from_half(0x7e00)));
}

/* Not a number, or something where nothing ought to be: as wrong as can be. */
static void test_what_was_not_written(void **state) {
  float right[] = {1, 2}, y[] = {1, NAN}, zeros[] = {0, 0};
  assert_true(isinf(check_difference(y, right, GEMMD_F32, 1, 2)));
  assert_true(isinf(check_difference(right, zeros, GEMMD_F32, 1, 2)));
  expect_difference(check_difference(zeros, zeros, GEMMD_F32, 1, 2), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_buckets_have_their_values),
      cmocka_unit_test(test_values_are_within_half_a_step),
      cmocka_unit_test(test_quantiles),
      cmocka_unit_test(test_small_values_are_exact),
      cmocka_unit_test(test_never_above_the_largest),
      cmocka_unit_test(test_merge),
      cmocka_unit_test(a_quiet_machine_has_no_tail),
      cmocka_unit_test(who_arrives_in_a_gap_waits),
      cmocka_unit_test(long_work_meets_several_gaps),
      cmocka_unit_test(the_end_takes_nothing),
      cmocka_unit_test(gaps_of_threads_are_joined),
      cmocka_unit_test(test_types),
      cmocka_unit_test(test_the_worst_row_counts),
      cmocka_unit_test(test_f16_at_its_edges),
      cmocka_unit_test(test_what_was_not_written),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
