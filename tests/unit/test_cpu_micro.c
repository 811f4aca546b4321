/* The CPU's inner loops, for each instruction set that this machine has, against proto/number.h and plain loops. */
#include "kernels/cpu/micro.h"
#include "proto/number.h"
#include "tests/support/oracle.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct micro_ops *micro; /* the one under test */

static void assert_same(float got, float wanted, unsigned code) {
  if (memcmp(&got, &wanted, sizeof(got)) != 0 && !(isnan(got) && isnan(wanted))) {
    fail_msg("%s: code %#x is %a, not %a", micro->name, code, (double)got, (double)wanted);
  }
}

static void test_widen(void **state) {
  (void)state;
  static uint16_t codes[65536];
  static float values[65536];
  uint8_t bytes[256];
  int16_t wide[256];
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
  micro->widen_int8((const int8_t *)bytes, wide, 256);
  for (unsigned i = 0; i < 256; i++) {
    assert_same(values[i], number_from_e4m3((uint8_t)i), i);
    assert_int_equal(wide[i], (int8_t)i);
  }
}

/* Counts that no vector divides, and nothing written behind them. */
static void test_widen_ragged(void **state) {
  (void)state;
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

static void test_widen_int2(void **state) {
  (void)state;
  uint64_t random = 1;
  uint8_t codes[64];
  float values[256];
  for (int i = 0; i < 64; i++) {
    codes[i] = (uint8_t)oracle_random(&random);
  }
  micro->widen_int2(codes, values, 2);
  for (int i = 0; i < 256; i++) {
    int place = i / 128 * 128 + i % 4 * 32 + i % 128 / 4;
    assert_true(values[place] == (float)((codes[i / 4] >> i % 4 * 2 & 3) - 1));
  }
}

static void test_largest(void **state) {
  (void)state;
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
  static int16_t codes[4096];
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
  (void)state;
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
  }
}

struct tiles { /* one chunk of operands, as f32 and as s16 */
  float x[7][MICRO_CHUNK], w[MICRO_COLUMNS][MICRO_CHUNK];
  int16_t x16[7][MICRO_CHUNK], w16[MICRO_COLUMNS][MICRO_CHUNK];
  float x_scale[7][MICRO_GROUPS], w_scale[MICRO_COLUMNS][MICRO_GROUPS];
  float sums[MICRO_COLUMNS][MICRO_ROWS][MICRO_LANES];
  int32_t exact[MICRO_COLUMNS][MICRO_ROWS][MICRO_LANES];
};

static void fill_tiles(struct tiles *tiles) {
  uint64_t random = 3;
  for (int i = 0; i < 7 * MICRO_CHUNK; i++) {
    tiles->x16[i / MICRO_CHUNK][i % MICRO_CHUNK] = (int8_t)oracle_random(&random);
    tiles->x[i / MICRO_CHUNK][i % MICRO_CHUNK] = (float)oracle_normal(&random);
  }
  for (int i = 0; i < MICRO_COLUMNS * MICRO_CHUNK; i++) {
    tiles->w16[i / MICRO_CHUNK][i % MICRO_CHUNK] = (int8_t)oracle_random(&random);
    tiles->w[i / MICRO_CHUNK][i % MICRO_CHUNK] = (float)oracle_normal(&random);
  }
  for (int i = 0; i < 7 * MICRO_GROUPS; i++) {
    tiles->x_scale[i / MICRO_GROUPS][i % MICRO_GROUPS] = (float)oracle_normal(&random);
  }
  for (int i = 0; i < MICRO_COLUMNS * MICRO_GROUPS; i++) {
    tiles->w_scale[i / MICRO_GROUPS][i % MICRO_GROUPS] = (float)oracle_normal(&random);
  }
}

static void run_tiles(struct tiles *tiles, int rows, int columns, int groups, bool scaled) {
  struct micro_tile tile = {.x = tiles->x,
                            .x_stride = MICRO_CHUNK,
                            .x_scale = scaled ? tiles->x_scale[0] : NULL,
                            .x_scale_stride = MICRO_GROUPS,
                            .rows = rows,
                            .w = tiles->w,
                            .w_scale = scaled ? tiles->w_scale[0] : NULL,
                            .columns = columns,
                            .groups = groups,
                            .sums = tiles->sums};
  memset(tiles->sums, 0, sizeof(tiles->sums));
  memset(tiles->exact, 0, sizeof(tiles->exact));
  micro->tile_f32(&tile);
  tile.x = tiles->x16;
  tile.w = tiles->w16;
  tile.sums = tiles->exact;
  micro->tile_s16(&tile);
}

static void check_element(const struct tiles *tiles, int row, int column, int groups, bool scaled) {
  double sum = 0, wanted = 0, size = 0;
  int64_t exact = 0, wanted_exact = 0;
  for (int lane = 0; lane < MICRO_LANES; lane++) {
    sum += tiles->sums[column][row][lane];
    exact += tiles->exact[column][row][lane];
  }
  for (int k = 0; k < groups * MICRO_GROUP; k++) {
    double scale = scaled ? (double)tiles->x_scale[row][k / MICRO_GROUP] * tiles->w_scale[column][k / MICRO_GROUP] : 1;
    wanted += scale * tiles->x[row][k] * tiles->w[column][k];
    size += fabs(scale * tiles->x[row][k] * tiles->w[column][k]);
    wanted_exact += tiles->x16[row][k] * tiles->w16[column][k];
  }
  assert_true(exact == wanted_exact);
  assert_true(fabs(sum - wanted) <= 1e-6 * size);
}

/* Every number of rows and columns; elements outside stay 0, and each element's bits are the same in any company. */
static void test_tiles(void **state) {
  (void)state;
  struct tiles *tiles = calloc(1, sizeof(*tiles));
  float alone[MICRO_LANES];
  assert_non_null(tiles);
  fill_tiles(tiles);
  for (int i = 0; i < 7 * MICRO_COLUMNS * MICRO_GROUPS * 2; i++) {
    int rows = i % 7 + 1, columns = i / 7 % MICRO_COLUMNS + 1, groups = i / 7 / MICRO_COLUMNS % MICRO_GROUPS + 1;
    bool scaled = i >= 7 * MICRO_COLUMNS * MICRO_GROUPS;
    run_tiles(tiles, 1, 1, groups, scaled);
    memcpy(alone, tiles->sums[0][0], sizeof(alone));
    run_tiles(tiles, rows, columns, groups, scaled);
    assert_memory_equal(alone, tiles->sums[0][0], sizeof(alone));
    for (int element = 0; element < 7 * MICRO_COLUMNS; element++) {
      int row = element % 7, column = element / 7;
      if (row < rows && column < columns) {
        check_element(tiles, row, column, groups, scaled);
      } else {
        assert_true(tiles->sums[column][row][0] == 0 && tiles->exact[column][row][0] == 0);
      }
    }
  }
  free(tiles);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_widen),   cmocka_unit_test(test_widen_ragged), cmocka_unit_test(test_widen_int2),
      cmocka_unit_test(test_largest), cmocka_unit_test(test_quantize),     cmocka_unit_test(test_tiles),
  };
  int failed = 0;
  for (int i = 0; micro_table[i] != NULL; i++) {
    micro = micro_table[i];
    if (micro->usable()) {
      failed += cmocka_run_group_tests_name(micro->name, tests, NULL, NULL);
    }
  }
  return failed;
}
