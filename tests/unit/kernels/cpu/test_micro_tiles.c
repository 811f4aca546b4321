/* The CPU's inner loops that multiply, for each instruction set that this machine has, against plain loops over the
 * layouts that they are documented to read. */
#include "proto/number.h"
#include "tests/support/reference/oracle.h"
#include "tests/support/worker/micro.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 64, STEPS_MOST = 2 * MICRO_GROUP, X_STRIDE = STEPS_MOST + 3 };

struct operands {
  uint32_t x[MICRO_ROWS][X_STRIDE]; /* rows are further apart than they are long */
  uint32_t w[STEPS * MICRO_WIDTH];
  float row_scale[MICRO_ROWS], column_scale[MICRO_WIDTH];
  int32_t start[MICRO_ROWS];
  uint32_t before[MICRO_ROWS][MICRO_WIDTH], sums[MICRO_ROWS][MICRO_WIDTH];
};

static uint32_t random_dword(enum micro_kind kind, uint64_t *random) {
  uint32_t bits = (uint32_t)oracle_random(random);
  float value = (float)oracle_normal(random);
  if (kind == MICRO_WORDS) { /* all that x and W of INT8 can be */
    return (uint32_t)(bits % 384 - 128) << 16 | (uint16_t)(bits / 384 % 384 - 128);
  }
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
  for (int i = 0; i < MICRO_ROWS * X_STRIDE; i++) {
    operands->x[i / X_STRIDE][i % X_STRIDE] = random_dword(kind, &random);
  }
  for (int i = 0; i < STEPS * MICRO_WIDTH; i++) {
    operands->w[i] = random_dword(kind, &random);
  }
  for (int i = 0; i < MICRO_ROWS * MICRO_WIDTH; i++) {
    float value = (float)oracle_normal(&random);
    operands->column_scale[i % MICRO_WIDTH] = value;
    operands->row_scale[i / MICRO_WIDTH] = value;
    operands->start[i / MICRO_WIDTH] = (int32_t)oracle_random(&random) % 1000;
    operands->before[i / MICRO_WIDTH][i % MICRO_WIDTH] = micro_is_integer(kind) ? (uint32_t)i : 0;
    if (!micro_is_integer(kind)) {
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
    } else if (kind == MICRO_WORDS && i < 2) {
      product = (double)(int16_t)(x >> 16 * i) * (int16_t)(w >> 16 * i);
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
    double size = 1, sum = micro_is_integer(kind) && ending != ADD ? operands->start[row] : 0;
    for (int64_t step = 0; step < tile->steps; step++) {
      sum += step_of(kind, operands->x[row][step], operands->w[step * tile->width + column], &size);
    }
    bool real = !micro_is_integer(kind) || ending >= BY_ROW;
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
  micro_is_integer(kind) ? micro->finish_s32(&finish) : micro->finish_f32(&finish);
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
                              .x_stride = X_STRIDE,
                              .rows = i / ENDINGS / 4 + 1,
                              .w = operands->w,
                              .width = (i / ENDINGS % 4 + 1) * MICRO_VECTOR,
                              .steps = STEPS - i % 3,
                              .sums = operands->sums,
                              .first = ending == FIRST,
                              .row_scale = ending == BY_ROW ? operands->row_scale : NULL,
                              .column_scale = ending == BY_COLUMN ? operands->column_scale : NULL};
    tile.start = micro_is_integer(kind) && ending != ADD ? operands->start : NULL;
    memcpy(operands->sums, operands->before, sizeof(operands->sums));
    if (micro_is_integer(kind) && ending >= BY_ROW) { /* the sums are then f32 */
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
  for (int kind = 0; kind < MICRO_KINDS; kind++) {
    if (micro->tile[kind][MICRO_DWORDS] != NULL) {
      check_tiles((enum micro_kind)kind);
    }
  }
}

/* Rows that lie interleaved: the same bits. */
static void check_interleaved(struct operands *operands, struct micro_tile tile, enum micro_kind kind) {
  static uint32_t x[STEPS * MICRO_ROWS], sums[MICRO_ROWS][MICRO_WIDTH];
  memcpy(sums, operands->before, sizeof(sums));
  memcpy(operands->sums, operands->before, sizeof(sums));
  micro->tile[kind][MICRO_DWORDS](&tile);
  for (int64_t i = 0; i < tile.steps * tile.rows; i++) {
    x[i] = operands->x[i % tile.rows][i / tile.rows];
  }
  tile.x = x;
  tile.sums = sums;
  micro->tile_interleaved[kind](&tile);
  assert_memory_equal(operands->sums, sums, sizeof(sums));
}

static void test_interleaved_tiles(void **state) {
  (void)state;
  for (int kind = 0; kind < MICRO_KINDS; kind++) {
    for (int i = 0; i < 4 * ENDINGS && micro->tile_interleaved[kind] != NULL; i++) {
      struct operands *operands = calloc(1, sizeof(*operands));
      assert_non_null(operands);
      fill_operands(operands, (enum micro_kind)kind);
      struct micro_tile tile = {.x = operands->x[0],
                                .x_stride = X_STRIDE,
                                .rows = micro->rows,
                                .w = operands->w,
                                .width = (i / ENDINGS + 1) * MICRO_VECTOR,
                                .steps = STEPS - i % 5,
                                .sums = operands->sums,
                                .first = i % ENDINGS == FIRST,
                                .row_scale = i % ENDINGS == BY_ROW ? operands->row_scale : NULL,
                                .column_scale = i % ENDINGS == BY_COLUMN ? operands->column_scale : NULL,
                                .start = i % ENDINGS != ADD ? operands->start : NULL};
      check_interleaved(operands, tile, (enum micro_kind)kind);
      free(operands);
    }
  }
}

/* Unpacked in registers or before: the same bits. */
static void check_unpacked(enum micro_kind kind, enum micro_source source, const void *packed, const uint32_t *dwords,
                           int width, int64_t steps) {
  struct operands *operands = calloc(1, sizeof(*operands));
  assert_non_null(operands);
  fill_operands(operands, kind);
  for (int rows = 1; rows <= micro->unpack_rows[source]; rows++) {
    struct micro_tile tile = {.x = operands->x[0],
                              .x_stride = X_STRIDE,
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

static void check_source(enum micro_kind kind, enum micro_source source, const uint8_t *panel, int width,
                         int64_t steps) {
  static uint32_t dwords[STEPS_MOST * MICRO_WIDTH];
  if (micro->tile[kind][source] == NULL) {
    return;
  }
  if (source == MICRO_U8) {
    micro->unpack_u8_words(panel, width, steps, dwords);
  } else if (kind == MICRO_BF16) {
    micro->unpack_e4m3_bf16(panel, width, steps, dwords);
  } else if (source == MICRO_E4M3) {
    micro->unpack_e4m3_f32(panel, width, steps, (float *)dwords);
  } else if (source == MICRO_BF16_PAIRS) {
    micro->unpack_bf16_f32(panel, width, steps, (float *)dwords);
  } else if (source == MICRO_F16S) {
    micro->widen_f16((const uint16_t *)(const void *)panel, (float *)dwords, steps * width);
  } else {
    micro->unpack_codes2_f32(panel, width, (int)(steps / MICRO_GROUP), (float *)dwords);
  }
  check_unpacked(kind, source, panel, dwords, width, steps);
}

static void test_unpacking_tiles(void **state) {
  static struct codes2 codes;
  _Alignas(4) uint8_t panel[2 * STEPS * MICRO_WIDTH], bf16[sizeof(panel)], f16[sizeof(panel)];
  uint64_t random = 9;
  for (size_t i = 0; i < sizeof(panel); i++) {
    panel[i] = (uint8_t)oracle_random(&random) & 0xf7; /* no NaN */
  }
  for (size_t i = 0; i < sizeof(panel) / 2; i++) {
    float value = (float)oracle_normal(&random);
    ((uint16_t *)(void *)bf16)[i] = number_to_bf16(value);
    ((uint16_t *)(void *)f16)[i] = number_to_f16(i % 9 == 0 ? value * 0x1p-20f : value); /* some are subnormal */
  }
  for (int width = 16; width <= MICRO_WIDTH; width += 16) {
    codes2_fill(&codes, width);
    check_source(MICRO_BF16, MICRO_E4M3, panel, width, STEPS);
    check_source(MICRO_F32, MICRO_E4M3, panel, width, STEPS);
    check_source(MICRO_WORDS, MICRO_U8, panel, width, STEPS);
    check_source(MICRO_F32, MICRO_BF16_PAIRS, bf16, width, STEPS);
    check_source(MICRO_F32, MICRO_F16S, f16, width, STEPS - 1);
    check_source(MICRO_F32, MICRO_CODES2, codes.panel, width, STEPS_MOST);
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
  static struct codes2 codes;
  for (int i = 0; i < 4 * MICRO_GROUPS_ROWS * 2 && micro->groups_codes2 != NULL; i++) {
    codes2_fill(&codes, (i % 4 + 1) * MICRO_VECTOR);
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
  static struct codes2 codes;
  float x[MICRO_TABLE_ROWS * 300];
  uint64_t random = 10;
  for (int i = 0; i < MICRO_TABLE_ROWS * 300; i++) {
    x[i] = (float)oracle_normal(&random);
  }
  for (int i = 0; i < 4 * MICRO_TABLE_ROWS * 2 && micro->lookup != NULL; i++) {
    codes2_fill(&codes, (i % 4 + 1) * MICRO_VECTOR);
    check_lookup(&codes, x, i / 4 % MICRO_TABLE_ROWS + 1, i / 4 / MICRO_TABLE_ROWS == 0);
  }
}

/* ---- codes of 4 bits */

enum { CODES4_K = 2 * MICRO_GROUP, CODES4_TEST_ROWS = 4 };

/* A panel of every form: what it holds, and what that stands for. */
struct codes4 {
  struct micro_codes4 form;
  int width;
  uint8_t panel[(CODES4_K / 2 + CODES4_K / 32 * 4) * MICRO_WIDTH];
  uint8_t code[CODES4_K][MICRO_WIDTH];
  float zero[CODES4_K / 32][MICRO_WIDTH], scale[CODES4_K / 32][MICRO_WIDTH];
};

static void codes4_fill(struct codes4 *codes, int width, struct micro_codes4 form) {
  uint64_t random = 17;
  uint8_t *at = codes->panel;
  memset(codes, 0, sizeof(*codes));
  codes->form = form;
  codes->width = width;
  for (int group = 0; group < CODES4_K / form.group; group++) {
    for (int i = 0; i < form.group * width; i++) {
      int k = i / width, column = i % width;
      uint8_t code = oracle_random(&random) & 15;
      codes->code[group * form.group + k][column] = code;
      at[4 * (k / 8 * width + column) + k % 4] |= (uint8_t)(code << k % 8 / 4 * 4);
    }
    at += form.group / 2 * width;
    for (int column = 0; column < width; column++) {
      float value = (float)oracle_normal(&random);
      uint16_t half = form.bf16 ? number_to_bf16(value) : number_to_f16(value);
      codes->scale[group][column] = form.bf16 ? number_from_bf16(half) : number_from_f16(half);
      uint64_t sixteenths = oracle_random(&random) % 512;
      float zero = form.zeros == 2 ? (float)sixteenths / 16 - 8 : form.zeros == 1 ? (float)(sixteenths / 32) : 8;
      uint16_t zero_half = number_to_f16(zero);
      codes->zero[group][column] = zero;
      memcpy(at + 2 * column, &half, sizeof(half));
      if (form.zeros == 1) {
        at[2 * width + column] = (uint8_t)zero;
      } else if (form.zeros == 2) {
        memcpy(at + 2 * (width + column), &zero_half, sizeof(zero_half));
      }
    }
    at += (2 + form.zeros) * width;
  }
}

/* Twice as large with e2m1. */
static float codes4_value(const struct codes4 *codes, int k, int column) {
  uint8_t code = codes->code[k][column];
  return codes->form.e2m1 ? 2 * number_from_e2m1(code) : (float)code - codes->zero[k / codes->form.group][column];
}

static void check_codes4_f32(const struct codes4 *codes) {
  static float values[CODES4_K * MICRO_WIDTH];
  float half = codes->form.e2m1 ? 0.5f : 1;
  micro->unpack_codes4_f32(codes->panel, codes->width, CODES4_K / codes->form.group, &codes->form, values);
  for (int i = 0; i < CODES4_K * codes->width; i++) {
    int k = i / codes->width, column = i % codes->width;
    assert_true(values[i] == codes4_value(codes, k, column) * half * codes->scale[k / codes->form.group][column]);
  }
  static float x[CODES4_TEST_ROWS][CODES4_K + 5];
  uint64_t random = 18;
  for (int i = 0; i < CODES4_TEST_ROWS * (CODES4_K + 5); i++) {
    x[i / (CODES4_K + 5)][i % (CODES4_K + 5)] = (float)oracle_normal(&random);
  }
  for (int rows = 1; rows <= micro->unpack_rows[MICRO_CODES4]; rows++) {
    float sums[2][CODES4_TEST_ROWS][MICRO_WIDTH] = {0};
    struct micro_tile tile = {.x = (const uint32_t *)(const void *)x[0],
                              .x_stride = CODES4_K + 5,
                              .rows = rows,
                              .w = codes->panel,
                              .width = codes->width,
                              .steps = CODES4_K,
                              .sums = sums[0],
                              .form = &codes->form};
    micro->tile[MICRO_F32][MICRO_CODES4](&tile);
    tile.w = values;
    tile.sums = sums[1];
    micro->tile[MICRO_F32][MICRO_DWORDS](&tile);
    assert_memory_equal(sums[0], sums[1], sizeof(sums[0]));
  }
}

static void check_codes4_groups(const struct codes4 *codes, int rows, bool first) {
  static int8_t x[MICRO_GROUPS_ROWS][CODES4_K + 12];
  int32_t start[CODES4_K / 32][MICRO_GROUPS_ROWS] = {{0}};
  float sums[MICRO_GROUPS_ROWS][MICRO_WIDTH];
  uint64_t random = 19;
  for (int i = 0; i < MICRO_GROUPS_ROWS * CODES4_K; i++) { /* the first row has the largest there are */
    int row = i / CODES4_K, k = i % CODES4_K;
    x[row][k] = row == 0 ? -128 : (int8_t)oracle_random(&random);
    start[k / codes->form.group][row] -= x[row][k];
  }
  for (int i = 0; i < MICRO_GROUPS_ROWS * MICRO_WIDTH; i++) {
    sums[i / MICRO_WIDTH][i % MICRO_WIDTH] = 3;
  }
  const struct micro_groups groups = {.x = (const uint32_t *)(const void *)x[0],
                                      .x_stride = (CODES4_K + 12) / 4,
                                      .rows = rows,
                                      .w = codes->panel,
                                      .width = codes->width,
                                      .groups = CODES4_K / codes->form.group,
                                      .start = start[0],
                                      .start_stride = MICRO_GROUPS_ROWS,
                                      .sums = sums[0],
                                      .first = first,
                                      .form = &codes->form};
  micro->groups_codes4(&groups);
  for (int i = 0; i < MICRO_GROUPS_ROWS * MICRO_WIDTH; i++) {
    int row = i / MICRO_WIDTH, column = i % MICRO_WIDTH;
    bool inside = row < rows && column < codes->width;
    double wanted = inside && first ? 0 : 3, size = 3;
    for (int k = 0; k < CODES4_K && inside; k++) {
      double term = (double)codes4_value(codes, k, column) * codes->scale[k / codes->form.group][column] * x[row][k];
      wanted += term;
      size += fabs(term);
    }
    assert_true(fabs((double)sums[row][column] - wanted) <= 1e-6 * size);
  }
}

static void test_codes4(void **state) {
  static struct codes4 codes;
  for (int i = 0; i < 4 * 3 * 7; i++) {
    const struct micro_codes4 form = {.group = 32 << i / 4 % 3,
                                      .bf16 = i / 12 % 2 == 1,
                                      .zeros = i / 24 == 1  ? 1
                                               : i / 12 > 4 ? 2
                                                            : 0,
                                      .e2m1 = i / 12 == 4};
    codes4_fill(&codes, (i % 4 + 1) * MICRO_VECTOR, form);
    check_codes4_f32(&codes);
    for (int rows = 1; rows <= MICRO_GROUPS_ROWS && !form.e2m1; rows++) {
      check_codes4_groups(&codes, rows, rows % 2 == 0);
    }
  }
}

static int run(const char *name) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_tiles),           cmocka_unit_test(test_interleaved_tiles),
                                     cmocka_unit_test(test_unpacking_tiles), cmocka_unit_test(test_lookup),
                                     cmocka_unit_test(test_groups),          cmocka_unit_test(test_codes4)};
  return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

int main(void) {
  return micro_run_each(run);
}
