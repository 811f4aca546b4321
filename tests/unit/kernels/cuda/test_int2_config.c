/* How products of INT2 and INT2A8 weights are cut up into blocks. */
#include "kernels/cuda/families/sm80/packed/config.h"
#include "kernels/cuda/families/sm80/rows/config.h"
#include "kernels/cuda/families/sm90/int2/a8_layout.h"
#include "kernels/cuda/families/sm90/int2_few/config.h"
#include "kernels/cuda/families/sm90/int2_many/config.h"
#include "kernels/cuda/families/sm90/int2a8/config.h"
#include "kernels/cuda/families/sm90/int4_few/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SMS = 132 };

/* Every tile of every block of rows is some group's, once, and its sums are in the lists of the blocks of rows, once.
 */
static void check_cut(const struct int2_cut *cut, uint32_t groups) {
  uint32_t split = 1u << cut->split_log2, parts = 0, listed = 0;
  static char taken[INT2_CUT_PARTS_MOST];
  assert_true(cut->clusters * cut->halves >= 2 * cut->row_blocks);
  assert_true(cut->parts * cut->blocks * split <= INT2_CUT_PARTS_MOST);
  for (uint32_t i = 0; i < cut->parts * cut->blocks * split; i++) {
    struct int2_part part = int2_cut_part(cut, groups, i);
    assert_int_equal(part.block, i / (cut->parts * split));
    assert_int_equal(part.rank, i / cut->parts % split);
    listed += !part.none;
  }
  for (uint32_t rank = 0; rank < split; rank++) {
    uint32_t first = cut->tiles * rank / split, tiles = cut->tiles * (rank + 1) / split - first, next = 0;
    assert_in_range(cut->slots, 1, sizeof taken);
    memset(taken, 0, sizeof taken);
    assert_true(tiles > 0);
    for (uint32_t group = 0; group < groups; group++) {
      struct int2_share share = int2_cut_share(cut, groups, rank, group);
      assert_int_equal(share.first_tile, first);
      assert_int_equal(share.tiles, tiles);
      assert_int_equal(share.begin, next);
      assert_int_equal(share.first_block, share.begin / tiles);
      next = share.end;
      for (uint32_t tile = share.begin; tile < share.end; tile++) {
        uint32_t block = tile / tiles, slot = int2_cut_slot(cut, &share, group, block), found = 0,
                 from = block * cut->parts * split;
        if (tile > share.begin && block == (tile - 1) / tiles)
          continue;
        assert_in_range(slot, 0, cut->slots - 1);
        assert_int_equal(taken[slot], 0);
        taken[slot] = 1;
        for (uint32_t i = from; i < from + cut->parts * split; i++) {
          struct int2_part part = int2_cut_part(cut, groups, i);
          found += !part.none && part.rank == rank && part.slot == slot;
        }
        assert_int_equal(found, 1);
        parts++;
      }
    }
    assert_int_equal(2 * next, cut->halves * tiles);
  }
  assert_int_equal(parts, listed);
}

/* Every half block of rows is one cluster's, once. */
static void check_halves(const struct int2_cut *cut) {
  char found[2 * INT2_CUT_BLOCKS_MOST * 128] = {0};
  for (uint32_t cluster = 0; cluster < cut->clusters; cluster++)
    for (uint32_t block = 0; block < cut->blocks; block++) {
      uint32_t half = int2_cut_half(cut, cluster, block);
      assert_in_range(half, cluster * cut->halves, (cluster + 1) * cut->halves - 1);
      found[half]++;
      if (int2_cut_halved(cut, block))
        continue;
      assert_int_equal(half % 2, 0);
      found[half + 1]++;
    }
  for (uint32_t half = 0; half < 2 * cut->row_blocks; half++)
    assert_int_equal(found[half], 1);
}

/* However much there is of both, and where a rank has fewer tiles than groups. */
static void test_int2_cuts(void **state) {
  static const int tiles[] = {1, 2, 3, 5, 8, 28, 31, 64, 112, 224, INT2_CUT_TILES_MOST};
  struct int2_cut cut;
  for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++)
    for (int split = 1; split <= INT2_CUT_SPLIT_MOST && split <= tiles[i]; split *= 2)
      for (int halves = 1; halves <= 2 * INT2_CUT_BLOCKS_MOST; halves++)
        for (int groups = INT2A8_GROUPS; groups <= INT2_FEW_WARPS; groups *= 2) {
          bool odd_tiles = halves % 2 != 0 && tiles[i] % (2 * split) != 0;
          assert_int_equal(int2_cut_make(100, tiles[i], split, halves, groups, &cut), !odd_tiles);
          if (odd_tiles)
            continue;
          check_cut(&cut, (uint32_t)groups);
          check_halves(&cut);
        }
  assert_false(int2_cut_make(100, 8, 3, 2, 8, &cut));  /* no power of two */
  assert_false(int2_cut_make(100, 3, 4, 2, 8, &cut));  /* a rank without K */
  assert_false(int2_cut_make(100, 8, 1, 65, 8, &cut)); /* more blocks of rows than there is room for */
  assert_false(int2_cut_make(100, 257, 1, 2, 8, &cut));
}

/* Memory holds what the plan says. */
static void check_plan(const struct int2_few_way *way) {
  const struct int2_few_plan *plan = &way->plan;
  int longest = ((int)plan->cut.tiles + way->config.split_k - 1) / way->config.split_k, columns = way->config.columns;
  check_cut(&plan->cut, INT2_FEW_WARPS);
  assert_int_equal(plan->columns, columns);
  assert_true(plan->x_bytes >= longest * (columns * (INT2_FEW_X_BYTES + 4)));
  assert_int_equal(plan->x_bytes % INT2_FEW_ALIGN, 0);
  assert_int_equal(plan->ring_bytes % INT2_FEW_STAGE_BYTES, 0);
  assert_in_range(plan->ring_bytes / INT2_FEW_STAGE_BYTES, INT2_FEW_STAGES_LEAST, INT2_FEW_STAGES_MOST);
  int slots = (int)plan->cut.slots * columns * 68 * 4;
  assert_int_equal(plan->shared_bytes, plan->x_bytes + plan->ring_bytes + slots);
  assert_true(plan->shared_bytes <= 225 * 1024);
}

static void test_int2_plans(void **state) {
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
  struct int2_few_config config = {.columns = 8, .split_k = 4, .rows = 64};
  assert_false(int2_few_plan_for(&config, 8192, 3 * 128, &plan)); /* a block without K */
  config = (struct int2_few_config){.columns = 8, .split_k = 1, .rows = 64};
  assert_false(int2_few_plan_for(&config, 8192, 8192, &plan)); /* x does not fit */
  config.columns = 4;
  assert_true(int2_few_plan_for(&config, 8192, 8192, &plan)); /* fewer rows of it do */
  config.columns = 1;
  assert_true(int2_few_plan_for(&config, 8192, 28672, &plan));
  config.rows = 96;
  assert_true(int2_few_plan_for(&config, 8192, 8192, &plan));
  assert_false(int2_few_plan_for(&config, 8192, 8192 - 128, &plan)); /* an odd tile of a half block */
  config.rows = 80;
  assert_false(int2_few_plan_for(&config, 8192, 8192, &plan));
}

/* f32 x, and any where y is f32, has two columns a row. */
static void test_int2_few_columns(void **state) {
  static const struct {
    enum gemm_type x_type, y_type;
    int64_t m, most;
    int columns;
  } rows[] = {
      {GEMM_F16, GEMM_F16, 1, 8, 1},  {GEMM_F16, GEMM_BF16, 3, 8, 4}, {GEMM_BF16, GEMM_F16, 9, 8, 8},
      {GEMM_F16, GEMM_F16, 5, 8, 6},  {GEMM_F16, GEMM_F16, 6, 8, 6},  {GEMM_F16, GEMM_F16, 7, 8, 8},
      {GEMM_F32, GEMM_F16, 1, 4, 2},  {GEMM_F32, GEMM_F32, 3, 4, 6},  {GEMM_F32, GEMM_BF16, 1000, 4, 8},
      {GEMM_F16, GEMM_F32, 1, 4, 2},  {GEMM_BF16, GEMM_F32, 2, 4, 4}, {GEMM_F16, GEMM_F32, 4, 4, 8},
      {GEMM_BF16, GEMM_F32, 5, 4, 8},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    assert_int_equal(int2_few_columns(rows[i].x_type, rows[i].y_type, rows[i].m), rows[i].columns);
    assert_int_equal(int2_few_rows_most(rows[i].x_type, rows[i].y_type), rows[i].most);
    assert_int_equal(int2_few_splits(rows[i].x_type, rows[i].y_type), rows[i].most == 4);
  }
}

static void test_int2_many_least(void **state) {
  assert_int_equal(int2_many_least(GEMM_F16, GEMM_F16), 9);
  assert_int_equal(int2_many_least(GEMM_BF16, GEMM_BF16), 9);
  assert_int_equal(int2_many_least(GEMM_F16, GEMM_F32), 5);
  assert_int_equal(int2_many_least(GEMM_BF16, GEMM_F32), 5);
  assert_int_equal(int2_many_least(GEMM_INT8, GEMM_F32), 17);
  assert_int_equal(int2_many_least(GEMM_F32, GEMM_F16), INT64_MAX);
}

/* Blocks fit the device, tiles cover the product, and what blocks leave for each other fits its memory. */
static void test_int2_many_plans(void **state) {
  static const int64_t ms[] = {1, 17, 33, 64, 65, 129, 1000, 16384}, ns[] = {128, 129, 8192, 10240, 57344, 262144};
  static const int64_t ks[] = {1, 129, 3584, 8192, 28672, 32768};
  static const enum gemm_type x_types[] = {GEMM_F16, GEMM_BF16, GEMM_INT8};
  for (size_t i = 0; i < 3 * 8 * 6 * 6; i++) {
    int64_t m = ms[i / 36 % 8], n = ns[i / 6 % 6], k = ks[i % 6];
    enum gemm_type x_type = x_types[i / 36 / 8];
    struct int2_many_config config = int2_many_configure(x_type, m, n, k, SMS);
    struct int2_many_plan plan;
    assert_true(int2_many_plan_for(&config, x_type, m, n, k, SMS, &plan));
    assert_in_range(plan.blocks, 1, SMS);
    int64_t rows = config.rows, tiles = (int64_t)plan.w_tiles * plan.x_tiles;
    assert_true(int2_many_has(x_type, config.columns, config.rows));
    assert_in_range(plan.w_tiles * rows - n, 0, rows - 1);
    assert_in_range(plan.x_tiles * (int64_t)config.columns - m, 0, config.columns - 1);
    int64_t unit = x_type == GEMM_INT8 ? 256 : 128;
    assert_in_range(plan.tiles_k * unit - k, 0, unit - 1);
    assert_int_equal(plan.row_blocks, (n + 63) / 64);
    int64_t units = plan.shared_units + (int64_t)plan.waves * plan.blocks * plan.tiles_k;
    assert_int_equal(plan.units, tiles * plan.tiles_k);
    assert_in_range(units - plan.units, 0, config.split_k == 1 ? (plan.blocks - 1) * plan.tiles_k : 0);
    assert_int_equal(plan.shared_each * plan.blocks + plan.shared_more, plan.shared_units);
    assert_true(plan.shared_units == 0 || plan.shared_units >= plan.blocks);
    assert_true(plan.shared_units < 2 * plan.blocks * plan.tiles_k);
    assert_in_range(config.split_k, 0, plan.tiles_k);
    if (config.split_k > 1)
      assert_int_equal(plan.blocks, tiles * config.split_k);
    if (config.split_k == 1)
      assert_int_equal(plan.blocks, tiles < SMS ? tiles : SMS);
    assert_true((uint64_t)(plan.blocks * config.columns * rows * 4) <= int2_many_sums_bytes(SMS));
  }
  struct int2_many_plan plan;
  struct int2_many_config config = {.columns = 64, .split_k = 4, .group = 8, .rows = 256};
  assert_false(int2_many_plan_for(&config, GEMM_F16, 64, 8192, 3 * 128, SMS, &plan)); /* a block without K */
  assert_false(int2_many_plan_for(&config, GEMM_INT8, 64, 8192, 3 * 256, SMS, &plan));
  assert_false(int2_many_plan_for(&config, GEMM_F16, 128, 8192, 8192, SMS,
                                  &plan)); /* more blocks than the device has room for */
  config = (struct int2_many_config){.columns = 40, .group = 8, .rows = 256};
  assert_false(int2_many_plan_for(&config, GEMM_F16, 64, 8192, 8192, SMS, &plan)); /* no such kernel */
  config.columns = 16;
  assert_true(int2_many_plan_for(&config, GEMM_BF16, 64, 8192, 8192, SMS, &plan));
  assert_false(int2_many_plan_for(&config, GEMM_INT8, 64, 8192, 8192, SMS, &plan));
  config.columns = 64, config.rows = 128;
  assert_false(int2_many_plan_for(&config, GEMM_F16, 64, 8192, 8192, SMS, &plan)); /* no such kernel either */
  config.rows = 256;
  assert_false(int2_many_plan_for(&config, GEMM_F16, 16384, (int64_t)1 << 24, 32768, SMS, &plan)); /* too many units */
}

/* Memory holds what the plan says. */
static void check_int2a8_plan(const struct int2a8_way *way) {
  const struct int2a8_plan *plan = &way->plan;
  int longest = ((int)plan->cut.tiles + way->config.split_k - 1) / way->config.split_k;
  check_cut(&plan->cut, INT2A8_GROUPS);
  assert_in_range(plan->stages, 2, INT2A8_STAGES_MOST);
  assert_true(plan->x_bytes >= 2 * longest * way->config.eights * INT2A8_GROUP_BYTES);
  int slots = (int)plan->cut.slots * 8 * way->config.eights * 68 * 4;
  assert_int_equal(plan->shared_bytes, plan->x_bytes + INT2A8_GROUPS * plan->stages * INT2A8_TILE_BYTES + slots);
  assert_true(plan->shared_bytes <= 223 * 1024);
}

static void test_int2a8_plans(void **state) {
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

/* ---- INT4 */

/* Memory holds what the plan says, and a block has a multiprocessor by itself. */
static void check_int4_few(const struct int4_few_way *way, const struct int4_form *form) {
  const struct int4_few_plan *plan = &way->plan;
  int split = way->config.split_k, longest = ((int)plan->stages + split - 1) / split, columns = way->config.columns;
  int sums = 2 * INT4_FEW_TOGETHER * columns * INT4_FEW_PITCH * 4;
  if (split > 1)
    sums += ((int)plan->rows + INT4_FEW_ROWS - 1) / INT4_FEW_ROWS * columns * INT4_FEW_ROWS * 4;
  assert_int_equal(plan->stages, (plan->tiles + INT4_FEW_TOGETHER - 1) / INT4_FEW_TOGETHER);
  assert_true(split == 1 << plan->split_log2 && split <= (int)plan->stages);
  assert_int_equal(plan->clusters, (plan->row_blocks * INT4_FEW_ROWS + plan->rows - 1) / plan->rows);
  if (plan->rows % INT4_FEW_ROWS != 0)
    assert_true((int)plan->clusters * split <= INT4_FEW_SHARING_MOST && plan->rows > INT4_FEW_ROWS);
  assert_true(plan->x_bytes >= columns * (longest * INT4_FEW_TOGETHER * 256 + INT4_FEW_X_PAD));
  assert_int_equal(plan->ring_bytes % int4_few_stage_bytes(form), 0);
  assert_in_range(plan->ring_bytes / int4_few_stage_bytes(form), INT4_FEW_STAGES_LEAST, INT4_FEW_STAGES_MOST);
  assert_true(plan->shared_bytes >= plan->x_bytes + plan->ring_bytes + sums);
  assert_in_range(plan->shared_bytes, 114 * 1024, 226 * 1024);
}

static void test_int4_few_plans(void **state) {
  static const int64_t ns[] = {1, 64, 65, 1000, 4096, 8192, 10240, 57344, 262144};
  static const int64_t ks[] = {1, 128, 129, 4096, 8192, 28672, 32768, INT4_FEW_K_MOST};
  static const enum gemm_scale scales[] = {GEMM_SCALE_ROW, GEMM_SCALE_GROUP64_ZEROS, GEMM_SCALE_GROUP32_BF16_ZEROS};
  for (size_t i = 0; i < 9 * 8 * 3; i++) {
    const struct int4_form form = int4_form_of(GEMM_FORMAT_INT4, scales[i % 3]);
    struct int4_few_way ways[INT4_FEW_WAYS];
    assert_true(int4_few_ways_find(&form, ns[i / 24], ks[i / 3 % 8], SMS, ways));
    for (int way = 0; way < INT4_FEW_WAYS; way++)
      if (ways[way].config.columns > 0)
        check_int4_few(&ways[way], &form);
    assert_int_equal(int4_few_columns(ways, GEMM_F16, 5), 8);
    assert_int_equal(int4_few_columns(ways, GEMM_F32, 3), 8);
    assert_int_equal(int4_few_columns(ways, GEMM_BF16, 1000), ks[i / 3 % 8] > 32768 ? 8 : 16);
  }
  const struct int4_form mxfp4 = int4_form_of(GEMM_FORMAT_MXFP4, GEMM_SCALE_GROUP32);
  const struct int4_form nvfp4 = int4_form_of(GEMM_FORMAT_NVFP4, GEMM_SCALE_GROUP16_FACTORS);
  struct int4_few_way ways[INT4_FEW_WAYS];
  for (size_t i = 0; i < 9 * 8; i++)
    assert_true(int4_few_ways_find(&nvfp4, ns[i / 8], ks[i % 8], SMS, ways));
  assert_true(int4_few_ways_find(&mxfp4, 8192, 8192, SMS, ways));
  assert_int_equal(int4_few_columns(ways, GEMM_BF16, 32), 16);
  assert_false(int4_few_ways_find(&mxfp4, 8192, INT4_FEW_K_MOST + 1, SMS, ways));
  struct int4_few_plan plan;
  struct int4_few_config config = {.columns = 1, .split_k = 4, .rows = 64};
  assert_false(int4_few_plan_for(&config, &mxfp4, 8192, 3 * 128, &plan)); /* a block without K */
  config.split_k = 3;
  assert_false(int4_few_plan_for(&config, &mxfp4, 8192, 8192, &plan)); /* no power of two */
  config = (struct int4_few_config){.columns = 16, .split_k = 1, .rows = 64};
  assert_false(int4_few_plan_for(&config, &mxfp4, 8192, 8192, &plan)); /* x does not fit */
  config = (struct int4_few_config){.columns = 1, .split_k = 2, .rows = 100};
  assert_true(int4_few_plan_for(&config, &mxfp4, 8192, 8192, &plan));
  assert_int_equal(plan.clusters, 82);
  assert_false(int4_few_plan_for(&config, &mxfp4, 262144, 8192, &plan)); /* no memory for so many shared rows */
  assert_true(INT4_FEW_SUMS_BYTES <= int2_many_sums_bytes(16));
}

/* ---- kernels for every device */

static const struct kernel_device devices[] = {{80, 108, 163 << 10, 8 << 20, false},
                                               {86, 82, 99 << 10, 8 << 20, false},
                                               {89, 142, 99 << 10, 8 << 20, false},
                                               {90, 132, 227 << 10, 32 << 20, true}};

/* All steps are had by a block each, and none has more parts of tiles than there is room for. */
static void check_shares(const struct sm80_shares *shares, int64_t tiles, int64_t blocks) {
  int64_t end = 0;
  for (int64_t block = 0; block < blocks; block++) {
    int64_t at = block % shares->blocks, begin = end;
    end = begin + shares->least + (at < shares->longer);
    assert_true(begin < end && begin == block / shares->blocks * shares->span + at * shares->least +
                                            (at < shares->longer ? at : shares->longer));
    bool late = begin % shares->steps > 0, early = end % shares->steps > 0;
    bool one = begin / shares->steps == (end - 1) / shares->steps;
    assert_true(shares->parts >= (one ? late || early : late + early));
    assert_true(shares->parts != 1 || one); /* whose place is that of the first */
  }
  assert_int_equal(end, tiles * shares->steps);
}

static void check_sm80_packed(const struct kernel_problem *problem, const struct sm80_packed_config *config) {
  struct sm80_packed_plan plan;
  int64_t m = problem->m < sm80_packed_rows_most(problem) ? problem->m : sm80_packed_rows_most(problem);
  assert_true(sm80_packed_fits(config, problem));
  assert_true(sm80_packed_plan_for(config, problem, m, &plan));
  int64_t rows = 16 * config->units * config->n_warps, groups = problem->k_padded / GEMM_GROUP;
  int64_t turn = config->k_warps * (int64_t)plan.groups;
  int64_t half = gemm_is_int2(problem->format) ? 2 * SM80_PACKED_INT2_BYTES : plan.form.half_bytes;
  assert_int_equal(plan.rows, rows);
  assert_true(plan.row_blocks * rows >= problem->n && (plan.row_blocks - 1) * rows < problem->n + 64);
  assert_true(plan.shares.steps * turn >= groups && (plan.shares.steps - 1) * turn < groups);
  assert_in_range(config->blocks, 1, plan.row_blocks * (int64_t)plan.shares.steps);
  check_shares(&plan.shares, plan.row_blocks, config->blocks);
  assert_true(plan.columns >= m && plan.stages >= (plan.folded ? SM80_PACKED_FOLDED_STAGES : SM80_PACKED_STAGES_LEAST));
  assert_true(!plan.folded || plan.slot_bytes >= plan.columns * plan.x_row_bytes); /* all that the kernel reads of x */
  assert_true(plan.slot_bytes >= m * plan.x_row_bytes + rows / 16 * half / 2 * plan.groups);
  assert_true(plan.shared_bytes >= config->k_warps * plan.stages * plan.slot_bytes + plan.sums_bytes);
  assert_true(plan.shared_bytes <= problem->device.shared_most);
  assert_true(sm80_packed_parts_bytes(&plan, m) <= problem->device.workspace_bytes);
}

static const struct {
  enum gemm_format format;
  enum gemm_scale scale;
  enum gemm_type x_type;
} packed_forms[] = {{GEMM_FORMAT_INT2, GEMM_SCALE_GROUP, GEMM_F16},
                    {GEMM_FORMAT_INT2, GEMM_SCALE_GROUP, GEMM_F32},
                    {GEMM_FORMAT_INT2, GEMM_SCALE_GROUP, GEMM_BF16},
                    {GEMM_FORMAT_INT2A8, GEMM_SCALE_GROUP, GEMM_F16},
                    {GEMM_FORMAT_INT4, GEMM_SCALE_GROUP, GEMM_F16},
                    {GEMM_FORMAT_INT4, GEMM_SCALE_GROUP32_ZEROS, GEMM_F32},
                    {GEMM_FORMAT_NVFP4, GEMM_SCALE_GROUP16_FACTORS, GEMM_BF16}};

/* What is listed covers the product and fits the device, the cheapest first; every device has something. */
static void test_sm80_packed(void **state) {
  static const int64_t ns[] = {128, 130, 1280, 8192, 57344}, ks[] = {128, 300, 8192, 28672}, ms[] = {1, 9, 33, 90, 200};
  static struct sm80_packed_config configs[SM80_PACKED_CONFIGS];
  for (size_t i = 0; i < 4 * 5 * 4 * 5 * sizeof packed_forms / sizeof *packed_forms; i++) {
    int64_t k = ks[i / 20 % 4];
    enum gemm_format format = packed_forms[i / 400].format;
    struct kernel_problem problem = {.device = devices[i % 4],
                                     .format = format,
                                     .scale = packed_forms[i / 400].scale,
                                     .tiled = true,
                                     .n = ns[i / 4 % 5],
                                     .k = k,
                                     .k_padded =
                                         (int64_t)gemm_round_up((uint64_t)k, format == GEMM_FORMAT_INT2A8 ? 256 : 128),
                                     .m = ms[i / 80 % 5],
                                     .x_type = packed_forms[i / 400].x_type};
    int count = sm80_packed_candidates(&problem, configs, SM80_PACKED_CONFIGS);
    assert_in_range(count, 1, SM80_PACKED_CONFIGS);
    for (int c = 0; c < count; c++) {
      check_sm80_packed(&problem, &configs[c]);
      assert_true(c == 0 || sm80_packed_us(&configs[c], &problem) >= sm80_packed_us(&configs[0], &problem) * 0.999 ||
                  problem.m > sm80_packed_rows_most(&problem));
    }
    problem.device.capability = 75;
    assert_false(sm80_packed_takes(&problem));
  }
}

static void test_sm80_rows(void **state) {
  static const int64_t ns[] = {1, 130, 1280, 8192, 57344}, ks[] = {16, 304, 8192, 28672}, ms[] = {1, 17, 64, 200, 5000};
  static struct sm80_rows_config configs[SM80_ROWS_CONFIGS];
  for (size_t i = 0; i < 4 * 5 * 4 * 5 * 2; i++) {
    struct kernel_problem problem = {.device = devices[i % 4],
                                     .format = i / 400 ? GEMM_FORMAT_INT8 : GEMM_FORMAT_FP8,
                                     .scale = GEMM_SCALE_ROW,
                                     .n = ns[i / 4 % 5],
                                     .k = ks[i / 20 % 4],
                                     .k_padded = ks[i / 20 % 4],
                                     .m = ms[i / 80 % 5]};
    int count = sm80_rows_candidates(&problem, configs, SM80_ROWS_CONFIGS);
    double first = 0;
    assert_in_range(count, 1, SM80_ROWS_CONFIGS);
    for (int c = 0; c < count; c++) {
      struct sm80_rows_plan plan;
      assert_true(sm80_rows_plan_for(&configs[c], &problem, &plan));
      int64_t columns = configs[c].columns, rows = configs[c].rows, blocks = configs[c].blocks;
      int64_t steps = (problem.k_padded + SM80_ROWS_STEP - 1) / SM80_ROWS_STEP;
      assert_int_equal(plan.tiles, (problem.n + rows - 1) / rows * ((problem.m + columns - 1) / columns));
      assert_int_equal(plan.shares.steps, steps);
      assert_in_range(blocks, 1, plan.tiles * steps);
      check_shares(&plan.shares, plan.tiles, blocks);
      assert_true(plan.shared_bytes <= problem.device.shared_most && plan.stages >= SM80_ROWS_STAGES_LEAST);
      assert_true(sm80_rows_parts_bytes(&configs[c], &plan) <= problem.device.workspace_bytes);
      double us = sm80_rows_us(&configs[c], &plan, &problem);
      first = c == 0 ? us : first;
      assert_true(us >= first);
    }
    problem.scale = GEMM_SCALE_BLOCK;
    assert_true(sm80_rows_takes(&problem) == (problem.format == GEMM_FORMAT_INT8));
    problem.device.capability = 75;
    assert_false(sm80_rows_takes(&problem));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_int2_cuts),        cmocka_unit_test(test_int2_plans),
      cmocka_unit_test(test_int2_few_columns), cmocka_unit_test(test_int2_many_least),
      cmocka_unit_test(test_int2_many_plans),  cmocka_unit_test(test_int2a8_plans),
      cmocka_unit_test(test_int4_few_plans),   cmocka_unit_test(test_sm80_packed),
      cmocka_unit_test(test_sm80_rows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
