/* gemm-bench's histogram: every value falls into the bucket that stands for it, and quantiles are as close as its
 * header says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

/* The tools' objects are no part of a library: the file itself, with its buckets. */
#include "tests/gemm-bench/histogram.c"

static void test_buckets_have_their_values(void **state) {
  (void)state;
  for (unsigned bucket = 0; bucket < HISTOGRAM_BUCKETS; bucket++)
    assert_int_equal(bucket_of(histogram_value(bucket)), bucket);
  assert_int_equal(bucket_of(UINT64_MAX), HISTOGRAM_BUCKETS - 1);
}

static void test_values_are_within_half_a_step(void **state) {
  (void)state;
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
  (void)state;
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
  (void)state;
  struct histogram *histogram = make();
  for (int i = 0; i < 99; i++)
    histogram_add(histogram, 7);
  histogram_add(histogram, 200);
  assert_int_equal(histogram_at(histogram, 0.99), 7);
  assert_int_equal(histogram_at(histogram, 0.999), 200);
  free(histogram);
}

static void test_never_above_the_largest(void **state) {
  (void)state;
  struct histogram *histogram = make();
  histogram_add(histogram, 1 << 20);
  assert_int_equal(histogram_at(histogram, 0.5), 1 << 20);
  free(histogram);
}

static void test_merge(void **state) {
  (void)state;
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_buckets_have_their_values),
      cmocka_unit_test(test_values_are_within_half_a_step),
      cmocka_unit_test(test_quantiles),
      cmocka_unit_test(test_small_values_are_exact),
      cmocka_unit_test(test_never_above_the_largest),
      cmocka_unit_test(test_merge),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
