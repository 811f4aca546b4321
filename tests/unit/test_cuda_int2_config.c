/* How products of INT2 and INT2A8 weights are cut up into blocks. */
#include "kernels/cuda/int2_few_config.h"
#include "kernels/cuda/int2_many_config.h"
#include "kernels/cuda/int2a8_config.h"
#include "kernels/cuda/int2a8_layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SMS = 132 };

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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_int2_plans),
      cmocka_unit_test(test_int2_many_plans),
      cmocka_unit_test(test_int2a8_plans),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
