/* The CPU's inner loops, for each instruction set that this machine has, against proto/number.h and plain loops over
 * the layouts that they are documented to read. */
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
  (void)state;
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
    for (int i = 0; i < 999; i++) { /* about as near to a tie as a number with this scale can be */
      float tie = (float)(i / 3 - 166) * 0.5f * scale;
      values[i] = i % 3 == 0 ? tie : nextafterf(tie, i % 3 == 1 ? INFINITY : -INFINITY);
    }
    check_quantizers(values, 999, scale);
  }
}

static void test_sum(void **state) {
  (void)state;
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
  (void)state;
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

enum { STEPS = 64, GROUP_BYTES = 34 }; /* bytes of a group of INT2 for each column */

/* k and column of each byte of FP8, as layout.h says. */
static void test_unpack_e4m3(void **state) {
  (void)state;
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
  (void)state;
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

/* Two groups of random codes with scales that differ by column and group; code[k][column]. */
struct codes2 {
  int width;
  uint8_t panel[2 * GROUP_BYTES * MICRO_WIDTH];
  uint8_t code[2 * MICRO_GROUP][MICRO_WIDTH];
  float scale[2][MICRO_WIDTH];
};

static void fill_codes2(struct codes2 *codes, int width) {
  uint64_t random = 7;
  memset(codes, 0, sizeof(*codes));
  codes->width = width;
  for (int i = 0; i < 2 * MICRO_GROUP * width; i++) {
    int k = i / width, column = i % width, group = k / MICRO_GROUP;
    uint8_t *words = codes->panel + group * GROUP_BYTES * width + k % MICRO_GROUP / 16 * 4 * width;
    codes->code[k][column] = oracle_random(&random) & 3;
    words[4 * column + k % 4] |= (uint8_t)(codes->code[k][column] << k % 16 / 4 * 2);
  }
  for (int i = 0; i < 2 * width; i++) {
    uint16_t half = number_to_f16((float)oracle_normal(&random));
    codes->scale[i / width][i % width] = number_from_f16(half);
    memcpy(codes->panel + i / width * GROUP_BYTES * width + 32 * width + 2 * (i % width), &half, sizeof(half));
  }
}

static void test_unpack_codes2(void **state) {
  (void)state;
  static struct codes2 codes;
  static uint32_t dwords[2 * MICRO_GROUP / 4 * MICRO_WIDTH];
  static float values[2 * MICRO_GROUP * MICRO_WIDTH];
  for (int width = 16; width <= MICRO_WIDTH; width += 16) {
    fill_codes2(&codes, width);
    micro->unpack_codes2(codes.panel, width, 2, dwords);
    micro->unpack_codes2_f32(codes.panel, width, 2, values);
    for (int i = 0; i < 2 * MICRO_GROUP * width; i++) {
      int k = i / width, column = i % width, code = codes.code[k][column];
      assert_int_equal(dwords[k / 4 * width + column] >> 8 * (k % 4) & 255, code);
      assert_true(values[i] == (float)(code - 1) * codes.scale[k / MICRO_GROUP][column]);
    }
  }
}

/* ---- tiles */

struct operands {
  uint32_t x[MICRO_ROWS][STEPS + 3]; /* rows are further apart than they are long */
  uint32_t w[STEPS * MICRO_WIDTH];
  float row_scale[MICRO_ROWS], column_scale[MICRO_WIDTH];
  int32_t start[MICRO_ROWS];
  uint32_t before[MICRO_ROWS][MICRO_WIDTH], sums[MICRO_ROWS][MICRO_WIDTH];
};

static uint32_t random_dword(enum micro_kind kind, uint64_t *random) {
  uint32_t bits = (uint32_t)oracle_random(random);
  float value = (float)oracle_normal(random);
  if (kind == MICRO_BF16) {
    return (uint32_t)number_to_bf16(value) << 16 | number_to_bf16((float)oracle_normal(random));
  }
  if (kind == MICRO_F32) {
    memcpy(&bits, &value, sizeof(bits));
  }
  return bits;
}

static void fill_operands(struct operands *operands, enum micro_kind kind) {
  uint64_t random = 8;
  for (int i = 0; i < MICRO_ROWS * (STEPS + 3); i++) {
    operands->x[i / (STEPS + 3)][i % (STEPS + 3)] = random_dword(kind, &random);
  }
  for (int i = 0; i < STEPS * MICRO_WIDTH; i++) {
    operands->w[i] = random_dword(kind, &random);
  }
  for (int i = 0; i < MICRO_ROWS * MICRO_WIDTH; i++) {
    float value = (float)oracle_normal(&random);
    operands->column_scale[i % MICRO_WIDTH] = value;
    operands->row_scale[i / MICRO_WIDTH] = value;
    operands->start[i / MICRO_WIDTH] = (int32_t)oracle_random(&random) % 1000;
    operands->before[i / MICRO_WIDTH][i % MICRO_WIDTH] = kind == MICRO_INTEGER ? (uint32_t)i : 0;
    if (kind != MICRO_INTEGER) {
      memcpy(&operands->before[i / MICRO_WIDTH][i % MICRO_WIDTH], &value, sizeof(value));
    }
  }
}

static float as_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

/* What one step adds. */
static double step_of(enum micro_kind kind, uint32_t x, uint32_t w, double *size) {
  double sum = 0;
  for (int i = 0; i < 4; i++) {
    double product = 0;
    if (kind == MICRO_INTEGER) {
      product = (double)(int8_t)(x >> 8 * i) * (uint8_t)(w >> 8 * i);
    } else if (kind == MICRO_BF16 && i < 2) {
      product = (double)number_from_bf16((uint16_t)(x >> 16 * i)) * number_from_bf16((uint16_t)(w >> 16 * i));
    } else if (kind == MICRO_F32 && i == 0) {
      product = (double)as_float(x) * as_float(w);
    }
    sum += product;
    *size += fabs(product);
  }
  return sum;
}

enum ending { ADD, FIRST, BY_ROW, BY_COLUMN, ENDINGS };

static void check_tile(const struct operands *operands, const struct micro_tile *tile, enum micro_kind kind,
                       enum ending ending) {
  for (int i = 0; i < MICRO_ROWS * MICRO_WIDTH; i++) {
    int row = i / MICRO_WIDTH, column = i % MICRO_WIDTH;
    if (row >= tile->rows || column >= tile->width) {
      assert_int_equal(operands->sums[row][column], operands->before[row][column]);
      continue;
    }
    double size = 1, sum = kind == MICRO_INTEGER && ending != ADD ? operands->start[row] : 0;
    for (int64_t step = 0; step < tile->steps; step++) {
      sum += step_of(kind, operands->x[row][step], operands->w[step * tile->width + column], &size);
    }
    bool real = kind != MICRO_INTEGER || ending >= BY_ROW;
    uint32_t bits = operands->before[row][column];
    sum *= ending == BY_ROW ? operands->row_scale[row] : ending == BY_COLUMN ? operands->column_scale[column] : 1;
    sum += ending == FIRST ? 0 : real ? (double)as_float(bits) : (double)(int32_t)bits;
    double got = real ? (double)as_float(operands->sums[row][column]) : (double)(int32_t)operands->sums[row][column];
    if (real ? fabs(got - sum) > 4e-6 * size : got != sum) {
      fail_msg("%s: kind %d ending %d rows %d width %d: sum %d, %d is %g, not %g", micro->name, (int)kind, (int)ending,
               tile->rows, tile->width, row, column, got, sum);
    }
  }
}

/* A tile that makes numbers of its sums makes the same as the pass behind it, and leaves `sums` alone. */
static void check_fused(struct operands *operands, struct micro_tile tile, enum micro_kind kind) {
  static float to[2][MICRO_ROWS][MICRO_WIDTH + 1];
  double factors[MICRO_ROWS];
  for (int row = 0; row < tile.rows; row++) {
    factors[row] = operands->row_scale[row];
  }
  struct micro_finish finish = {.sums = operands->sums,
                                .rows = tile.rows,
                                .columns = tile.width,
                                .factors = factors,
                                .scales = operands->column_scale,
                                .to = to[0][0],
                                .stride = MICRO_WIDTH + 1};
  memset(to, 0, sizeof(to));
  kind == MICRO_INTEGER ? micro->finish_s32(&finish) : micro->finish_f32(&finish);
  memcpy(operands->sums, operands->before, sizeof(operands->sums));
  finish.to = to[1][0];
  finish.sums = NULL;
  tile.finish = &finish;
  micro->tile[kind][MICRO_DWORDS](&tile);
  assert_memory_equal(to[0], to[1], sizeof(to[0]));
  assert_memory_equal(operands->sums, operands->before, sizeof(operands->sums));
}

/* Every number of rows and columns and every ending; what is outside stays as it was. */
static void check_tiles(enum micro_kind kind) {
  struct operands *operands = calloc(1, sizeof(*operands));
  assert_non_null(operands);
  fill_operands(operands, kind);
  for (int i = 0; i < micro->rows * 4 * ENDINGS; i++) {
    enum ending ending = (enum ending)(i % ENDINGS);
    struct micro_tile tile = {.x = operands->x[0],
                              .x_stride = STEPS + 3,
                              .rows = i / ENDINGS / 4 + 1,
                              .w = operands->w,
                              .width = (i / ENDINGS % 4 + 1) * MICRO_VECTOR,
                              .steps = STEPS - i % 3,
                              .sums = operands->sums,
                              .first = ending == FIRST,
                              .row_scale = ending == BY_ROW ? operands->row_scale : NULL,
                              .column_scale = ending == BY_COLUMN ? operands->column_scale : NULL};
    tile.start = kind == MICRO_INTEGER && ending != ADD ? operands->start : NULL;
    memcpy(operands->sums, operands->before, sizeof(operands->sums));
    if (kind == MICRO_INTEGER && ending >= BY_ROW) { /* the sums are then f32 */
      memset(operands->before, 0, sizeof(operands->before));
      memset(operands->sums, 0, sizeof(operands->sums));
    }
    micro->tile[kind][MICRO_DWORDS](&tile);
    check_tile(operands, &tile, kind, ending);
    if (ending < BY_ROW) {
      check_fused(operands, tile, kind);
    }
  }
  free(operands);
}

static void test_tiles(void **state) {
  (void)state;
  for (int kind = 0; kind < MICRO_KINDS; kind++) {
    if (micro->tile[kind][MICRO_DWORDS] != NULL) {
      check_tiles((enum micro_kind)kind);
    }
  }
}

/* Unpacked in registers or before: the same bits. */
static void check_unpacked(enum micro_kind kind, enum micro_source source, const void *packed, const uint32_t *dwords,
                           int width, int64_t steps) {
  struct operands *operands = calloc(1, sizeof(*operands));
  assert_non_null(operands);
  fill_operands(operands, kind);
  for (int rows = 1; rows <= MICRO_UNPACK_ROWS && rows <= micro->rows; rows++) {
    struct micro_tile tile = {.x = operands->x[0],
                              .x_stride = STEPS + 3,
                              .rows = rows,
                              .w = dwords,
                              .width = width,
                              .steps = steps,
                              .sums = operands->before,
                              .first = true};
    micro->tile[kind][MICRO_DWORDS](&tile);
    tile.w = packed;
    tile.sums = operands->sums;
    micro->tile[kind][source](&tile);
    for (int row = 0; row < rows; row++) {
      assert_memory_equal(operands->before[row], operands->sums[row], (size_t)width * sizeof(uint32_t));
    }
  }
  free(operands);
}

static void test_unpacking_tiles(void **state) {
  (void)state;
  static uint32_t dwords[STEPS * MICRO_WIDTH];
  uint8_t panel[2 * STEPS * MICRO_WIDTH];
  uint64_t random = 9;
  for (int i = 0; i < 2 * STEPS * MICRO_WIDTH; i++) {
    panel[i] = (uint8_t)oracle_random(&random) & 0xf7; /* no NaN */
  }
  for (int width = 16; width <= MICRO_WIDTH; width += 16) {
    if (micro->tile[MICRO_BF16][MICRO_E4M3] != NULL) {
      micro->unpack_e4m3_bf16(panel, width, STEPS, dwords);
      check_unpacked(MICRO_BF16, MICRO_E4M3, panel, dwords, width, STEPS);
    }
  }
}

/* ---- groups */

/* Both sources, with sums that go on and sums that begin. */
static void check_groups(const struct codes2 *codes, int rows, bool first) {
  static uint32_t dwords[2 * MICRO_GROUP / 4 * MICRO_WIDTH];
  static int8_t x[MICRO_GROUPS_ROWS][300];
  float sums[2][MICRO_GROUPS_ROWS][MICRO_WIDTH];
  int32_t start[2][MICRO_GROUPS_ROWS];
  uint64_t random = 11;
  for (int i = 0; i < MICRO_GROUPS_ROWS * 2 * MICRO_GROUP; i++) {
    x[i / (2 * MICRO_GROUP)][i % (2 * MICRO_GROUP)] = (int8_t)oracle_random(&random);
  }
  for (int i = 0; i < 2 * MICRO_GROUPS_ROWS; i++) {
    start[i / MICRO_GROUPS_ROWS][i % MICRO_GROUPS_ROWS] = (int32_t)(oracle_random(&random) % 1000);
  }
  micro->unpack_codes2(codes->panel, codes->width, 2, dwords);
  for (int packed = 0; packed < 2; packed++) {
    struct micro_groups groups = {.x = (const uint32_t *)(const void *)x[0],
                                  .x_stride = 75,
                                  .rows = rows,
                                  .w = packed ? (const void *)codes->panel : dwords,
                                  .width = codes->width,
                                  .groups = 2,
                                  .column_scale = packed ? NULL : codes->scale[0],
                                  .start = start[0],
                                  .start_stride = MICRO_GROUPS_ROWS,
                                  .sums = sums[packed][0],
                                  .first = first};
    for (int i = 0; i < MICRO_GROUPS_ROWS * MICRO_WIDTH; i++) {
      sums[packed][i / MICRO_WIDTH][i % MICRO_WIDTH] = 3;
    }
    packed ? micro->groups_codes2(&groups) : micro->groups_dwords(&groups);
    for (int i = 0; i < MICRO_GROUPS_ROWS * MICRO_WIDTH; i++) {
      int row = i / MICRO_WIDTH, column = i % MICRO_WIDTH;
      bool inside = row < rows && column < codes->width;
      double wanted = inside && first ? 0 : 3;
      for (int group = 0; group < 2 && inside; group++) {
        double sum = start[group][row];
        for (int k = group * MICRO_GROUP; k < (group + 1) * MICRO_GROUP; k++) {
          sum += x[row][k] * codes->code[k][column];
        }
        wanted += sum * codes->scale[group][column];
      }
      assert_true(fabs((double)sums[packed][row][column] - wanted) <= 1e-6 * (fabs(wanted) + 1e5));
    }
    const double factors[MICRO_GROUPS_ROWS] = {1, 2, 3, 4, 5, 6};
    float to[2][MICRO_GROUPS_ROWS][MICRO_WIDTH] = {0}, before[MICRO_GROUPS_ROWS][MICRO_WIDTH];
    struct micro_finish finish = {.sums = sums[packed],
                                  .rows = rows,
                                  .columns = codes->width,
                                  .factors = factors,
                                  .scales = codes->scale[1],
                                  .to = to[0][0],
                                  .stride = MICRO_WIDTH};
    micro->finish_f32(&finish);
    for (int i = 0; i < MICRO_GROUPS_ROWS * MICRO_WIDTH; i++) {
      before[i / MICRO_WIDTH][i % MICRO_WIDTH] = 3;
    }
    groups.sums = before[0];
    groups.finish = &finish;
    finish.to = to[1][0];
    packed ? micro->groups_codes2(&groups) : micro->groups_dwords(&groups);
    assert_memory_equal(to[0], to[1], sizeof(to[0]));
  }
  assert_memory_equal(sums[0], sums[1], sizeof(sums[0]));
}

static void test_groups(void **state) {
  (void)state;
  static struct codes2 codes;
  for (int i = 0; i < 4 * MICRO_GROUPS_ROWS * 2 && micro->groups_codes2 != NULL; i++) {
    fill_codes2(&codes, (i % 4 + 1) * MICRO_VECTOR);
    check_groups(&codes, i / 4 % MICRO_GROUPS_ROWS + 1, i / 4 / MICRO_GROUPS_ROWS == 0);
  }
}

/* ---- tables */

static void check_lookup(const struct codes2 *codes, const float *x, int rows, bool first) {
  static float tables[2 * MICRO_PAIRS * MICRO_TABLE_ROWS * MICRO_TABLE];
  float sums[MICRO_TABLE_ROWS][MICRO_WIDTH];
  for (int i = 0; i < MICRO_TABLE_ROWS * MICRO_WIDTH; i++) {
    sums[i / MICRO_WIDTH][i % MICRO_WIDTH] = 3;
  }
  struct micro_lookup lookup = {.tables = tables,
                                .rows = rows,
                                .w = codes->panel,
                                .width = codes->width,
                                .groups = 2,
                                .sums = sums[0],
                                .first = first};
  micro->lookup_tables(x, 300, rows, 2, tables);
  micro->lookup(&lookup);
  for (int i = 0; i < MICRO_TABLE_ROWS * MICRO_WIDTH; i++) {
    int row = i / MICRO_WIDTH, column = i % MICRO_WIDTH;
    double wanted = row < rows && column < codes->width && first ? 0 : 3, size = 1;
    for (int k = 0; k < 2 * MICRO_GROUP && row < rows && column < codes->width; k++) {
      double product = (double)x[row * 300 + k] * (codes->code[k][column] - 1) * codes->scale[k / MICRO_GROUP][column];
      wanted += product;
      size += fabs(product);
    }
    assert_true(fabs((double)sums[row][column] - wanted) <= 1e-6 * size);
  }
  float one[MICRO_WIDTH];
  for (int i = 0; i < MICRO_WIDTH; i++) {
    one[i] = 3;
  }
  lookup.tables = x;
  lookup.sums = one;
  micro->lookup_row(&lookup);
  assert_memory_equal(one, sums[0], sizeof(one));
}

static void test_lookup(void **state) {
  (void)state;
  static struct codes2 codes;
  float x[MICRO_TABLE_ROWS * 300];
  uint64_t random = 10;
  for (int i = 0; i < MICRO_TABLE_ROWS * 300; i++) {
    x[i] = (float)oracle_normal(&random);
  }
  for (int i = 0; i < 4 * MICRO_TABLE_ROWS * 2 && micro->lookup != NULL; i++) {
    fill_codes2(&codes, (i % 4 + 1) * MICRO_VECTOR);
    check_lookup(&codes, x, i / 4 % MICRO_TABLE_ROWS + 1, i / 4 / MICRO_TABLE_ROWS == 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_widen),         cmocka_unit_test(test_widen_ragged), cmocka_unit_test(test_narrow),
      cmocka_unit_test(test_largest),       cmocka_unit_test(test_quantize),     cmocka_unit_test(test_sum),
      cmocka_unit_test(test_finish),        cmocka_unit_test(test_unpack_e4m3),  cmocka_unit_test(test_unpack_bf16),
      cmocka_unit_test(test_unpack_codes2), cmocka_unit_test(test_tiles),        cmocka_unit_test(test_unpacking_tiles),
      cmocka_unit_test(test_lookup),        cmocka_unit_test(test_groups),
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
