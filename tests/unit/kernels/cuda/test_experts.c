/* What the cuda backend decides about products over experts before anything is launched: how weights with experts lie,
 * what a routing takes, which kernels there are. */
#include "kernels/cuda/experts/route.h"
#include "kernels/cuda/families/sm90/grouped/config.h"
#include "kernels/cuda/families/sm90/grouped_int2/config.h"
#include "kernels/cuda/families/sm90/grouped_int2_many/config.h"
#include "kernels/cuda/families/sm90/grouped_int4/config.h"
#include "kernels/cuda/families/sm90/grouped_many/config.h"
#include "kernels/cuda/weight/layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SHARED_MOST = 227 * 1024 };

/* Two experts of a scale each: every row has its expert's, whatever piece is filled. */
static void test_scales_of_experts(void **state) {
  struct error error;
  struct layout layout;
  struct gemm_weight weight = {.n = 5, .k = 19, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ONE, .experts = 3};
  assert_int_equal(layout_compute(&weight, LAYOUT_ROWS, &layout, &error), STATUS_OK);
  assert_int_equal(layout.n, 16);
  uint8_t *canonical = calloc(1, layout.canonical.total_bytes), *back = calloc(1, layout.canonical.total_bytes);
  uint8_t *whole = malloc(layout.total_bytes), *pieces = malloc(layout.total_bytes);
  assert_non_null(canonical);
  assert_non_null(back);
  assert_non_null(whole);
  assert_non_null(pieces);
  for (int64_t n = 0; n < 15; n++)
    for (int64_t k = 0; k < weight.k; k++)
      canonical[(uint64_t)n * layout.canonical.row_bytes + (uint64_t)k] = (uint8_t)(1 + n * weight.k + k);
  const float scales[] = {0.25f, 3, 17};
  memcpy(canonical + layout.canonical.scales_offset, scales, sizeof scales);
  layout_fill(&weight, &layout, canonical, 0, whole, layout.total_bytes);
  for (int64_t n = 0; n < layout.n; n++) {
    float stored;
    memcpy(&stored, whole + layout.scales_offset + 4 * n, sizeof stored);
    assert_true(stored == (n < 15 ? scales[n / weight.n] : 0.0f));
    for (int64_t k = 0; k < layout.k; k++)
      assert_int_equal(whole[(uint64_t)n * layout.row_bytes + (uint64_t)k],
                       n < 15 && k < weight.k ? (uint8_t)(1 + n * weight.k + k) : 0);
  }
  for (uint64_t at = 0; at < layout.total_bytes; at += 37)
    layout_fill(&weight, &layout, canonical, at, pieces + at,
                layout.total_bytes - at < 37 ? layout.total_bytes - at : 37);
  assert_memory_equal(pieces, whole, layout.total_bytes);
  layout_read(&weight, &layout, whole, back);
  assert_memory_equal(back, canonical, layout.canonical.total_bytes);
  free(canonical);
  free(back);
  free(whole);
  free(pieces);
}

/* Blocks of 128 rows begin anew with each expert. */
static void test_blocks_of_experts(void **state) {
  struct error error;
  struct layout layout;
  struct gemm_weight weight = {.n = 130, .k = 300, .format = GEMM_FORMAT_FP8, .scale = GEMM_SCALE_BLOCK, .experts = 2};
  assert_int_equal(layout_compute(&weight, LAYOUT_ROWS, &layout, &error), STATUS_OK);
  assert_int_equal(layout.n, 272);
  assert_int_equal(layout.k, 384);
  assert_int_equal(layout.scales_bytes, 4 * layout.scale_row_bytes);
}

/* Tiles of 2-bit codes are of one expert each, or there are none. */
static void test_tiles_of_experts(void **state) {
  struct gemm_weight weight = {.n = 192, .k = 512, .format = GEMM_FORMAT_INT2, .scale = GEMM_SCALE_GROUP, .experts = 4};
  assert_int_equal(layout_choose(&weight, 90, true), LAYOUT_TILES2);
  assert_int_equal(layout_choose(&weight, 90, false), LAYOUT_CODES2);
  assert_int_equal(layout_choose(&weight, 80, true), LAYOUT_CODES2);
  weight.n = 200;
  assert_int_equal(layout_choose(&weight, 90, true), LAYOUT_CODES2);
  weight.n = 192;
  weight.k = 1 << 20;
  assert_int_equal(layout_choose(&weight, 90, true), LAYOUT_CODES2);
  weight.k = 512;
  weight.format = GEMM_FORMAT_INT2A8;
  assert_int_equal(layout_choose(&weight, 90, false), LAYOUT_TILES2A8);
  assert_int_equal(layout_choose(&weight, 80, true), LAYOUT_CODES2);
  struct layout layout;
  struct error error;
  assert_int_equal(layout_compute(&weight, LAYOUT_TILES2A8, &layout, &error), STATUS_OK);
  assert_int_equal(layout.n, weight.n * weight.experts);
  weight.n = 200;
  assert_int_equal(layout_choose(&weight, 90, false), LAYOUT_CODES2);
}

/* The worst that ids can do fits. */
static void test_routes_hold_all_tiles(void **state) {
  for (int experts = 1; experts <= EXPERTS_MOST; experts = experts * 3 + 1)
    for (int64_t pairs = 1; pairs < 5000; pairs = pairs * 2 + 3)
      for (int rows = 1; rows <= EXPERTS_TILE_ANY; rows *= 2) {
        /* as many experts as there can be with one row beyond whole tiles */
        int64_t left = pairs, tiles = 0;
        for (int e = 0; e < experts && left > 0; e++) {
          int64_t mine = e + 1 == experts ? left : 1;
          tiles += (mine + rows - 1) / rows;
          left -= mine;
        }
        assert_true(experts_tiles_most(pairs, experts, rows) >= tiles);
        struct experts_route route = experts_route_at((void *)(uintptr_t)4096, pairs, experts, rows);
        uint64_t end = (uintptr_t)(route.tiles + experts_tiles_most(pairs, experts, rows)) - 4096;
        assert_true(experts_route_bytes(pairs, experts, rows) >= end);
        assert_true(route.pair >= route.place + pairs);
        assert_true((void *)route.tiles >= (void *)(route.pair + pairs));
      }
}

static struct kernel_problem problem_of(enum gemm_format format, int64_t m) {
  return (struct kernel_problem){.device = {.capability = 90, .multiprocessors = 132},
                                 .format = format,
                                 .scale = GEMM_SCALE_ROW,
                                 .tiled = format == GEMM_FORMAT_INT2,
                                 .n = 3072,
                                 .k = 4096,
                                 .experts = 128,
                                 .top = 8,
                                 .m = m,
                                 .x_type = GEMM_BF16,
                                 .y_type = GEMM_BF16};
}

static void test_grouped_has_a_kernel_for_all_rows(void **state) {
  for (int64_t m = 1; m <= 1 << 20; m *= 2)
    for (int block = 0; block < 2; block++) {
      struct kernel_problem problem = problem_of(GEMM_FORMAT_FP8, m);
      problem.scale = block ? GEMM_SCALE_BLOCK : GEMM_SCALE_ROW;
      assert_true(grouped_takes(&problem));
      struct grouped_config config = grouped_configure(&problem);
      assert_true(grouped_config_valid(&config, problem.scale));
      assert_true(grouped_shared_bytes(&config) <= SHARED_MOST);
      assert_true(grouped_us(&problem) > 0);
    }
  struct kernel_problem problem = problem_of(GEMM_FORMAT_FP8, 8);
  problem.n = 64; /* sums of few columns may cancel */
  assert_false(grouped_takes(&problem));
  problem = problem_of(GEMM_FORMAT_INT8, 8);
  problem.device.capability = 89;
  assert_false(grouped_takes(&problem));
  problem = problem_of(GEMM_FORMAT_INT8, 8);
  problem.experts = 0;
  assert_false(grouped_takes(&problem));
}

/* It is held for faster where experts have many rows, and there alone. */
static void test_grouped_many_is_for_many_rows(void **state) {
  for (int kind = 0; kind < 2; kind++) {
    struct kernel_problem problem = problem_of(kind ? GEMM_FORMAT_FP8 : GEMM_FORMAT_INT8, 8);
    for (problem.m = 8; problem.m <= 1 << 16; problem.m *= 2) {
      assert_true(grouped_many_takes(&problem));
      assert_in_range(grouped_many_columns(&problem), GROUPED_MANY_COLUMNS_LEAST, GROUPED_MANY_COLUMNS);
      assert_in_range(grouped_many_columns(&problem), GROUPED_MANY_COLUMNS_LEAST, EXPERTS_TILE_ANY);
      assert_int_equal(grouped_many_us(&problem) < grouped_us(&problem), problem.m >= 128 * problem.experts);
    }
    problem.y_type = GEMM_F32;
    assert_false(grouped_many_takes(&problem));
    problem.y_type = GEMM_F16; /* whose FP8 sums leave the tensor cores sooner */
    assert_int_equal(grouped_many_takes(&problem), kind == 0);
  }
  struct kernel_problem problem = problem_of(GEMM_FORMAT_FP8, 4096);
  problem.scale = GEMM_SCALE_BLOCK;
  assert_false(grouped_many_takes(&problem));
}

static void test_grouped_int2_has_room(void **state) {
  for (int64_t k = 128; k <= 16384; k += 128)
    for (int splits = 0; splits < 2; splits++) {
      struct grouped_int2_plan plan;
      int rows = grouped_int2_rows(splits, k);
      assert_true(rows >= 1);
      assert_true(grouped_int2_plan_for(rows, splits, k, &plan));
      assert_true(plan.shared_bytes <= SHARED_MOST);
      assert_true(plan.stages >= GROUPED_INT2_STAGES_LEAST);
      assert_true(plan.columns <= GROUPED_INT2_COLUMNS);
      assert_true(plan.multipliers >= plan.groups);
    }
  struct kernel_problem problem = problem_of(GEMM_FORMAT_INT2, 4096);
  problem.x_type = problem.y_type = GEMM_BF16;
  problem.experts = 128;
  for (int64_t pairs = 1; pairs <= 1024; pairs *= 2) {
    problem.m = pairs;
    assert_int_equal(grouped_int2_rows_for(&problem), pairs <= 128 ? 4 : 8);
  }
  assert_false(grouped_int2_fits(3072, 1 << 20));
  assert_false(grouped_int2_fits(3100, 4096));
}

static void test_grouped_int2_many_takes_what_lies_in_tiles(void **state) {
  static const enum gemm_type types[] = {GEMM_F16, GEMM_BF16, GEMM_F32};
  for (int kind = 0; kind < 2; kind++) {
    struct kernel_problem problem = problem_of(kind ? GEMM_FORMAT_INT2A8 : GEMM_FORMAT_INT2, 4096);
    problem.scale = GEMM_SCALE_GROUP;
    problem.tiled = false;
    assert_false(grouped_int2_many_takes(&problem));
    problem.tiled = true;
    for (int i = 0; i < 9; i++) {
      problem.x_type = types[i / 3], problem.y_type = types[i % 3];
      assert_int_equal(grouped_int2_many_takes(&problem), kind == 1 || (i / 3 < 2 && i % 3 < 2));
      enum gemm_type x_type = kernel_problem_x_type(&problem);
      for (int rows = 1; rows <= 96; rows++)
        assert_in_range(grouped_int2_many_columns_for(x_type, rows), rows, GROUPED_INT2_MANY_COLUMNS_MOST);
    }
  }
}

static void test_grouped_int4_has_room(void **state) {
  const struct int4_form forms[] = {int4_form_of(GEMM_FORMAT_MXFP4, GEMM_SCALE_GROUP32),
                                    int4_form_of(GEMM_FORMAT_INT4, GEMM_SCALE_GROUP32_ZEROS)};
  for (int64_t k = 128; k <= 16384; k += 128)
    for (int i = 0; i < 4; i++) {
      bool splits = i % 2 == 1;
      int most = grouped_int4_rows(&forms[i / 2], splits, k);
      assert_true(most >= 1);
      for (int rows = 1; rows <= most; rows++) {
        struct grouped_int4_plan plan;
        assert_true(grouped_int4_plan_for(&forms[i / 2], rows, splits, k, &plan));
        assert_int_equal(plan.columns, splits ? 2 * rows : rows);
        assert_true(plan.columns <= GROUPED_INT4_COLUMNS);
        assert_int_equal(plan.warps, plan.columns <= GROUPED_INT4_NARROW ? 16 : 8);
        assert_in_range(plan.stages, GROUPED_INT4_STAGES_LEAST, GROUPED_INT4_STAGES_MOST);
        assert_true(plan.x_pitch >= 2 * k && plan.x_pitch % 128 == GROUPED_INT4_X_PAD);
        assert_true(plan.shared_bytes < SHARED_MOST);
      }
    }
  assert_true(grouped_int4_fits(2880, 2880));
  assert_false(grouped_int4_fits(2880, 1 << 20));
  assert_false(grouped_int4_fits(2890, 2880));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_scales_of_experts),
      cmocka_unit_test(test_blocks_of_experts),
      cmocka_unit_test(test_tiles_of_experts),
      cmocka_unit_test(test_routes_hold_all_tiles),
      cmocka_unit_test(test_grouped_has_a_kernel_for_all_rows),
      cmocka_unit_test(test_grouped_many_is_for_many_rows),
      cmocka_unit_test(test_grouped_int2_has_room),
      cmocka_unit_test(test_grouped_int2_many_takes_what_lies_in_tiles),
      cmocka_unit_test(test_grouped_int4_has_room),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
