/* The quantizers against brute force. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/number.h"
#include "proto/weights/quantize.h"

static uint64_t random_state;

/* Uniform in (-1, 1). */
static float uniform(void) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (float)((double)(int32_t)(random_state >> 32) / 2147483648.0);
}

/* Sum of four: closer to how weights lie. */
static float bell(void) {
  return uniform() + uniform() + uniform() + uniform();
}

static double squared_error(const float *values, size_t count, uint16_t scale, const uint8_t *codes) {
  double sum = 0.0;
  for (size_t i = 0; i < count; i++) {
    double difference = (double)values[i] - (double)number_from_f16(scale) * (codes[i] - 1);
    sum += difference * difference;
  }
  return sum;
}

static double least_squares_error(const float *values, size_t count, uint16_t *scale, uint8_t *codes) {
  uint32_t scratch[2 * 512];
  assert_true(count <= 512);
  memset(codes, 9, count);
  *scale = quantize_least_squares(values, count, scratch, codes);
  assert_true(isfinite(number_from_f16(*scale)));
  for (size_t i = 0; i < count; i++)
    assert_true(codes[i] <= 3);
  return squared_error(values, count, *scale, codes);
}

/* The least error that any f16 scale allows: every one of them is tried. */
static double brute_force_error(const float *values, size_t count) {
  double best = INFINITY;
  for (uint32_t bits = 0; bits < 0x10000; bits++) {
    double scale = (double)number_from_f16((uint16_t)bits), sum = 0.0;
    if (!isfinite(scale))
      continue;
    for (size_t i = 0; i < count && sum < best; i++) {
      double least = INFINITY;
      for (int value = -1; value <= 2; value++) {
        double difference = (double)values[i] - scale * value;
        least = fmin(least, difference * difference);
      }
      sum += least;
    }
    best = fmin(best, sum);
  }
  return best;
}

static void expect_optimal(const float *values, size_t count) {
  uint16_t scale;
  uint8_t codes[512];
  double found = least_squares_error(values, count, &scale, codes), best = brute_force_error(values, count);
  if (found > best * (1 + 1e-9) + 1e-30)
    fail_msg("error %.17g with scale %g, brute force %.17g", found, (double)number_from_f16(scale), best);
}

static void test_least_squares_is_optimal(void **state) {
  random_state = 1;
  float values[128];
  for (size_t count = 1; count <= 128; count += count < 6 ? 1 : 61)
    for (int trial = 0; trial < 12; trial++) {
      for (size_t i = 0; i < count; i++)
        values[i] = trial % 2 ? bell() : uniform() * 0.02f;
      expect_optimal(values, count);
    }
}

static void test_least_squares_special_groups(void **state) {
  random_state = 2;
  float values[128];
  for (int sign = -1; sign <= 1; sign += 2) {
    for (int i = 0; i < 128; i++)
      values[i] = (float)sign * 0.37f; /* constant */
    expect_optimal(values, 128);
    for (int i = 0; i < 128; i++)
      values[i] = i == 17 ? (float)sign * 1000.0f : 0.01f * bell(); /* one outlier */
    expect_optimal(values, 128);
    for (int i = 0; i < 128; i++)
      values[i] = i == 5 ? (float)sign * 3.0f : 0.0f; /* one value */
    expect_optimal(values, 128);
    for (int i = 0; i < 128; i++)
      values[i] = (float)sign * fabsf(bell()); /* one sign */
    expect_optimal(values, 128);
    for (int i = 0; i < 128; i++)
      values[i] = (float)sign * 65504.0f; /* the largest */
    expect_optimal(values, 128);
    for (int i = 0; i < 128; i++)
      values[i] = bell() * 1e-6f; /* scales below the normal f16 */
    expect_optimal(values, 128);
  }
}

static void test_least_squares_exact_codes(void **state) {
  /* What is expressible comes back without error, with the sign of 2 on either side. */
  for (int sign = -1; sign <= 1; sign += 2) {
    float values[100];
    uint16_t scale;
    uint8_t codes[100];
    for (int i = 0; i < 100; i++)
      values[i] = (float)sign * 0.125f * (float)(i % 4 - 1);
    assert_true(least_squares_error(values, 100, &scale, codes) == 0.0);
    assert_true(number_from_f16(scale) == (float)sign * 0.125f);
    for (int i = 0; i < 100; i++)
      assert_int_equal(codes[i], i % 4);
  }
}

static void test_zero_groups(void **state) {
  float zeros[128] = {0}, tiny[128];
  zeros[3] = -0.0f;
  for (int i = 0; i < 128; i++)
    tiny[i] = 1e-12f; /* below half of the smallest f16 */
  uint16_t scale;
  uint8_t codes[128];
  const float *groups[] = {zeros, tiny};
  for (int g = 0; g < 2; g++) {
    least_squares_error(groups[g], 128, &scale, codes);
    assert_int_equal(scale, 0);
    for (int i = 0; i < 128; i++)
      assert_int_equal(codes[i], 1);
    assert_int_equal(quantize_ternary(groups[g], 128, codes), 0);
    for (int i = 0; i < 128; i++)
      assert_int_equal(codes[i], 1);
  }
}

static void test_least_squares_beats_simple_schemes(void **state) {
  random_state = 3;
  for (int trial = 0; trial < 200; trial++) {
    float values[512];
    uint8_t codes[512];
    uint16_t scale;
    size_t count = 1 + (size_t)trial * 2;
    for (size_t i = 0; i < count; i++)
      values[i] = bell() * (trial % 3 == 0 && i == 0 ? 50.0f : 1.0f);
    double best = least_squares_error(values, count, &scale, codes);
    scale = quantize_ternary(values, count, codes);
    assert_true(best <= squared_error(values, count, scale, codes));
    memset(codes, 1, count);
    assert_true(best <= squared_error(values, count, 0, codes));
    scale = number_to_f16(quantize_absmax(values, count) / 2.0f);
    for (size_t i = 0; i < count; i++)
      codes[i] = (uint8_t)(fminf(fmaxf(rintf(values[i] / number_from_f16(scale)), -1.0f), 2.0f) + 1.0f);
    assert_true(best <= squared_error(values, count, scale, codes));
  }
}

static void test_ternary(void **state) {
  /* Mean magnitude 1: |w| < 0.5 becomes 0, nothing becomes 2. */
  const float values[] = {2.5f, -1.5f, 0.25f, -0.25f, 0.75f, -0.75f, 1.75f, 0.25f};
  uint8_t codes[8];
  const uint8_t expected[] = {2, 0, 1, 1, 2, 0, 2, 1};
  assert_int_equal(quantize_ternary(values, 8, codes), number_to_f16(1.0f));
  assert_memory_equal(codes, expected, 8);
}

static void test_int8_and_e4m3(void **state) {
  random_state = 4;
  float values[300];
  int8_t bytes[300];
  uint8_t e4m3[300];
  for (int i = 0; i < 300; i++)
    values[i] = bell();
  values[7] = -6.35f;
  float absmax = quantize_absmax(values, 300);
  assert_true(absmax == 6.35f);
  float scale = number_scale_int8(absmax);
  quantize_int8(values, 300, scale, bytes);
  assert_int_equal(bytes[7], -127);
  for (int i = 0; i < 300; i++)
    assert_true(fabsf((float)bytes[i] * scale - values[i]) <= 0.5001f * scale);
  scale = number_scale_e4m3(absmax);
  quantize_e4m3(values, 300, scale, e4m3);
  assert_int_equal(e4m3[7], 0xfe); /* -448 */
  for (int i = 0; i < 300; i++) {
    float back = number_from_e4m3(e4m3[i]) * scale;
    assert_true(fabsf(back - values[i]) <= fabsf(values[i]) / 16.0f * 1.0001f + scale / 1024.0f);
  }
  quantize_int8(values, 300, 0.0f, bytes);
  quantize_e4m3(values, 300, 0.0f, e4m3);
  for (int i = 0; i < 300; i++) {
    assert_int_equal(bytes[i], 0);
    assert_int_equal(e4m3[i] & 0x7f, 0);
  }
}

static void test_absmax_of_nothing_and_signs(void **state) {
  const float values[] = {-3.0f, 2.0f, -0.0f};
  assert_true(quantize_absmax(values, 0) == 0.0f);
  assert_true(quantize_absmax(values, 3) == 3.0f);
}

static void test_halves_refuse_overflow(void **state) {
  uint16_t out[3];
  const float fits[] = {65504.0f, -65519.0f, 1e-10f}, beyond[] = {1.0f, -65520.0f, 2.0f};
  assert_int_equal(quantize_f16(fits, 3, out), 3);
  assert_int_equal(out[0], 0x7bff);
  assert_int_equal(out[1], 0xfbff);
  assert_int_equal(out[2], 0);
  assert_int_equal(quantize_f16(beyond, 3, out), 1);
  const float wide[] = {3.38e38f, 3.4028235e38f};
  assert_int_equal(quantize_bf16(wide, 1, out), 1);
  assert_int_equal(quantize_bf16(wide, 2, out), 1);
  assert_int_equal(quantize_bf16(beyond, 3, out), 3);
}

static void test_pack(void **state) {
  const uint8_t codes[] = {0, 1, 2, 3, 3, 2, 1, 0, 3, 3};
  uint8_t packed[6];
  memset(packed, 0xee, sizeof packed);
  quantize_pack(codes, 10, packed, 5);
  assert_int_equal(packed[0], 0xe4);
  assert_int_equal(packed[1], 0x1b);
  assert_int_equal(packed[2], 0x5f); /* 3, 3, then zeros */
  assert_int_equal(packed[3], 0x55);
  assert_int_equal(packed[4], 0x55);
  assert_int_equal(packed[5], 0xee);
}

/* Every exponent, mantissas next to ties and at random: the bits are those of one element at a time. */
static void test_elements_are_those_of_number_h(void **state) {
  enum { COUNT = 16 };
  static const uint32_t mantissas[COUNT / 2] = {0, 1, 0x7fffff, 0x80000, 0x80001, 0x1000, 0x180fff, 0x8000};
  static const float scales[] = {1.0f, 0.0371f, 1e-30f, 1e30f, 0.0f};
  for (uint32_t head = 0; head < 512; head++)
    for (size_t s = 0; (head & 255) < 255 && s < sizeof scales / sizeof *scales; s++) {
      float values[COUNT];
      uint8_t e4m3[COUNT];
      int8_t int8[COUNT];
      for (int i = 0; i < COUNT; i++) {
        uint32_t bits = head << 23 | (i < COUNT / 2 ? mantissas[i] : (uint32_t)rand() & 0x7fffff);
        memcpy(&values[i], &bits, sizeof bits);
      }
      quantize_e4m3(values, COUNT, scales[s], e4m3);
      quantize_int8(values, COUNT, scales[s], int8);
      for (int i = 0; i < COUNT; i++) {
        assert_int_equal(e4m3[i], number_quantize_e4m3(values[i], scales[s]));
        assert_int_equal(int8[i], number_quantize_int8(values[i], scales[s]));
      }
      uint16_t f16[COUNT], bf16[COUNT];
      size_t f16_end = quantize_f16(values, COUNT, f16), bf16_end = quantize_bf16(values, COUNT, bf16);
      for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(f16[i], number_to_f16(values[i]));
        assert_int_equal(bf16[i], number_to_bf16(values[i]));
        assert_true(i != f16_end || (f16[i] & 0x7fff) == 0x7c00);
        assert_true(i >= f16_end || (f16[i] & 0x7fff) != 0x7c00);
        assert_true(i >= bf16_end || (bf16[i] & 0x7fff) != 0x7f80);
        assert_true(i != bf16_end || (bf16[i] & 0x7fff) == 0x7f80);
      }
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_least_squares_is_optimal),
      cmocka_unit_test(test_least_squares_special_groups),
      cmocka_unit_test(test_least_squares_exact_codes),
      cmocka_unit_test(test_zero_groups),
      cmocka_unit_test(test_least_squares_beats_simple_schemes),
      cmocka_unit_test(test_ternary),
      cmocka_unit_test(test_int8_and_e4m3),
      cmocka_unit_test(test_elements_are_those_of_number_h),
      cmocka_unit_test(test_absmax_of_nothing_and_signs),
      cmocka_unit_test(test_halves_refuse_overflow),
      cmocka_unit_test(test_pack),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
