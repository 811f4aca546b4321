#include "proto/number.h"

#include <fenv.h>
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* A number from its parts, by the definition of each format and in float64: shares nothing with number.c. */
static double by_definition(uint32_t code, int mantissa_bits, int exponent_bits, int bias) {
  uint32_t mantissa = code & ((1u << mantissa_bits) - 1u);
  int exponent = (int)(code >> mantissa_bits & ((1u << exponent_bits) - 1u));
  double sign = code >> (mantissa_bits + exponent_bits) & 1u ? -1.0 : 1.0;
  if (exponent == 0)
    return sign * ldexp((double)mantissa, 1 - bias - mantissa_bits);
  return sign * ldexp((double)(mantissa | 1u << mantissa_bits), exponent - bias - mantissa_bits);
}

static void f16_round_trip(void **state) {
  for (uint32_t code = 0; code < 65536; code++) {
    float value = number_from_f16((uint16_t)code);
    if ((code & 0x7c00) == 0x7c00 && (code & 0x3ff) != 0) {
      assert_true(isnan(value));
      assert_int_equal(signbit(value) != 0, code >> 15);
      assert_true(isnan(number_from_f16(number_to_f16(value))));
      continue;
    }
    if ((code & 0x7fff) == 0x7c00)
      assert_true(isinf(value));
    else
      assert_true((double)value == by_definition(code, 10, 5, 15));
    assert_int_equal(number_to_f16(value), code);
  }
}

static void bf16_round_trip(void **state) {
  for (uint32_t code = 0; code < 65536; code++) {
    float value = number_from_bf16((uint16_t)code);
    if ((code & 0x7f80) == 0x7f80 && (code & 0x7f) != 0) {
      assert_true(isnan(value));
      assert_true(isnan(number_from_bf16(number_to_bf16(value))));
      continue;
    }
    if ((code & 0x7fff) == 0x7f80)
      assert_true(isinf(value));
    else
      assert_true((double)value == by_definition(code, 7, 8, 127));
    assert_int_equal(number_to_bf16(value), code);
  }
}

static void e4m3_round_trip(void **state) {
  for (uint32_t code = 0; code < 256; code++) {
    float value = number_from_e4m3((uint8_t)code);
    if ((code & 0x7f) == 0x7f)
      assert_true(isnan(value));
    else
      assert_true((double)value == by_definition(code, 3, 4, 7));
    assert_int_equal(number_to_e4m3(value), code);
  }
  assert_true(number_from_e4m3(0x7e) == 448.0f);
  assert_true(number_from_e4m3(0x01) == 0x1p-9f);
}

/* Between each two neighbours of a format: the midpoint goes to the even code, its f32 neighbours to the nearer one. */
static void f16_midpoints(void **state) {
  for (uint32_t code = 0; code < 0x7bff; code++) {
    float middle = (number_from_f16((uint16_t)code) + number_from_f16((uint16_t)(code + 1))) / 2;
    uint32_t even = code + (code & 1u);
    assert_int_equal(number_to_f16(middle), even);
    assert_int_equal(number_to_f16(-middle), even | 0x8000u);
    assert_int_equal(number_to_f16(nextafterf(middle, 0)), code);
    assert_int_equal(number_to_f16(nextafterf(middle, INFINITY)), code + 1);
  }
}

static void f16_overflow(void **state) {
  assert_int_equal(number_to_f16(65504.0f), 0x7bff);
  assert_int_equal(number_to_f16(nextafterf(65520.0f, 0)), 0x7bff);
  assert_int_equal(number_to_f16(65520.0f), 0x7c00);
  assert_int_equal(number_to_f16(-FLT_MAX), 0xfc00);
  assert_int_equal(number_to_f16(INFINITY), 0x7c00);
  assert_int_equal(number_to_f16(FLT_TRUE_MIN), 0);
  assert_int_equal(number_to_f16(-FLT_MIN), 0x8000);
  assert_int_equal(number_to_f16(0x1p-25f), 0);
  assert_int_equal(number_to_f16(nextafterf(0x1p-25f, 1)), 1);
}

static void bf16_midpoints(void **state) {
  for (uint32_t code = 0; code < 0x7f7f; code++) {
    uint32_t bits = code << 16 | 0x8000u;
    float middle;
    memcpy(&middle, &bits, sizeof middle);
    uint32_t even = code + (code & 1u);
    assert_int_equal(number_to_bf16(middle), even);
    assert_int_equal(number_to_bf16(-middle), even | 0x8000u);
    assert_int_equal(number_to_bf16(nextafterf(middle, 0)), code);
    assert_int_equal(number_to_bf16(nextafterf(middle, INFINITY)), code + 1);
  }
  assert_int_equal(number_to_bf16(FLT_MAX), 0x7f80);
}

static void e2m1_and_e8m0(void **state) {
  for (uint8_t code = 0; code < 16; code++)
    assert_int_equal(number_to_e2m1(number_from_e2m1(code)), code);
  for (uint8_t code = 0; code < 7; code++) {
    float middle = (number_from_e2m1(code) + number_from_e2m1(code + 1)) / 2;
    assert_int_equal(number_to_e2m1(middle), code + code % 2);
    assert_int_equal(number_to_e2m1(-middle), 8 + code + code % 2);
    assert_int_equal(number_to_e2m1(nextafterf(middle, 0)), code);
    assert_int_equal(number_to_e2m1(nextafterf(middle, 7)), code + 1);
  }
  assert_true(number_from_e2m1(7) == 6.0f && number_from_e2m1(15) == -6.0f && signbit(number_from_e2m1(8)));
  assert_true(number_to_e2m1(INFINITY) == 7 && number_to_e2m1(-1e30f) == 15 && (number_to_e2m1(NAN) & 7) == 7);
  for (int power = 0; power < 255; power++) {
    assert_true(number_from_e8m0((uint8_t)power) == ldexpf(1, power - 127));
    assert_int_equal(number_to_e8m0(number_from_e8m0((uint8_t)power)), power);
    assert_int_equal(number_to_e8m0(1.99f * number_from_e8m0((uint8_t)power)), power);
  }
  assert_true(isnan(number_from_e8m0(255)) && number_to_e8m0(INFINITY) == 255 && number_to_e8m0(0) == 0);
}

static void e4m3_midpoints(void **state) {
  for (uint32_t code = 0; code < 0x7e; code++) {
    float middle = (number_from_e4m3((uint8_t)code) + number_from_e4m3((uint8_t)(code + 1))) / 2;
    uint32_t even = code + (code & 1u);
    assert_int_equal(number_to_e4m3(middle), even);
    assert_int_equal(number_to_e4m3(-middle), even | 0x80u);
    assert_int_equal(number_to_e4m3(nextafterf(middle, 0)), code);
    assert_int_equal(number_to_e4m3(nextafterf(middle, INFINITY)), code + 1);
  }
}

static void e4m3_saturates(void **state) {
  static const float large[] = {448.0f, 449.0f, 464.0f, 465.0f, 480.0f, 1e30f, FLT_MAX, INFINITY};
  for (size_t i = 0; i < sizeof large / sizeof large[0]; i++) {
    assert_int_equal(number_to_e4m3(large[i]), 0x7e);
    assert_int_equal(number_to_e4m3(-large[i]), 0xfe);
  }
  assert_int_equal(number_to_e4m3(NAN), 0x7f);
  assert_int_equal(number_to_e4m3(-NAN), 0xff);
  assert_int_equal(number_to_e4m3(FLT_TRUE_MIN), 0);
  assert_int_equal(number_to_e4m3(-0.0f), 0x80);
}

static void the_rounding_mode_does_not_matter(void **state) {
  static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
  for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
    assert_int_equal(fesetround(modes[i]), 0);
    uint16_t f16 = number_to_f16(1.0f + 0x1p-11f), bf16 = number_to_bf16(1.0f + 0x1p-8f);
    uint8_t e4m3 = number_to_e4m3(1.0f + 0x1p-4f);
    assert_int_equal(fesetround(FE_TONEAREST), 0);
    assert_int_equal(f16, 0x3c00);
    assert_int_equal(bf16, 0x3f80);
    assert_int_equal(e4m3, 0x38);
  }
}

static void scales(void **state) {
  assert_true(number_scale_int8(127.0f) == 1.0f);
  assert_true(number_scale_int8(1.0f) == 1.0f / 127.0f);
  assert_true(number_scale_e4m3(448.0f) == 1.0f);
  assert_true(number_scale_int8(0.0f) == 0.0f);
  assert_true(isnan(number_scale_int8(INFINITY)) && isnan(number_scale_int8(NAN)));
  assert_true(isnan(number_scale_e4m3(INFINITY)) && isnan(number_scale_e4m3(NAN)));
  /* The quotient decides, not absmax. */
  assert_true(number_scale_int8(FLT_MIN * 127.0f) == FLT_MIN);
  assert_true(number_scale_int8(nextafterf(FLT_MIN * 126.5f, 0)) == 0.0f);
  assert_true(number_scale_e4m3(FLT_MIN * 448.0f) == FLT_MIN);
  assert_true(number_scale_e4m3(FLT_MIN) == 0.0f);
  assert_true(number_scale_int8(FLT_MAX) == FLT_MAX / 127.0f);
}

static void int8_codes(void **state) {
  for (int value = -127; value < 127; value++) {
    float half = (float)value + 0.5f;
    int even = value % 2 == 0 ? value : value + 1;
    assert_int_equal(number_quantize_int8((float)value, 1.0f), value);
    assert_int_equal(number_quantize_int8(half, 1.0f), even);
    assert_int_equal(number_quantize_int8(nextafterf(half, -200.0f), 1.0f), value);
    assert_int_equal(number_quantize_int8(nextafterf(half, 200.0f), 1.0f), value + 1);
  }
  assert_int_equal(number_quantize_int8(1e30f, 1.0f), 127);
  assert_int_equal(number_quantize_int8(-INFINITY, 1.0f), -127);
  assert_int_equal(number_quantize_int8(3.0f, 0.0f), 0);
  assert_int_equal(number_quantize_int8(3.0f, NAN), 0);
  assert_int_equal(number_quantize_int8(NAN, 1.0f), 0);
  assert_int_equal(number_quantize_int8(1.0f, 1.0f / 127.0f), 127);
}

static void e4m3_codes(void **state) {
  assert_int_equal(number_quantize_e4m3(448.0f, 1.0f), 0x7e);
  assert_int_equal(number_quantize_e4m3(-1.0f, 1.0f / 448.0f), 0xfe);
  assert_int_equal(number_quantize_e4m3(1.0f, 0.5f), number_to_e4m3(2.0f));
  assert_int_equal(number_quantize_e4m3(3.0f, 0.0f), 0);
  assert_int_equal(number_quantize_e4m3(3.0f, NAN), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(f16_round_trip),
      cmocka_unit_test(bf16_round_trip),
      cmocka_unit_test(e4m3_round_trip),
      cmocka_unit_test(f16_midpoints),
      cmocka_unit_test(f16_overflow),
      cmocka_unit_test(bf16_midpoints),
      cmocka_unit_test(e4m3_midpoints),
      cmocka_unit_test(e4m3_saturates),
      cmocka_unit_test(e2m1_and_e8m0),
      cmocka_unit_test(scales),
      cmocka_unit_test(the_rounding_mode_does_not_matter),
      cmocka_unit_test(int8_codes),
      cmocka_unit_test(e4m3_codes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
