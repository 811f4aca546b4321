/* The CPU's inner loops over rows of x and panels of W, for each instruction set that this machine has, against
 * proto/number.h and plain loops over the layouts that they are documented to read. */
#include "proto/number.h"
#include "tests/support/reference/oracle.h"
#include "tests/support/worker/micro.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void assert_same(float got, float wanted, unsigned code) {
  if (memcmp(&got, &wanted, sizeof(got)) != 0 && !(isnan(got) && isnan(wanted))) {
    fail_msg("%s: code %#x is %a, not %a", micro->name, code, (double)got, (double)wanted);
  }
}

static void test_widen(void **state) {
  static uint16_t codes[65536];
  static float values[65536];
  uint8_t bytes[256];
  float wide[256];
  for (unsigned i = 0; i < 65536; i++) {
    codes[i] = (uint16_t)i;
    bytes[i % 256] = (uint8_t)i;
  }
  micro->widen_f16(codes, values, 65536);
  for (unsigned i = 0; i < 65536; i++) {
    assert_same(values[i], number_from_f16((uint16_t)i), i);
  }
  micro->widen_bf16(codes, values, 65536);
  for (unsigned i = 0; i < 65536; i++) {
    assert_same(values[i], number_from_bf16((uint16_t)i), i);
  }
  micro->widen_e4m3(bytes, values, 256);
  micro->widen_s8((const int8_t *)bytes, wide, 256);
  for (unsigned i = 0; i < 256; i++) {
    assert_same(values[i], number_from_e4m3((uint8_t)i), i);
    assert_true(wide[i] == (int8_t)i);
  }
}

/* Counts that no vector divides, and nothing written behind them. */
static void test_widen_ragged(void **state) {
  for (int count = 0; count < 100; count++) {
    uint16_t codes[100];
    float values[101];
    for (int i = 0; i <= 100; i++) {
      values[i] = -7;
    }
    for (int i = 0; i < 100; i++) {
      codes[i] = number_to_f16((float)i);
    }
    micro->widen_f16(codes, values, count);
    for (int i = 0; i <= 100; i++) {
      assert_true(values[i] == (i < count ? (float)i : -7));
    }
  }
}

static void check_narrow(const float *values, int count) {
  static uint16_t f16[65536], bf16[65536];
  micro->narrow_f16(values, f16, count);
  micro->narrow_bf16(values, bf16, count);
  for (int i = 0; i < count; i++) {
    uint16_t wanted_f16 = number_to_f16(values[i]), wanted_bf16 = number_to_bf16(values[i]);
    bool nan = isnan(values[i]) && isnan(number_from_f16(f16[i])) && isnan(number_from_bf16(bf16[i]));
    if (!nan && (f16[i] != wanted_f16 || bf16[i] != wanted_bf16)) {
      fail_msg("%s: %a became f16 %#x (not %#x), bf16 %#x (not %#x)", micro->name, (double)values[i], f16[i],
               wanted_f16, bf16[i], wanted_bf16);
    }
  }
}

/* Every f16, what lies half way to the next and just beside that; numbers of every exponent; what has no number. */
static void test_narrow(void **state) {
  static float values[65536];
  uint64_t random = 4;
  for (int part = 0; part < 4; part++) {
    for (int i = 0; i < 65536; i++) {
      float code = number_from_f16((uint16_t)i), next = number_from_f16((uint16_t)(i + 1)), half = (code + next) / 2;
      values[i] = part == 0 ? code : part == 1 ? half : nextafterf(half, part == 2 ? INFINITY : -INFINITY);
    }
    check_narrow(values, 65536);
  }
  for (int i = 0; i < 65536; i++) {
    uint32_t bits = (uint32_t)oracle_random(&random);
    memcpy(&values[i], &bits, sizeof(bits));
  }
  check_narrow(values, 65536);
  check_narrow((const float[]){0, -0.0f, INFINITY, -INFINITY, NAN, 65519, 65520, -65520, 3e38f}, 9);
}

static void test_largest(void **state) {
  float values[77] = {0};
  assert_true(micro->largest(values, 77) == 0);
  assert_true(micro->largest(values, 0) == 0);
  values[3] = 5;
  values[76] = -6;
  assert_true(micro->largest(values, 77) == 6);
  assert_true(micro->largest(values, 76) == 5);
  values[40] = -INFINITY;
  assert_true(isinf(micro->largest(values, 77)));
  values[41] = -NAN;
  assert_true(isnan(micro->largest(values, 77)));
}

static void check_quantizers(const float *values, int count, float scale) {
  static int8_t codes[4096];
  static float e4m3[4096];
  memcpy(e4m3, values, (size_t)count * sizeof(*values));
  micro->quantize_int8(values, scale, codes, count);
  micro->quantize_e4m3(e4m3, scale, count);
  for (int i = 0; i < count; i++) {
    if (codes[i] != number_quantize_int8(values[i], scale)) {
      fail_msg("%s: %a / %a became %d", micro->name, (double)values[i], (double)scale, codes[i]);
    }
    float wanted = number_from_e4m3(number_quantize_e4m3(values[i], scale));
    if (e4m3[i] != wanted) {
      fail_msg("%s: %a / %a became %a, not %a", micro->name, (double)values[i], (double)scale, (double)e4m3[i],
               (double)wanted);
    }
  }
}

/* Every tie and its neighbours, with scale 1; random values at scales from end to end of f32. */
static void test_quantize(void **state) {
  static float values[4096];
  uint64_t random = 2;
  for (int i = 0; i < 4096; i += 4) {
    float tie = i < 2048 ? (float)(i / 4 - 256) * 0.5f : ldexpf((float)(i / 4 % 16) + 0.5f, i / 64 % 32 - 18);
    values[i] = tie;
    values[i + 1] = nextafterf(tie, INFINITY);
    values[i + 2] = nextafterf(tie, -INFINITY);
    values[i + 3] = -tie;
  }
  check_quantizers(values, 4096, 1);
  for (int exponent = -126; exponent < 120; exponent++) {
    float scale = ldexpf(1 + (float)fabs(oracle_uniform(&random)), exponent);
    for (int i = 0; i < 999; i++) {
      values[i] = (float)(oracle_normal(&random) * exp2(oracle_uniform(&random) * 12)) * scale;
      values[i] = isfinite(values[i]) ? values[i] : 0;
    }
    check_quantizers(values, 999, scale);
    for (int i = 0; i < 999; i++) { /* about as near to a tie as a number with this scale can be */
      float tie = (float)(i / 3 - 166) * 0.5f * scale;
      values[i] = i % 3 == 0 ? tie : nextafterf(tie, i % 3 == 1 ? INFINITY : -INFINITY);
    }
    check_quantizers(values, 999, scale);
  }
}

static void test_sum(void **state) {
  int8_t values[1000];
  int32_t wanted = 0;
  uint64_t random = 5;
  for (int i = 0; i < 1000; i++) {
    values[i] = i < 500 ? -128 : (int8_t)oracle_random(&random);
    assert_int_equal(micro->sum_s8(values, i), wanted);
    wanted += values[i];
  }
}

/* Every number of columns; nothing is written beside them. */
static void test_finish(void **state) {
  static float sums[3][MICRO_WIDTH], to[3][MICRO_WIDTH + 1];
  static int32_t integers[3][MICRO_WIDTH];
  float scales[MICRO_WIDTH], bias[MICRO_WIDTH];
  const double factors[] = {0.5, 2, -1};
  for (int i = 0; i < 3 * MICRO_WIDTH; i++) {
    scales[i % MICRO_WIDTH] = (float)(i % MICRO_WIDTH + 1) / 8;
    bias[i % MICRO_WIDTH] = (float)-(i % MICRO_WIDTH);
    integers[i / MICRO_WIDTH][i % MICRO_WIDTH] = 1000 - 77 * i;
    sums[i / MICRO_WIDTH][i % MICRO_WIDTH] = (float)(1000 - 77 * i);
  }
  for (int i = 0; i < 4 * (MICRO_WIDTH + 1); i++) {
    int columns = i / 4;
    bool real = i % 2 == 0, wide = i / 2 % 2 == 0;
    struct micro_finish finish = {.sums = real ? (void *)sums : integers,
                                  .rows = 3,
                                  .columns = columns,
                                  .factors = factors,
                                  .scales = scales,
                                  .bias = bias,
                                  .to = to[0],
                                  .stride = MICRO_WIDTH + 1};
    to[0][columns] = to[1][columns] = to[2][columns] = -7;
    if (real) {
      wide ? micro->finish_f32_wide(&finish) : micro->finish_f32(&finish);
    } else {
      wide ? micro->finish_s32_wide(&finish) : micro->finish_s32(&finish);
    }
    for (int j = 0; j < 3 * columns; j++) {
      int row = j / columns, column = j % columns;
      float wanted = sums[row][column] * (float)factors[row] * scales[column] + (wide ? bias[column] : 0);
      assert_true(to[row][column] == wanted);
    }
    assert_true(to[0][columns] == -7 && to[1][columns] == -7 && to[2][columns] == -7);
  }
}

/* ---- panels to dwords */

enum { STEPS = 64 };

/* k and column of each byte of FP8, as layout.h says. */
static void test_unpack_e4m3(void **state) {
  uint8_t panel[8 * MICRO_WIDTH];
  uint32_t dwords[4 * MICRO_WIDTH];
  float values[8 * MICRO_WIDTH];
  uint64_t random = 6;
  for (int width = 16; width <= MICRO_WIDTH; width += 16) {
    uint8_t code[8][MICRO_WIDTH];
    for (int i = 0; i < 8 * width; i++) {
      int k = i / width, column = i % width;
      int place = k / 4 * 4 * width + column / 16 * 64 + column % 16 / 4 * 16 + k % 4 / 2 * 8 + column % 4 * 2 + k % 2;
      code[k][column] = panel[place] = i < 256 ? (uint8_t)i : (uint8_t)oracle_random(&random);
    }
    micro->unpack_e4m3_f32(panel, width, 8, values);
    for (int i = 0; i < 8 * width; i++) {
      assert_same(values[i], number_from_e4m3(code[i / width][i % width]), code[i / width][i % width]);
    }
    if (micro->unpack_e4m3_bf16 == NULL) {
      continue;
    }
    micro->unpack_e4m3_bf16(panel, width, 4, dwords);
    for (int i = 0; i < 8 * width; i++) {
      int k = i / width, column = i % width;
      uint16_t half = (uint16_t)(dwords[k / 2 * width + column] >> (16 * (k % 2)));
      assert_same(number_from_bf16(half), number_from_e4m3(code[k][column]), code[k][column]);
    }
  }
}

static void test_unpack_bf16(void **state) {
  uint32_t pairs[2 * 32];
  float values[4 * 32];
  for (int i = 0; i < 64; i++) {
    pairs[i] = (uint32_t)number_to_bf16((float)i) | (uint32_t)number_to_bf16((float)-i) << 16;
  }
  micro->unpack_bf16_f32((const uint8_t *)pairs, 32, 4, values);
  for (int i = 0; i < 64; i++) {
    assert_true(values[i / 32 * 64 + i % 32] == (float)i && values[i / 32 * 64 + 32 + i % 32] == (float)-i);
  }
}

/* INT8 and rows of x as 16 bits: every product of a dword is of the same k. */
static void test_words(void **state) {
  uint8_t panel[4 * 32];
  int8_t x[256];
  uint32_t words[2 * 32], row[128];
  if (micro->words_s8 == NULL) {
    return;
  }
  for (int i = 0; i < 256; i++) {
    x[i] = (int8_t)i;
    panel[i % 128] = (uint8_t)(2 * i); /* column i / 4, k = i % 4 */
  }
  micro->words_s8(x, row, 256);
  micro->unpack_u8_words(panel, 32, 2, words);
  for (int i = 0; i < 512; i++) {
    int quad = i / 4, step = i % 4 / 2, half = i % 2, k = step + 2 * half;
    if (i < 256) {
      assert_int_equal((int16_t)(row[2 * quad + step] >> 16 * half), x[4 * quad + k]);
    }
    assert_int_equal(words[step * 32 + quad % 32] >> 16 * half & 0xffff, panel[4 * (quad % 32) + k]);
  }
}

static void test_unpack_codes2(void **state) {
  static struct codes2 codes;
  static uint32_t dwords[2 * MICRO_GROUP / 4 * MICRO_WIDTH];
  static float values[2 * MICRO_GROUP * MICRO_WIDTH];
  for (int width = 16; width <= MICRO_WIDTH; width += 16) {
    codes2_fill(&codes, width);
    micro->unpack_codes2(codes.panel, width, 2, dwords);
    micro->unpack_codes2_f32(codes.panel, width, 2, values);
    for (int i = 0; i < 2 * MICRO_GROUP * width; i++) {
      int k = i / width, column = i % width, code = codes.code[k][column];
      assert_int_equal(dwords[k / 4 * width + column] >> 8 * (k % 4) & 255, code);
      assert_true(values[i] == (float)(code - 1) * codes.scale[k / MICRO_GROUP][column]);
    }
  }
}

static int run(const char *name) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_widen),         cmocka_unit_test(test_widen_ragged), cmocka_unit_test(test_narrow),
      cmocka_unit_test(test_largest),       cmocka_unit_test(test_quantize),     cmocka_unit_test(test_sum),
      cmocka_unit_test(test_finish),        cmocka_unit_test(test_unpack_e4m3),  cmocka_unit_test(test_unpack_bf16),
      cmocka_unit_test(test_unpack_codes2), cmocka_unit_test(test_words)};
  return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

int main(void) {
  return micro_run_each(run);
}
