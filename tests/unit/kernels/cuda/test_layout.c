/* How weights lie on the device, and where the tensors of a product are staged. */
#include "kernels/cuda/exec/staging.h"
#include "kernels/cuda/families/sm90/int2/a8_layout.h"
#include "kernels/cuda/families/sm90/int2/layout.h"
#include "kernels/cuda/families/sm90/int2_few/config.h"
#include "kernels/cuda/families/sm90/int2a8/config.h"
#include "kernels/cuda/weight/layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_layout_pads(void **state) {
  struct error error;
  struct layout layout;
  struct gemm_weight weight = {.n = 17, .k = 130, .format = GEMM_FORMAT_FP8, .scale = GEMM_SCALE_BLOCK};
  assert_int_equal(layout_compute(&weight, LAYOUT_ROWS, &layout, &error), STATUS_OK);
  assert_int_equal(layout.n, 32);
  assert_int_equal(layout.k, 256);
  assert_int_equal(layout.scale_row_bytes, 16); /* two scales, padded to four */
  assert_int_equal(layout.total_bytes % GEMM_SECTION, 0);
  weight.scale = GEMM_SCALE_ROW;
  assert_int_equal(layout_compute(&weight, LAYOUT_ROWS, &layout, &error), STATUS_OK);
  assert_int_equal(layout.k, 144);
  assert_int_equal(layout.scales_bytes, 32 * 4);
}

/* Every byte of the stored form, in one piece and in odd pieces. */
static void test_layout_fills(void **state) {
  struct error error;
  struct layout layout;
  struct gemm_weight weight = {.n = 5, .k = 19, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ONE};
  assert_int_equal(layout_compute(&weight, LAYOUT_ROWS, &layout, &error), STATUS_OK);
  uint8_t *canonical = calloc(1, layout.canonical.total_bytes);
  uint8_t *whole = malloc(layout.total_bytes), *pieces = malloc(layout.total_bytes);
  assert_non_null(canonical);
  assert_non_null(whole);
  assert_non_null(pieces);
  for (int64_t n = 0; n < weight.n; n++)
    for (int64_t k = 0; k < weight.k; k++)
      canonical[(uint64_t)n * layout.canonical.row_bytes + (uint64_t)k] = (uint8_t)(1 + n * weight.k + k);
  const float scale = 0.25f;
  memcpy(canonical + layout.canonical.scales_offset, &scale, sizeof scale);
  layout_fill(&weight, &layout, canonical, 0, whole, layout.total_bytes);
  for (int64_t n = 0; n < layout.n; n++)
    for (int64_t k = 0; k < layout.k; k++)
      assert_int_equal(whole[(uint64_t)n * layout.row_bytes + (uint64_t)k],
                       n < weight.n && k < weight.k ? (uint8_t)(1 + n * weight.k + k) : 0);
  for (int64_t n = 0; n < layout.n; n++) { /* a single scale is repeated for the rows that there are */
    float stored;
    memcpy(&stored, whole + layout.scales_offset + 4 * n, sizeof stored);
    assert_true(stored == (n < weight.n ? scale : 0.0f));
  }
  for (uint64_t at = 0; at < layout.total_bytes; at += 37) {
    uint64_t bytes = layout.total_bytes - at < 37 ? layout.total_bytes - at : 37;
    layout_fill(&weight, &layout, canonical, at, pieces + at, bytes);
  }
  assert_memory_equal(whole, pieces, layout.total_bytes);
  free(canonical);
  free(whole);
  free(pieces);
}

static uint32_t next_random(uint32_t *state) {
  return (*state = *state * 1664525u + 1013904223u) >> 24;
}

static void fill_canonical(const struct gemm_weight *weight, const struct gemm_layout *layout, uint8_t *canonical) {
  uint32_t random = 1;
  const struct gemm_format_facts *facts = gemm_format_facts(weight->format);
  unsigned bits = (unsigned)facts->bits, mask = (1u << bits % 8) - 1;
  uint64_t used = bits < 8 ? 0 : bits / 8 * (uint64_t)weight->k;
  for (uint64_t n = 0; n < (uint64_t)(weight->n * gemm_matrices(weight)); n++) {
    uint8_t *row = canonical + n * layout->row_bytes;
    for (uint64_t i = 0; i < used; i++)
      row[i] = (uint8_t)next_random(&random);
    for (uint64_t k = 0; bits < 8 && k < 8 / bits * layout->row_bytes; k++) {
      unsigned code = (k < (uint64_t)weight->k ? next_random(&random) : facts->padding) & mask;
      row[k * bits / 8] |= (uint8_t)(code << k * bits % 8);
    }
  }
  for (uint64_t i = 0; i < layout->scales_bytes; i++)
    canonical[layout->scales_offset + i] = (uint8_t)next_random(&random);
  for (uint64_t i = 0; layout->zeros_bytes > 0 && i < layout->scale_count; i++) {
    uint64_t any = next_random(&random);
    float real = i % 7 == 0 ? -0.0f : i % 7 == 1 ? 60000.0f : (float)(any % 65536) / 32 - 60;
    gemm_zero_put(weight->scale, canonical + layout->zeros_offset, i,
                  gemm_scale_facts(weight->scale)->zeros_f16 ? real : (float)(any & 15));
  }
  for (uint64_t i = 0; i < layout->factors_bytes; i++)
    canonical[layout->factors_offset + i] = (uint8_t)next_random(&random);
}

/* What is stored comes back, whatever the form. */
static void test_layout_reads(void **state) {
  static const struct {
    struct gemm_weight weight;
    uint32_t layout;
  } cases[] = {
      {{.n = 17, .k = 19, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ONE}, LAYOUT_ROWS},
      {{.n = 33, .k = 130, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW}, LAYOUT_ROWS},
      {{.n = 150, .k = 300, .format = GEMM_FORMAT_FP8, .scale = GEMM_SCALE_BLOCK}, LAYOUT_ROWS},
      {{.n = 5, .k = 7, .format = GEMM_FORMAT_BF16, .scale = GEMM_SCALE_NONE}, LAYOUT_ROWS},
      {{.n = 33, .k = 130, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW}, LAYOUT_LINES},
      {{.n = 9, .k = 70, .experts = 2, .format = GEMM_FORMAT_BF16, .scale = GEMM_SCALE_NONE}, LAYOUT_LINES},
      {{.n = 5, .k = 260, .format = GEMM_FORMAT_INT2, .scale = GEMM_SCALE_GROUP}, LAYOUT_CODES2},
      {{.n = 130, .k = 300, .format = GEMM_FORMAT_INT2, .scale = GEMM_SCALE_GROUP}, LAYOUT_TILES2},
      {{.n = 128, .k = 256, .format = GEMM_FORMAT_INT2, .scale = GEMM_SCALE_ROW}, LAYOUT_TILES2},
      {{.n = 130, .k = 300, .format = GEMM_FORMAT_INT2A8, .scale = GEMM_SCALE_GROUP}, LAYOUT_TILES2A8},
      {{.n = 128, .k = 512, .format = GEMM_FORMAT_INT2A8, .scale = GEMM_SCALE_ROW}, LAYOUT_TILES2A8},
      {{.n = 70, .k = 300, .format = GEMM_FORMAT_INT4, .scale = GEMM_SCALE_GROUP32_BF16_ZEROS}, LAYOUT_CODES4},
      {{.n = 70, .k = 300, .format = GEMM_FORMAT_INT4, .scale = GEMM_SCALE_GROUP64_ZEROS_F16}, LAYOUT_CODES4},
      {{.n = 5, .k = 130, .format = GEMM_FORMAT_INT4A8, .scale = GEMM_SCALE_ROW}, LAYOUT_CODES4},
      {{.n = 33, .k = 100, .experts = 3, .format = GEMM_FORMAT_MXFP4, .scale = GEMM_SCALE_GROUP32}, LAYOUT_CODES4},
      {{.n = 33, .k = 100, .experts = 3, .format = GEMM_FORMAT_NVFP4, .scale = GEMM_SCALE_GROUP16_FACTORS},
       LAYOUT_CODES4},
      {{.n = 70, .k = 300, .format = GEMM_FORMAT_NVFP4, .scale = GEMM_SCALE_GROUP16_FACTORS, .input = GEMM_INPUT_ORDER},
       LAYOUT_CODES4},
      {{.n = 70, .k = 300, .format = GEMM_FORMAT_NVFP4, .scale = GEMM_SCALE_GROUP16_FACTORS, .input = GEMM_INPUT_ORDER},
       LAYOUT_TILES4},
      {{.n = 96, .k = 420, .experts = 3, .format = GEMM_FORMAT_NVFP4, .scale = GEMM_SCALE_GROUP16_FACTORS},
       LAYOUT_TILES4},
      {{.n = 64, .k = 16, .format = GEMM_FORMAT_NVFP4, .scale = GEMM_SCALE_GROUP16_FACTORS}, LAYOUT_TILES4},
      {{.n = 70, .k = 300, .format = GEMM_FORMAT_INT4, .scale = GEMM_SCALE_GROUP32_BF16_ZEROS}, LAYOUT_TILES4},
      {{.n = 64, .k = 256, .format = GEMM_FORMAT_INT4, .scale = GEMM_SCALE_GROUP64_ZEROS}, LAYOUT_TILES4},
      {{.n = 33, .k = 7, .format = GEMM_FORMAT_INT4, .scale = GEMM_SCALE_ROW}, LAYOUT_TILES4},
      {{.n = 130, .k = 420, .format = GEMM_FORMAT_MXFP4, .scale = GEMM_SCALE_GROUP32}, LAYOUT_TILES4},
      {{.n = 96, .k = 420, .experts = 3, .format = GEMM_FORMAT_MXFP4, .scale = GEMM_SCALE_GROUP32}, LAYOUT_TILES4},
      {{.n = 70, .k = 300, .format = GEMM_FORMAT_INT4A8, .scale = GEMM_SCALE_GROUP_ZEROS}, LAYOUT_TILES4A8},
      {{.n = 70, .k = 300, .format = GEMM_FORMAT_INT4, .scale = GEMM_SCALE_GROUP32_BF16_ZEROS_F16}, LAYOUT_TILES4},
      {{.n = 130, .k = 129, .format = GEMM_FORMAT_INT4A8, .scale = GEMM_SCALE_GROUP_ZEROS_F16}, LAYOUT_TILES4A8},
      {{.n = 7, .k = 300, .format = GEMM_FORMAT_INT4, .scale = GEMM_SCALE_ROW_ZEROS_F16, .input = GEMM_INPUT_ORDER},
       LAYOUT_TILES4},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct layout layout;
    struct error error;
    assert_int_equal(layout_compute(&cases[i].weight, cases[i].layout, &layout, &error), STATUS_OK);
    uint8_t *canonical = calloc(1, layout.canonical.total_bytes), *back = calloc(1, layout.canonical.total_bytes);
    uint8_t *stored = malloc(layout.total_bytes);
    assert_true(canonical != NULL && back != NULL && stored != NULL);
    fill_canonical(&cases[i].weight, &layout.canonical, canonical);
    layout_fill(&cases[i].weight, &layout, canonical, 0, stored, layout.total_bytes);
    layout_read(&cases[i].weight, &layout, stored, back);
    assert_memory_equal(canonical, back, layout.canonical.total_bytes);
    uint8_t *pieces = malloc(layout.total_bytes);
    assert_non_null(pieces);
    for (uint64_t at = 0; at < layout.total_bytes; at += 3001) {
      uint64_t bytes = layout.total_bytes - at < 3001 ? layout.total_bytes - at : 3001;
      layout_fill(&cases[i].weight, &layout, canonical, at, pieces + at, bytes);
    }
    assert_memory_equal(stored, pieces, layout.total_bytes);
    free(pieces);
    free(canonical);
    free(back);
    free(stored);
  }
}

/* The code of W[n][k] as a kernel finds it, by what int2/layout.h says. */
static int tiled_code(const uint8_t *tiles, int64_t tiles_a_row, int64_t n, int64_t k) {
  const uint8_t *tile = tiles + (n / 64 * tiles_a_row + k / 128) * INT2_TILE_BYTES;
  int row = (int)(n % 16), i = (int)(k % 128 / 32), r = (int)(k % 32 / 16), second = (int)(k % 16 / 8);
  int q = (int)(k % 8 / 2), e = (int)(k % 2);
  const uint8_t *lane = tile + n % 64 / 32 * INT2_HALF_BYTES + n % 32 / 16 * INT2_UNIT_BYTES + (row % 8 * 4 + q) * 16;
  uint32_t word;
  memcpy(&word, lane + 4 * i, sizeof word);
  uint32_t nibble = word >> (16 * (row / 8) + 8 * e + 4 * r) & 15;
  uint32_t not_low = nibble >> second & 1, high = nibble >> (2 + second) & 1;
  return (int)(2 * high + !not_low);
}

static uint16_t tiled_scale(const uint8_t *tiles, int64_t tiles_a_row, int64_t n, int64_t group) {
  const uint8_t *tile = tiles + (n / 64 * tiles_a_row + group) * INT2_TILE_BYTES;
  uint16_t scale;
  tile += n % 64 / 32 * INT2_HALF_BYTES + INT2_HALF_SCALES;
  memcpy(&scale, tile + n % 32 / 16 * 32 + n % 8 * 4 + n % 16 / 8 * 2, sizeof scale);
  return scale;
}

/* The same by int2/a8_layout.h. */
static int tiled_code_a8(const uint8_t *tiles, int64_t tiles_a_row, int64_t n, int64_t k) {
  const uint8_t *tile = tiles + (n / 64 * tiles_a_row + k / 256) * INT2A8_TILE_BYTES;
  int row = (int)(n % 16), half = (int)(k % 32 / 16), q = (int)(k % 16 / 4), byte = (int)(k % 4);
  const uint8_t *unit = tile + n % 64 / 16 * INT2A8_QUARTER_BYTES + k % 256 / 128 * INT2A8_UNIT_BYTES;
  return unit[(row % 8 * 4 + q) * 16 + (2 * half + row / 8) * 4 + byte] >> k % 128 / 32 * 2 & 3;
}

static uint16_t tiled_scale_a8(const uint8_t *tiles, int64_t tiles_a_row, int64_t n, int64_t group) {
  const uint8_t *tile = tiles + (n / 64 * tiles_a_row + group / 2) * INT2A8_TILE_BYTES;
  uint16_t scale;
  memcpy(&scale,
         tile + n % 64 / 16 * INT2A8_QUARTER_BYTES + INT2A8_QUARTER_SCALES + group % 2 * 32 + n % 8 * 4 +
             n % 16 / 8 * 2,
         sizeof scale);
  return scale;
}

struct tiled_form {
  enum gemm_format format;
  uint32_t layout;
  int64_t k, tiles; /* of K 300, padded */
  int (*code)(const uint8_t *tiles, int64_t tiles_a_row, int64_t n, int64_t k);
  uint16_t (*scale)(const uint8_t *tiles, int64_t tiles_a_row, int64_t n, int64_t group);
};

static void check_tiles(const struct tiled_form *form, enum gemm_scale scale) {
  struct error error;
  struct layout layout;
  struct gemm_weight weight = {.n = 130, .k = 300, .format = form->format, .scale = scale};
  assert_int_equal(layout_compute(&weight, form->layout, &layout, &error), STATUS_OK);
  assert_int_equal(layout.n, 192);
  assert_int_equal(layout.k, form->k);
  uint8_t *canonical = malloc(layout.canonical.total_bytes);
  uint8_t *whole = malloc(layout.total_bytes), *pieces = malloc(layout.total_bytes);
  assert_non_null(canonical);
  assert_non_null(whole);
  assert_non_null(pieces);
  for (uint64_t i = 0; i < layout.canonical.total_bytes; i++)
    canonical[i] = (uint8_t)(i * 2654435761u >> 13);
  layout_fill(&weight, &layout, canonical, 0, whole, layout.total_bytes);
  for (int64_t n = 0; n < layout.n; n++) {
    for (int64_t k = 0; k < layout.k; k++) {
      uint64_t at = (uint64_t)n * layout.canonical.row_bytes + (uint64_t)k / 4;
      assert_int_equal(form->code(whole, form->tiles, n, k),
                       n < weight.n && k < 384 ? canonical[at] >> k % 4 * 2 & 3 : 1);
    }
    for (int64_t group = 0; group < layout.k / 128; group++) {
      uint64_t columns = layout.canonical.scale_columns, column = columns == 1 ? 0 : (uint64_t)group;
      uint16_t expected = 0;
      if (n < weight.n && group < 3)
        memcpy(&expected, canonical + layout.canonical.scales_offset + 2 * ((uint64_t)n * columns + column), 2);
      assert_int_equal(form->scale(whole, form->tiles, n, group), expected);
    }
  }
  for (uint64_t at = 0; at < layout.total_bytes; at += 3001) {
    uint64_t bytes = layout.total_bytes - at < 3001 ? layout.total_bytes - at : 3001;
    layout_fill(&weight, &layout, canonical, at, pieces + at, bytes);
  }
  assert_memory_equal(whole, pieces, layout.total_bytes);
  free(canonical);
  free(whole);
  free(pieces);
}

static void test_layout_tiles(void **state) {
  const struct tiled_form forms[] = {
      {GEMM_FORMAT_INT2, LAYOUT_TILES2, 384, 3, tiled_code, tiled_scale},
      {GEMM_FORMAT_INT2A8, LAYOUT_TILES2A8, 512, 2, tiled_code_a8, tiled_scale_a8},
  };
  for (int i = 0; i < 2; i++) {
    check_tiles(&forms[i], GEMM_SCALE_GROUP);
    check_tiles(&forms[i], GEMM_SCALE_ROW);
  }
}

static void test_layout_chosen(void **state) {
  struct error error;
  struct layout layout;
  struct gemm_weight int2 = {.n = 128, .k = 1, .format = GEMM_FORMAT_INT2, .scale = GEMM_SCALE_ROW};
  assert_int_equal(layout_choose(&int2, 90, true), LAYOUT_TILES2);
  assert_int_equal(layout_choose(&int2, 90, false), LAYOUT_CODES2);
  assert_int_equal(layout_choose(&int2, 89, false), LAYOUT_TILES2);
  assert_int_equal(layout_choose(&int2, 100, false), LAYOUT_TILES2);
  for (uint32_t older = 0x4303; older < LAYOUT_TILES2; older++) /* what had other tiles is not read as these */
    assert_int_equal(layout_compute(&int2, older, &layout, &error), STATUS_UNSUPPORTED);
  int2.n = 127;
  assert_int_equal(layout_choose(&int2, 90, true), LAYOUT_CODES2);
  int2.n = 128, int2.k = INT2_FEW_K_MOST + 1;
  assert_int_equal(layout_choose(&int2, 90, true), LAYOUT_CODES2);
  assert_int_equal(layout_compute(&int2, LAYOUT_ROWS, &layout, &error), STATUS_UNSUPPORTED);
  int2 = (struct gemm_weight){.n = 1, .k = INT2A8_K_MOST, .format = GEMM_FORMAT_INT2A8, .scale = GEMM_SCALE_ROW};
  assert_int_equal(layout_choose(&int2, 90, true), LAYOUT_TILES2A8);
  assert_int_equal(layout_choose(&int2, 90, false), LAYOUT_TILES2A8);
  assert_int_equal(layout_choose(&int2, 89, false), LAYOUT_TILES2A8);
  int2.k++;
  assert_int_equal(layout_choose(&int2, 90, true), LAYOUT_CODES2);
  assert_int_equal(layout_compute(&int2, LAYOUT_TILES2, &layout, &error), STATUS_UNSUPPORTED);
  struct gemm_weight int4 = {.n = 1, .k = 300, .format = GEMM_FORMAT_INT4A8, .scale = GEMM_SCALE_GROUP32};
  assert_int_equal(layout_choose(&int4, 90, true), LAYOUT_TILES4A8);
  assert_int_equal(layout_choose(&int4, 89, true), LAYOUT_CODES4);
  assert_int_equal(layout_compute(&int4, LAYOUT_TILES4A8, &layout, &error), STATUS_OK);
  assert_int_equal(layout.k, 512);
  int4.experts = 2;
  assert_int_equal(layout_choose(&int4, 90, true), LAYOUT_CODES4);
  int4.n = 128, int4.format = GEMM_FORMAT_INT4; /* whole blocks of each expert */
  assert_int_equal(layout_choose(&int4, 90, true), LAYOUT_TILES4);
  assert_int_equal(layout_choose(&int4, 89, true), LAYOUT_CODES4);
  int4.n = 100;
  assert_int_equal(layout_choose(&int4, 90, true), LAYOUT_CODES4);
  int4.experts = 0;
  assert_int_equal(layout_choose(&int4, 89, false), LAYOUT_TILES4);
  assert_int_equal(layout_choose(&int4, 75, false), LAYOUT_CODES4);
  int4.format = GEMM_FORMAT_INT4A8, int4.scale = GEMM_SCALE_GROUP_ZEROS;
  assert_int_equal(layout_choose(&int4, 90, true), LAYOUT_TILES4A8);
  int4.scale = GEMM_SCALE_GROUP_ZEROS_F16;
  assert_int_equal(layout_choose(&int4, 90, true), LAYOUT_TILES4A8);
  assert_int_equal(layout_choose(&int4, 80, true), LAYOUT_CODES4);
  int4.format = GEMM_FORMAT_INT4;
  assert_int_equal(layout_choose(&int4, 90, true), LAYOUT_TILES4);
  assert_int_equal(layout_choose(&int4, 80, true), LAYOUT_CODES4);
  int4.experts = 2;
  assert_int_equal(layout_choose(&int4, 90, true), LAYOUT_CODES4);
  struct gemm_weight fp8 = {.n = 128, .k = 16, .format = GEMM_FORMAT_FP8, .scale = GEMM_SCALE_ROW};
  assert_int_equal(layout_choose(&fp8, 90, true), LAYOUT_ROWS);
  assert_int_equal(layout_choose(&fp8, 90, false), LAYOUT_ROWS);
  assert_int_equal(layout_compute(&fp8, LAYOUT_TILES2, &layout, &error), STATUS_UNSUPPORTED);
  /* Long rows that are padded are, to whole lines; what came as it is stored still does. */
  const struct {
    enum gemm_format format;
    enum gemm_scale scale;
    int64_t k, k_padded;
    uint32_t layout;
  } rows[] = {{GEMM_FORMAT_FP8, GEMM_SCALE_ROW, 4097, 4224, LAYOUT_LINES},
              {GEMM_FORMAT_INT8, GEMM_SCALE_ONE, 2049, 2176, LAYOUT_LINES},
              {GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 2047, 2048, LAYOUT_ROWS},
              {GEMM_FORMAT_FP8, GEMM_SCALE_ROW, 4112, 4112, LAYOUT_ROWS},
              {GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK, 4097, 4224, LAYOUT_ROWS},
              {GEMM_FORMAT_F16, GEMM_SCALE_NONE, 1025, 1088, LAYOUT_LINES},
              {GEMM_FORMAT_BF16, GEMM_SCALE_NONE, 1009, 1024, LAYOUT_ROWS}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    fp8 = (struct gemm_weight){.n = 128, .k = rows[i].k, .format = rows[i].format, .scale = rows[i].scale};
    assert_int_equal(layout_choose(&fp8, 90, true), rows[i].layout);
    assert_int_equal(layout_compute(&fp8, rows[i].layout, &layout, &error), STATUS_OK);
    assert_int_equal(layout.k, rows[i].k_padded);
  }
}

static void test_staging_holds(void **state) {
  struct error error;
  struct layout layout;
  struct gemm_weight weight = {.n = 1000, .k = 1000, .format = GEMM_FORMAT_FP8, .scale = GEMM_SCALE_BLOCK};
  assert_int_equal(layout_compute(&weight, LAYOUT_ROWS, &layout, &error), STATUS_OK);
  assert_int_equal(staging_pad(&weight, 5), 8);
  struct staging at = staging_place(&weight, &layout, 5);
  assert_true(at.codes - at.x >= 8 * 4 * 1000);
  assert_true(at.scales - at.codes >= 8 * layout.x_row_bytes);
  assert_true(at.y - at.sums >= 8 * 4 * (uint64_t)layout.n);
  assert_true(at.bytes - at.bias >= 4 * (uint64_t)layout.n);
  for (int64_t rows = 1; rows < 3000; rows += 7) { /* the inverse never promises more than fits */
    uint64_t bytes = staging_place(&weight, &layout, rows).bytes;
    int64_t fit = staging_rows(&weight, &layout, bytes);
    assert_true(fit >= (rows > GEMM_GROUP ? rows / GEMM_GROUP * GEMM_GROUP : rows));
    assert_true(staging_place(&weight, &layout, fit).bytes <= bytes);
  }
  assert_int_equal(staging_rows(&weight, &layout, 0), 0);
  weight = (struct gemm_weight){.n = 100, .k = 130, .format = GEMM_FORMAT_INT2A8, .scale = GEMM_SCALE_GROUP};
  assert_int_equal(layout_compute(&weight, LAYOUT_CODES2, &layout, &error), STATUS_OK);
  at = staging_place(&weight, &layout, 5);
  assert_int_equal(layout.x_row_bytes, 256); /* whole groups of bytes, not of codes */
  assert_true(at.codes - at.x >= 5 * 4 * 130);
  assert_true(at.scales - at.codes >= 5 * 256);
  assert_true(at.y - at.scales >= 5 * 4);
}

/* Whatever is quantized where it lies comes with pointers to rows of y. */
static void test_staging_holds_pointers(void **state) {
  static const enum gemm_format formats[] = {GEMM_FORMAT_INT8, GEMM_FORMAT_FP8, GEMM_FORMAT_INT2A8};
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
    struct gemm_weight weight = {.n = 128, .k = 256, .format = formats[i], .scale = GEMM_SCALE_ROW};
    struct layout layout;
    struct error error;
    assert_true(gemm_quantizes_x(weight.format));
    assert_int_equal(layout_compute(&weight, layout_choose(&weight, 90, true), &layout, &error), STATUS_OK);
    struct staging at = staging_place(&weight, &layout, 64);
    assert_true(at.bytes - at.y_rows >= 64 * sizeof(void *));
  }
}

static void test_staging_goes(void **state) {
  assert_int_equal(staging_go(1, 16384), 1);
  assert_int_equal(staging_go(4096, 4096), 4096);
  assert_int_equal(staging_go(4097, 4096), 2176);
  assert_int_equal(staging_go(4096, 2304), 2048);
  assert_int_equal(staging_go(10, 3), 3);
  for (int64_t most = 1; most < 1000; most += most < 200 ? 1 : 128)
    for (int64_t rows = 1; rows < 3000; rows += 7) {
      int64_t each = staging_go(rows, most), goes = (rows + most - 1) / most;
      assert_in_range(each, 1, most);
      assert_true(each * goes >= rows || each == most);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_layout_pads),   cmocka_unit_test(test_layout_fills),
      cmocka_unit_test(test_layout_reads),  cmocka_unit_test(test_layout_tiles),
      cmocka_unit_test(test_layout_chosen), cmocka_unit_test(test_staging_holds),
      cmocka_unit_test(test_staging_goes),  cmocka_unit_test(test_staging_holds_pointers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
