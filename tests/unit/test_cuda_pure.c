/* What the cuda backend decides without a device: how weights lie, where a product's tensors are staged, and how the
 * Hopper kernel is configured. */
#include "kernels/cuda/few_config.h"
#include "kernels/cuda/hopper_config.h"
#include "kernels/cuda/int2_few_config.h"
#include "kernels/cuda/int2_layout.h"
#include "kernels/cuda/int2_many_config.h"
#include "kernels/cuda/int2a8_config.h"
#include "kernels/cuda/int2a8_layout.h"
#include "kernels/cuda/layout.h"
#include "kernels/cuda/many_config.h"
#include "kernels/cuda/roof.h"
#include "kernels/cuda/staging.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SMS = 132 };

static struct hopper_product product_of(enum gemm_format format, enum gemm_scale scale, int64_t m, int64_t n,
                                        int64_t k) {
  return (struct hopper_product){.format = format, .scale = scale, .m = m, .n = n, .k = k};
}

/* ---- roof */

/* What the makers' data sheets say, to 3 %: 4.8 TB/s and 1979 TOPS at 1830 MHz; 1.56 TB/s and 624 TOPS. */
static void test_roofs(void **state) {
  (void)state;
  struct roof_device h200 = {.capability = 90,
                             .multiprocessors = 132,
                             .clock_khz = 1830000,
                             .memory_clock_khz = 3201000,
                             .memory_bus_bits = 6144};
  struct roof_device a100 = {.capability = 80,
                             .multiprocessors = 108,
                             .clock_khz = 1410000,
                             .memory_clock_khz = 1215000,
                             .memory_bus_bits = 5120};
  struct roof_device unknown = {.capability = 121, .multiprocessors = 48, .clock_khz = 2000000};
  assert_float_equal((double)roof_memory(&h200) / 1e12, 4.8, 0.15);
  assert_float_equal((double)roof_operations(&h200) / 1e12, 1979, 1);
  assert_float_equal((double)roof_memory(&a100) / 1e12, 1.555, 0.01);
  assert_float_equal((double)roof_operations(&a100) / 1e12, 624, 1);
  assert_int_equal(roof_memory(&unknown), 0);
  assert_int_equal(roof_operations(&unknown), 0);
}

/* ---- layout */

static void test_layout_pads(void **state) {
  (void)state;
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
  (void)state;
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

/* The code of W[n][k] as a kernel finds it, by what int2_layout.h says. */
static int tiled_code(const uint8_t *tiles, int64_t tiles_a_row, int64_t n, int64_t k) {
  const uint8_t *tile = tiles + (n / 64 * tiles_a_row + k / 128) * INT2_TILE_BYTES;
  int row = (int)(n % 16), s = (int)(k % 64 / 16), r = (int)(k % 16 / 8), q = (int)(k % 8 / 2), odd = (int)(k % 2);
  const uint8_t *lane = tile + n % 64 / 16 * INT2_UNIT_BYTES + (row % 8 * 4 + q) * 16;
  uint32_t word;
  memcpy(&word, lane + 4 * (k % 128 / 64 * 2 + row / 8), sizeof word);
  int field = 1 + s + 4 * r;
  return (int)(field == 8 ? word >> 16 * !odd : word >> (2 * field + 16 * odd)) & 3;
}

static uint16_t tiled_scale(const uint8_t *tiles, int64_t tiles_a_row, int64_t n, int64_t group) {
  const uint8_t *tile = tiles + (n / 64 * tiles_a_row + group) * INT2_TILE_BYTES;
  uint16_t scale;
  memcpy(&scale, tile + INT2_SCALES_OFFSET + n % 64 / 16 * 32 + n % 8 * 4 + n % 16 / 8 * 2, sizeof scale);
  return scale;
}

/* The same by int2a8_layout.h. */
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
  (void)state;
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
  (void)state;
  struct error error;
  struct layout layout;
  struct gemm_weight int2 = {.n = 128, .k = 1, .format = GEMM_FORMAT_INT2, .scale = GEMM_SCALE_ROW};
  assert_int_equal(layout_choose(&int2, 90), LAYOUT_TILES2);
  assert_int_equal(layout_choose(&int2, 89), LAYOUT_CODES2);
  assert_int_equal(layout_choose(&int2, 100), LAYOUT_CODES2);
  int2.n = 127;
  assert_int_equal(layout_choose(&int2, 90), LAYOUT_CODES2);
  int2.n = 128, int2.k = INT2_FEW_K_MOST + 1;
  assert_int_equal(layout_choose(&int2, 90), LAYOUT_CODES2);
  assert_int_equal(layout_compute(&int2, LAYOUT_ROWS, &layout, &error), STATUS_UNSUPPORTED);
  int2 = (struct gemm_weight){.n = 1, .k = INT2A8_K_MOST, .format = GEMM_FORMAT_INT2A8, .scale = GEMM_SCALE_ROW};
  assert_int_equal(layout_choose(&int2, 90), LAYOUT_TILES2A8);
  assert_int_equal(layout_choose(&int2, 89), LAYOUT_CODES2);
  int2.k++;
  assert_int_equal(layout_choose(&int2, 90), LAYOUT_CODES2);
  assert_int_equal(layout_compute(&int2, LAYOUT_TILES2, &layout, &error), STATUS_UNSUPPORTED);
  struct gemm_weight fp8 = {.n = 128, .k = 16, .format = GEMM_FORMAT_FP8, .scale = GEMM_SCALE_ROW};
  assert_int_equal(layout_choose(&fp8, 90), LAYOUT_ROWS);
  assert_int_equal(layout_compute(&fp8, LAYOUT_TILES2, &layout, &error), STATUS_UNSUPPORTED);
}

/* ---- INT2 products of few rows */

/* Every tile of every block of rows is somebody's, once, and its sums are where the blocks of rows look for them. */
static void check_plan(const struct int2_few_way *way) {
  const struct int2_few_plan *plan = &way->plan;
  int split = way->config.split_k, blocks = way->config.blocks, parts = 0;
  assert_true(plan->shared_bytes <= 227 * 1024);
  assert_true(plan->clusters * blocks >= plan->row_blocks);
  assert_int_equal(plan->first_tile[0], 0);
  assert_int_equal(plan->first_tile[split], plan->tiles);
  for (int rank = 0; rank < split; rank++) {
    int length = plan->first_tile[rank + 1] - plan->first_tile[rank], total = blocks * length;
    assert_true(length > 0);
    for (int pair = 0; pair < INT2_FEW_PAIRS; pair++) {
      int begin = total * pair / INT2_FEW_PAIRS, end = total * (pair + 1) / INT2_FEW_PAIRS;
      for (int tile = begin; tile < end; tile++) {
        int block = tile / length, slot = block - plan->first_block[rank][pair], found = 0;
        assert_in_range(slot, 0, plan->slots - 1);
        for (int i = plan->first_part[block]; i < plan->first_part[block + 1]; i++)
          found += plan->parts[i] == 256 * rank + pair * plan->slots + slot;
        assert_int_equal(found, 1);
        parts += tile == begin || block != (tile - 1) / length;
      }
    }
  }
  assert_int_equal(plan->first_part[blocks], parts);
}

static void test_int2_plans(void **state) {
  (void)state;
  static const int64_t ns[] = {128, 129, 1000, 4096, 8192, 10240, 57344, 262144};
  static const int64_t ks[] = {1, 128, 129, 300, 3584, 4096, 8192, 28672, INT2_FEW_K_MOST};
  for (size_t i = 0; i < sizeof ns / sizeof ns[0]; i++) {
    for (size_t j = 0; j < sizeof ks / sizeof ks[0]; j++) {
      struct int2_few_way ways[INT2_FEW_WAYS];
      assert_true(int2_few_ways_find(ns[i], ks[j], SMS, ways));
      for (int way = 0; way < INT2_FEW_WAYS; way++)
        check_plan(&ways[way]);
    }
  }
  struct int2_few_plan plan;
  struct int2_few_config config = {.columns = 8, .split_k = 4, .blocks = 1, .ahead = 2};
  assert_false(int2_few_plan_for(&config, 8192, 3 * 128, &plan)); /* a block without K */
  config = (struct int2_few_config){.columns = 16, .split_k = 1, .blocks = 1, .ahead = 2};
  assert_false(int2_few_plan_for(&config, 8192, 8192, &plan)); /* x does not fit */
}

/* Blocks fit the device, tiles cover the product, and what blocks leave for each other fits its memory. */
static void test_int2_many_plans(void **state) {
  (void)state;
  static const int64_t ms[] = {1, 17, 33, 64, 65, 129, 1000, 16384}, ns[] = {128, 129, 8192, 10240, 57344, 262144};
  static const int64_t ks[] = {1, 129, 3584, 8192, 28672, 32768};
  for (size_t i = 0; i < 8 * 6 * 6; i++) {
    int64_t m = ms[i / 36], n = ns[i / 6 % 6], k = ks[i % 6];
    struct int2_many_config config = int2_many_configure(m, n, k, SMS);
    struct int2_many_plan plan;
    assert_true(int2_many_plan_for(&config, m, n, k, SMS, &plan));
    assert_in_range(plan.blocks, 1, SMS);
    int64_t rows = 64 * INT2_MANY_GROUPS(config.columns), tiles = (int64_t)plan.w_tiles * plan.x_tiles;
    assert_in_range(plan.w_tiles * rows - n, 0, rows - 1);
    assert_in_range(plan.x_tiles * (int64_t)config.columns - m, 0, config.columns - 1);
    assert_in_range((int64_t)plan.tiles_k * 128 - k, 0, 127);
    assert_int_equal(plan.row_blocks, (n + 63) / 64);
    assert_int_equal(plan.shared_units + (int64_t)plan.waves * plan.blocks * plan.tiles_k, tiles * plan.tiles_k);
    assert_int_equal(plan.shared_each * plan.blocks + plan.shared_more, plan.shared_units);
    assert_true(plan.shared_units == 0 || plan.shared_units >= plan.blocks);
    assert_true(plan.shared_units < 2 * plan.blocks * plan.tiles_k);
    assert_in_range(config.split_k, 0, plan.tiles_k);
    if (config.split_k > 0)
      assert_int_equal(plan.blocks, tiles * config.split_k);
    assert_true((uint64_t)(plan.blocks * config.columns * rows * 4) <= int2_many_sums_bytes(SMS));
  }
  struct int2_many_plan plan;
  struct int2_many_config config = {.columns = 64, .split_k = 4, .group = 8};
  assert_false(int2_many_plan_for(&config, 64, 8192, 3 * 128, SMS, &plan)); /* a block without K */
  assert_false(int2_many_plan_for(&config, 128, 8192, 8192, SMS, &plan)); /* more blocks than the device has room for */
  config = (struct int2_many_config){.columns = 24, .group = 8};
  assert_false(int2_many_plan_for(&config, 64, 8192, 8192, SMS, &plan)); /* no such kernel */
  config.columns = 64;
  assert_false(int2_many_plan_for(&config, 16384, (int64_t)1 << 24, 32768, SMS, &plan)); /* too many units */
}

/* A warpgroup has slots for all blocks of rows that its share touches, and memory holds what the plan says. */
static void check_int2a8_plan(const struct int2a8_way *way) {
  const struct int2a8_plan *plan = &way->plan;
  int split = way->config.split_k, blocks = way->config.blocks, longest = 0;
  assert_true(plan->clusters * blocks >= plan->row_blocks);
  for (int rank = 0; rank < split; rank++) {
    int tiles = plan->tiles * (rank + 1) / split - plan->tiles * rank / split, total = blocks * tiles;
    assert_true(tiles > 0);
    longest = tiles > longest ? tiles : longest;
    for (int group = 0; group < INT2A8_GROUPS; group++) {
      int begin = total * group / INT2A8_GROUPS, end = total * (group + 1) / INT2A8_GROUPS;
      if (begin < end)
        assert_in_range((end - 1) / tiles - begin / tiles, 0, plan->slots - 1);
    }
  }
  assert_in_range(plan->stages, 2, INT2A8_STAGES_MOST);
  assert_true(plan->x_bytes >= 2 * longest * way->config.eights * INT2A8_GROUP_BYTES);
  int slots = INT2A8_GROUPS * plan->slots * 8 * way->config.eights * 68 * 4;
  assert_int_equal(plan->shared_bytes, plan->x_bytes + INT2A8_GROUPS * plan->stages * INT2A8_TILE_BYTES + slots);
  assert_true(plan->shared_bytes <= 223 * 1024);
}

static void test_int2a8_plans(void **state) {
  (void)state;
  static const int64_t ns[] = {1, 64, 65, 1000, 4096, 8192, 10240, 57344, 262144};
  static const int64_t ks[] = {1, 256, 257, 3584, 4096, 8192, 28672, INT2A8_K_MOST};
  for (size_t i = 0; i < sizeof ns / sizeof ns[0]; i++) {
    for (size_t j = 0; j < sizeof ks / sizeof ks[0]; j++) {
      struct int2a8_way ways[INT2A8_WAYS];
      assert_true(int2a8_ways_find(ns[i], ks[j], SMS, ways));
      for (int way = 0; way < INT2A8_WAYS; way++)
        check_int2a8_plan(&ways[way]);
      assert_ptr_equal(int2a8_way_for(ways, 8), &ways[0]);
      assert_ptr_equal(int2a8_way_for(ways, 9), &ways[1]);
      assert_ptr_equal(int2a8_way_for(ways, 4096), &ways[2]);
    }
  }
  struct int2a8_plan plan;
  struct int2a8_config config = {.eights = 1, .split_k = 4, .blocks = 1};
  assert_false(int2a8_plan_for(&config, 8192, 3 * 256, &plan)); /* a block without K */
  config = (struct int2a8_config){.eights = 1, .split_k = 3, .blocks = 1};
  assert_false(int2a8_plan_for(&config, 8192, 8192, &plan)); /* no power of two */
  config = (struct int2a8_config){.eights = 4, .split_k = 1, .blocks = 1};
  assert_false(int2a8_plan_for(&config, 8192, 8192, &plan)); /* x does not fit */
}

/* ---- staging */

static void test_staging_holds(void **state) {
  (void)state;
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

static void test_staging_goes(void **state) {
  (void)state;
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

/* ---- the Hopper kernel */

static void test_hopper_refuses(void **state) {
  (void)state;
  const struct hopper_config good = {.columns = 16, .groups = 1, .rows = 64, .split_k = 2, .ahead = 6};
  assert_true(hopper_config_valid(&good, GEMM_SCALE_ROW));
  struct hopper_config bad[] = {good, good, good, good, good, good, good};
  bad[0].columns = 24;
  bad[1].groups = 3;
  bad[2].rows = 60;
  bad[3].rows = 72;
  bad[4].split_k = 9;
  bad[5].ahead = 5;
  bad[6].rows = 0;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_false(hopper_config_valid(&bad[i], GEMM_SCALE_ROW));
  const struct hopper_config wide = {.columns = 128, .groups = 1, .rows = 64, .split_k = 1, .ahead = 3};
  assert_true(hopper_config_valid(&wide, GEMM_SCALE_ROW));
  assert_false(hopper_config_valid(&wide, GEMM_SCALE_BLOCK));
}

/* Whatever the product, there is a kernel for what is chosen, and it fits a multiprocessor. */
static void test_hopper_always_valid(void **state) {
  (void)state;
  static const int64_t ns[] = {1, 8, 66, 1280, 8192, 57344, 1 << 24}, ks[] = {16, 304, 1024, 8192, 131088};
  static const int64_t ms[] = {1, 7, 8, 9, 33, 64, 65, 128, 129, 5000};
  for (size_t i = 0; i < sizeof ns / sizeof *ns; i++)
    for (size_t j = 0; j < sizeof ks / sizeof *ks; j++)
      for (size_t l = 0; l < sizeof ms / sizeof *ms; l++)
        for (int scale = GEMM_SCALE_ONE; scale <= GEMM_SCALE_BLOCK; scale++) {
          struct hopper_product product = product_of(GEMM_FORMAT_FP8, (enum gemm_scale)scale, ms[l], ns[i], ks[j]);
          struct hopper_config config = hopper_configure(&product, SMS);
          assert_true(hopper_config_valid(&config, product.scale));
          assert_true(hopper_shared_bytes(&config, product.scale) <= 227 * 1024);
          assert_true(config.columns >= ms[l] || config.columns >= 64);
        }
}

/* What is looked at beside a good one: one thing changed by a step, all of it can run. */
static void test_hopper_neighbours(void **state) {
  (void)state;
  static const struct hopper_config bases[] = {{.columns = 8, .groups = 1, .rows = 48, .split_k = 2, .ahead = 6},
                                               {.columns = 32, .groups = 3, .rows = 192, .split_k = 1, .ahead = 3},
                                               {.columns = 16, .groups = 1, .rows = 64, .split_k = 8, .ahead = 3},
                                               {.columns = 128, .groups = 2, .rows = 128, .split_k = 2, .ahead = 2}};
  struct hopper_config near[HOPPER_NEAR];
  for (size_t b = 0; b < sizeof bases / sizeof *bases; b++) {
    const struct hopper_config *base = &bases[b];
    int count = hopper_near(base, GEMM_SCALE_ROW, near);
    assert_true(hopper_config_valid(base, GEMM_SCALE_ROW));
    assert_in_range(count, 2, HOPPER_NEAR);
    for (int i = 0; i < count; i++) {
      assert_true(hopper_config_valid(&near[i], GEMM_SCALE_ROW));
      assert_int_equal(near[i].columns, base->columns);
      assert_int_equal(
          (near[i].rows != base->rows) + (near[i].split_k != base->split_k) + (near[i].ahead != base->ahead), 1);
      assert_true(near[i].groups == base->groups || near[i].rows > 64 * base->groups);
    }
  }
  assert_int_equal(hopper_near(&bases[0], GEMM_SCALE_ROW, near), HOPPER_NEAR);
  assert_int_equal(near[0].ahead, 2);
  assert_int_equal(near[3].split_k, 3);
  assert_int_equal(near[4].split_k, 1);
  assert_int_equal(near[5].rows, 32);
  assert_int_equal(near[8].rows, 64);
}

/* Some of every way to share K, none twice, all of which can run. */
static void test_hopper_candidates(void **state) {
  (void)state;
  static const int64_t ms[] = {1, 16, 64, 200};
  struct hopper_config list[HOPPER_CANDIDATES + 1];
  for (size_t m = 0; m < sizeof ms / sizeof *ms; m++) {
    struct hopper_product product = product_of(GEMM_FORMAT_INT8, GEMM_SCALE_ROW, ms[m], 2560, 2560);
    int count = hopper_candidates(&product, SMS, false, list, HOPPER_CANDIDATES + 1), split[9] = {0};
    assert_in_range(count, 30, HOPPER_CANDIDATES);
    for (int i = 0; i < count; i++) {
      assert_true(hopper_config_valid(&list[i], GEMM_SCALE_ROW));
      split[list[i].split_k]++;
      for (int j = 0; j < i; j++)
        assert_memory_not_equal(&list[i], &list[j], sizeof *list);
    }
    for (int each = 1; each <= 8; each += each < 4 ? 1 : 2)
      assert_true(split[each] >= 4);
    assert_int_equal(hopper_candidates(&product, SMS, false, list, 5), 5);
    assert_int_equal(hopper_candidates(&product, SMS, true, list, 7), 7);
  }
}

/* The sums of other blocks come behind whatever else a block has in shared memory, each where no other does. */
static void test_hopper_shared_memory(void **state) {
  (void)state;
  static const int columns[] = {8, 16, 32, 64, 128}, aheads[] = {2, 3, 4, 6};
  for (int c = 0; c < 5; c++)
    for (int rows = 8; rows <= 192; rows += 8)
      for (int split_k = 1; split_k <= 8; split_k++)
        for (int a = 0; a < 4; a++) {
          const struct hopper_config config = {
              .columns = columns[c], .groups = (rows + 63) / 64, .rows = rows, .split_k = split_k, .ahead = aheads[a]};
          int offset = hopper_sums_offset(&config, GEMM_SCALE_ROW), places = hopper_places(&config);
          assert_true(offset >= (aheads[a] + 1) * 256 * (rows + columns[c]));
          assert_true(offset >= config.groups * 4 * 64 * columns[c]); /* a warpgroup's own sums */
          assert_true(places * split_k >= columns[c] / 8);
          int sums = (split_k - 1) * places * ((rows + 15) / 16) * 512;
          assert_true(hopper_shared_bytes(&config, GEMM_SCALE_ROW) >= 1024 + offset + sums);
        }
}

/* One block or more a multiprocessor; a weight that would leave most of them idle is cut along K. */
static void test_hopper_fills_the_device(void **state) {
  (void)state;
  static const int64_t ns[] = {8192, 1280};
  for (int i = 0; i < 2; i++) {
    struct hopper_product product = product_of(GEMM_FORMAT_FP8, GEMM_SCALE_ROW, 1, ns[i], 8192);
    struct hopper_config config = hopper_configure(&product, SMS);
    int64_t blocks = (product.n + config.rows - 1) / config.rows * config.split_k;
    assert_in_range(blocks, SMS / 2, 3 * SMS);
    assert_true(config.split_k > 1 || ns[i] > 1280);
  }
}

/* ---- the kernel for few rows */

static void test_few_takes(void **state) {
  (void)state;
  struct hopper_product int8 = product_of(GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 16, 8192, 8192);
  struct hopper_product fp8 = product_of(GEMM_FORMAT_FP8, GEMM_SCALE_ONE, 1, 3, 16);
  struct hopper_product block = product_of(GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK, 1, 128, 128);
  struct hopper_product rows = product_of(GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 17, 128, 128);
  struct hopper_product wide = product_of(GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 16, 128, 16384);
  assert_true(few_takes(&int8, 90));
  assert_false(few_takes(&int8, 80)); /* 16 rows of 8192 do not fit there */
  int8.m = 8;
  assert_true(few_takes(&int8, 80));
  assert_false(few_takes(&int8, 75));
  assert_true(few_takes(&fp8, 90));
  assert_false(few_takes(&fp8, 89));
  assert_false(few_takes(&block, 90));
  assert_false(few_takes(&rows, 90));
  assert_false(few_takes(&wide, 90));
}

/* Whatever is chosen can run, covers W, and leaves few multiprocessors without a tile. */
static void test_few_chooses(void **state) {
  (void)state;
  static const int64_t ns[] = {1, 7, 130, 1280, 8192, 57344, 1 << 24}, ks[] = {16, 304, 1024, 3584, 8192, 10000};
  struct few_config listed[400];
  for (size_t i = 0; i < sizeof ns / sizeof *ns; i++)
    for (size_t j = 0; j < sizeof ks / sizeof *ks; j++) {
      struct hopper_product product = product_of(GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 9, ns[i], ks[j]);
      struct few_config config = few_configure(&product, SMS);
      assert_true(few_config_valid(&config));
      int count = few_candidates(&product, SMS, listed, 400);
      assert_int_equal(count, 8 + 16 + 32 + 64 + 128);
      assert_memory_equal(&listed[0], &config, sizeof config);
      for (int l = 0; l < count; l++)
        assert_true(few_config_valid(&listed[l]));
      if (ns[i] >= 1280)
        assert_true((ns[i] + config.rows - 1) / config.rows >= SMS / 2);
    }
  const struct few_config bad[] = {{3, 16}, {16, 18}, {8, 34}, {1, 258}, {4, 15}, {4, 0}, {32, 8}, {0, 16}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_false(few_config_valid(&bad[i]));
}

/* Neighbouring rows of x begin in other banks, and there is a unit of zeros behind each. */
static void test_few_shared(void **state) {
  (void)state;
  for (int64_t k = 16; k < 20000; k += 16) {
    int stride = few_x_stride(k);
    assert_int_equal(stride % 128, 64);
    assert_true(stride >= (k + 63) / 64 * 64 + 64);
    assert_true(few_shared_bytes(9, k) >= 9 * (int64_t)stride + 2 * 16 * 16 * 20 * 4);
  }
}

/* ---- the kernel for many rows */

static void test_many_chooses(void **state) {
  (void)state;
  double busy;
  struct hopper_product product = product_of(GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 1024, 8192, 8192);
  product.y_type = GEMM_BF16;
  assert_true(many_takes(&product));
  assert_int_equal(many_configure(&product, SMS, &busy).columns, 256); /* 256 tiles in two rounds */
  assert_true(busy > 0.96 && busy <= 1);
  product.m = 256; /* 64 wide tiles, or 128 */
  assert_int_equal(many_configure(&product, SMS, &busy).columns, 128);
  assert_true(busy > 0.96 && busy <= 1);
  product.n = 130;
  product.m = 129;
  assert_true(many_config_valid(&(struct many_config){.columns = 128, .group = 1}));
  (void)many_configure(&product, SMS, &busy);
  assert_true(busy < 0.02);
  product.y_type = GEMM_S32;
  assert_false(many_takes(&product));
  product.y_type = GEMM_F32;
  product.m = 128;
  assert_false(many_takes(&product));
  product.m = 129;
  assert_true(many_takes(&product));
  product.format = GEMM_FORMAT_FP8;
  assert_false(many_takes(&product));
  const struct many_config bad[] = {{64, 16}, {192, 16}, {256, 0}, {256, 65}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_false(many_config_valid(&bad[i]));
  assert_true(many_shared_bytes(128) <= 227 * 1024 && many_shared_bytes(256) <= 227 * 1024);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_roofs),
      cmocka_unit_test(test_layout_pads),
      cmocka_unit_test(test_layout_fills),
      cmocka_unit_test(test_layout_tiles),
      cmocka_unit_test(test_layout_chosen),
      cmocka_unit_test(test_int2_plans),
      cmocka_unit_test(test_int2_many_plans),
      cmocka_unit_test(test_int2a8_plans),
      cmocka_unit_test(test_staging_holds),
      cmocka_unit_test(test_staging_goes),
      cmocka_unit_test(test_hopper_refuses),
      cmocka_unit_test(test_hopper_always_valid),
      cmocka_unit_test(test_hopper_neighbours),
      cmocka_unit_test(test_hopper_shared_memory),
      cmocka_unit_test(test_hopper_candidates),
      cmocka_unit_test(test_hopper_fills_the_device),
      cmocka_unit_test(test_few_takes),
      cmocka_unit_test(test_few_chooses),
      cmocka_unit_test(test_few_shared),
      cmocka_unit_test(test_many_chooses),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
