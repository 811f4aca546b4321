/* How the kernel for INT8 and FP8 on Hopper is configured. */
#include "kernels/cuda/families/sm90/hopper/config.h"
#include "tests/support/reference/hopper_problem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_hopper_refuses(void **state) {
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
  static const int64_t ns[] = {1, 8, 66, 1280, 8192, 57344, 1 << 24}, ks[] = {16, 304, 1024, 8192, 131088};
  static const int64_t ms[] = {1, 7, 8, 9, 33, 64, 65, 128, 129, 5000};
  for (size_t i = 0; i < sizeof ns / sizeof *ns; i++)
    for (size_t j = 0; j < sizeof ks / sizeof *ks; j++)
      for (size_t l = 0; l < sizeof ms / sizeof *ms; l++)
        for (int scale = GEMM_SCALE_ONE; scale <= GEMM_SCALE_BLOCK; scale++) {
          struct kernel_problem product = product_of(GEMM_FORMAT_FP8, (enum gemm_scale)scale, ms[l], ns[i], ks[j]);
          for (int way = 0; way < 3; way++) {
            product.in_row = way == 1;
            product.x_type = way == 2 ? GEMM_BF16 : GEMM_E4M3;
            struct hopper_config config = hopper_configure(&product);
            assert_true(hopper_config_valid(&config, product.scale));
            assert_true(hopper_shared_bytes(&config, product.scale) <= 227 * 1024);
            assert_true(config.columns >= ms[l] || config.columns >= 64);
          }
        }
}

/* Where W takes blocks many times over, they are small, so that none ends late. */
static void test_hopper_scatters_what_is_large(void **state) {
  static const struct {
    int64_t n, k, m;
    int rows, split_k; /* 0: the model's choice */
  } cases[] = {{57344, 8192, 1, 56, 2},  {43008, 8192, 8, 56, 2}, {152064, 3584, 1, 56, 3}, {57344, 8192, 16, 64, 6},
               {128256, 4096, 9, 64, 4}, {57344, 8192, 17, 0, 0}, {28672, 8192, 1, 0, 0},   {8192, 57344, 1, 0, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct kernel_problem product = product_of(GEMM_FORMAT_FP8, GEMM_SCALE_ROW, cases[i].m, cases[i].n, cases[i].k);
    struct hopper_config config = hopper_configure(&product);
    assert_int_equal(config.groups == 1 && config.rows == cases[i].rows && config.split_k == cases[i].split_k,
                     cases[i].rows != 0);
    product.in_row = true;
    struct hopper_config row = hopper_configure(&product);
    assert_false(row.groups == 1 && row.rows == cases[i].rows && row.ahead == 2);
  }
}

/* In a row, a block of a small product leaves room for one of the next; alone, it takes what it can. */
static void test_hopper_in_row(void **state) {
  enum { HALF = 227 * 1024 / 2 };
  struct kernel_problem product = product_of(GEMM_FORMAT_FP8, GEMM_SCALE_ROW, 1, 8192, 3584);
  struct hopper_config alone = hopper_configure(&product);
  product.in_row = true;
  struct hopper_config in_row = hopper_configure(&product);
  assert_true(hopper_shared_bytes(&alone, product.scale) > HALF);
  assert_true(hopper_shared_bytes(&in_row, product.scale) < HALF);
  /* Blocks of 64 rows that do not fill the device, or more than once: as alone, or one block in place of two halves. */
  static const int64_t ns[] = {1280, 3000, 10240};
  for (size_t i = 0; i < sizeof ns / sizeof *ns; i++) {
    product = product_of(GEMM_FORMAT_FP8, GEMM_SCALE_ROW, 1, ns[i], 7200);
    alone = hopper_configure(&product);
    product.in_row = true;
    in_row = hopper_configure(&product);
    alone.rows *= in_row.groups / alone.groups;
    alone.groups = in_row.groups;
    alone.ahead = in_row.ahead;
    assert_memory_equal(&alone, &in_row, sizeof alone);
  }
}

/* Where two blocks that share K would have rings of six steps, more of them have less under way. */
static void test_hopper_shares_more_in_row(void **state) {
  static const int64_t ms[] = {1, 8, 16};
  for (size_t i = 0; i < sizeof ms / sizeof *ms; i++) {
    struct kernel_problem product = product_of(GEMM_FORMAT_INT8, GEMM_SCALE_ROW, ms[i], 4096, 4096);
    struct hopper_config config = hopper_configure(&product);
    assert_true(config.split_k == 2 && config.ahead == 6);
    product.in_row = true;
    config = hopper_configure(&product);
    assert_true(config.split_k > 2 && config.ahead < 6 && hopper_config_valid(&config, product.scale));
  }
}

/* Behind a quantizer no more blocks come to a multiprocessor than there must, and their rings leave the next ones room;
 * what is said to other families stays. Codes of x, and scales of blocks, are configured as before. */
static void test_hopper_behind_a_quantizer(void **state) {
  (void)state;
  static const struct {
    int64_t n, k, m;
    struct hopper_config behind;
  } cases[] = {{3328, 6144, 16, {16, 2, 112, 4, 3}}, {6144, 4096, 8, {8, 2, 96, 2, 4}},
               {4096, 4096, 1, {8, 2, 112, 3, 3}},   {1024, 1024, 8, {8, 1, 64, 4, 3}},
               {4096, 4096, 48, {64, 1, 64, 2, 3}},  {2048, 8192, 16, {16, 1, 64, 6, 3}},
               {5120, 2048, 32, {32, 2, 80, 2, 3}},  {28672, 4096, 64, {64, 2, 112, 1, 3}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct kernel_problem product = product_of(GEMM_FORMAT_FP8, GEMM_SCALE_ROW, cases[i].m, cases[i].n, cases[i].k);
    const struct hopper_config alone = hopper_configure(&product);
    product.x_type = GEMM_BF16;
    const struct hopper_config config = hopper_configure(&product);
    assert_memory_equal(&config, &cases[i].behind, sizeof config);
    assert_memory_not_equal(&config, &alone, sizeof config);
    product.x_type = GEMM_E4M3;
    const struct hopper_config codes = hopper_configure(&product);
    assert_memory_equal(&codes, &alone, sizeof codes);
    product.scale = GEMM_SCALE_BLOCK;
    const struct hopper_config blocks = hopper_configure(&product);
    product.x_type = GEMM_F16;
    const struct hopper_config blocks_behind = hopper_configure(&product);
    assert_memory_equal(&blocks_behind, &blocks, sizeof blocks);
  }
}

static struct hopper_start start_of(int64_t m, int64_t n, int64_t k, struct hopper_config config, bool dependent) {
  struct kernel_problem product = product_of(GEMM_FORMAT_FP8, GEMM_SCALE_ROW, m, n, k);
  return hopper_start_of(&config, &product, dependent);
}

/* Only few rows with a long way to go, in blocks that are all there at once, fetch more of W than the ring holds; only
 * blocks that share no K let the next kernel wait for their last steps. */
static void test_hopper_start(void **state) {
  const struct hopper_config whole = {8, 2, 112, 1, 2}, shared = {8, 1, 56, 3, 4}, brief = {8, 2, 96, 2, 4},
                             turns = {8, 1, 56, 4, 2};
  struct hopper_start start = start_of(1, 28672, 4096, whole, true);
  assert_true(start.dependent && start.beyond == 512 && start.let == whole.ahead);
  start = start_of(16, 4096, 14336, shared, true);
  assert_true(start.dependent && start.beyond == 512 && start.let == 0);
  const struct hopper_start others[] = {start_of(1, 6144, 4096, brief, true), start_of(1, 28672, 4096, turns, true),
                                        start_of(17, 28672, 4096, whole, true)};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    assert_true(others[i].dependent && others[i].beyond == 0 && others[i].let == 0);
  start = start_of(1, 28672, 4096, whole, false);
  assert_false(start.dependent || start.beyond || start.let);
}

/* Two blocks of one group in a multiprocessor rather than one of two, where all run at once. */
static void test_hopper_halves(void **state) {
  static const int64_t ms[] = {1, 8, 16, 32};
  for (size_t i = 0; i < sizeof ms / sizeof *ms; i++) {
    struct kernel_problem product = product_of(GEMM_FORMAT_FP8, GEMM_SCALE_ROW, ms[i], 7168, 8192);
    struct hopper_config config = hopper_configure(&product);
    assert_int_equal(config.groups, 1);
    assert_in_range((product.n + config.rows - 1) / config.rows * config.split_k, SMS + 1, 2 * SMS);
    assert_true(2 * hopper_shared_bytes(&config, product.scale) < 226 * 1024);
    product.in_row = true;
    config = hopper_configure(&product);
    assert_int_equal(config.groups, 1);
    assert_true(ms[i] == 32 || config.ahead == 4);
    /* Blocks of 8 steps: not in a row. */
    product = product_of(GEMM_FORMAT_FP8, GEMM_SCALE_ROW, ms[i], 6144, 4096);
    assert_int_equal(hopper_configure(&product).groups, 1);
    product.in_row = true;
    assert_int_equal(hopper_configure(&product).groups, ms[i] == 32 ? 1 : 2);
  }
}

/* What measurements of single shapes say against the model. */
static void test_hopper_corrections(void **state) {
  /* Clusters of three with room for two blocks in a multiprocessor are not halved. */
  struct kernel_problem three = product_of(GEMM_FORMAT_FP8, GEMM_SCALE_ROW, 32, 4096, 14336);
  struct hopper_config whole = hopper_configure(&three);
  assert_true(whole.split_k == 3 && whole.groups == 2 && whole.rows == 112);
  struct kernel_problem product = product_of(GEMM_FORMAT_FP8, GEMM_SCALE_ROW, 64, 8192, 3584);
  assert_int_equal(hopper_configure(&product).groups, 1);
  product.in_row = true;
  assert_int_equal(hopper_configure(&product).groups, 2);
  product = product_of(GEMM_FORMAT_FP8, GEMM_SCALE_ROW, 32, 8192, 8192);
  product.in_row = true;
  assert_int_equal(hopper_configure(&product).ahead, 3);
  /* Many blocks that share K: less under way in a row. */
  product = product_of(GEMM_FORMAT_FP8, GEMM_SCALE_ROW, 16, 1280, 8192);
  struct hopper_config alone = hopper_configure(&product);
  product.in_row = true;
  struct hopper_config in_row = hopper_configure(&product);
  assert_in_range(in_row.split_k, 4, 8);
  assert_int_equal(alone.ahead, 4);
  assert_int_equal(in_row.ahead, 3);
  /* Short K: not shared, and less ahead than all of it. */
  static const int64_t ms[] = {1, 16, 32, 64};
  for (size_t i = 0; i < sizeof ms / sizeof *ms; i++) {
    product = product_of(GEMM_FORMAT_FP8, GEMM_SCALE_ROW, ms[i], 8192, 3584);
    assert_int_equal(hopper_configure(&product).split_k, 1);
    product = product_of(GEMM_FORMAT_FP8, GEMM_SCALE_ROW, ms[i], 8192, 1024);
    assert_int_equal(hopper_configure(&product).ahead, 3);
  }
}

/* A MiB of W and 64 rows of x: blocks share K, or most multiprocessors idle. */
static void test_hopper_small(void **state) {
  struct kernel_problem product = product_of(GEMM_FORMAT_FP8, GEMM_SCALE_ROW, 64, 1024, 1024);
  struct hopper_config config = hopper_configure(&product);
  assert_true((product.n + config.rows - 1) / config.rows * config.split_k > SMS / 2);
}

/* What is looked at beside a good one: one thing changed by a step, or more blocks with less under way, or half of a
 * block; all of it can run. */
static void test_hopper_neighbours(void **state) {
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
      assert_true(near[i].columns == base->columns || near[i].columns == 2 * base->columns);
      bool more = near[i].split_k > base->split_k && near[i].ahead < base->ahead;
      assert_int_equal((near[i].columns != base->columns) + (near[i].rows != base->rows) +
                           (near[i].split_k != base->split_k) + (near[i].ahead != base->ahead),
                       more ? 2 : 1);
      bool half = near[i].groups == base->groups / 2 && near[i].rows == base->rows / 2;
      assert_true(near[i].groups == base->groups || near[i].rows > 64 * base->groups || half);
    }
  }
  int last = hopper_near(&bases[3], GEMM_SCALE_ROW, near) - 1;
  assert_int_equal(near[last].groups, 1);
  assert_int_equal(near[last].rows, 64);
  assert_int_equal(hopper_near(&bases[0], GEMM_SCALE_ROW, near), HOPPER_NEAR - 1);
  assert_int_equal(near[0].ahead, 2);
  assert_int_equal(near[3].split_k, 3);
  assert_int_equal(near[4].split_k, 1);
  assert_int_equal(near[5].rows, 32);
  assert_int_equal(near[8].rows, 64);
  assert_int_equal(near[9].columns, 16);
  assert_int_equal(near[10].split_k, 3);
  assert_int_equal(near[10].ahead, 4);
}

/* Some of every way to share K, none twice, all of which can run. */
static void test_hopper_candidates(void **state) {
  static const int64_t ms[] = {1, 16, 64, 200};
  struct hopper_config list[HOPPER_CANDIDATES + 1];
  for (size_t m = 0; m < sizeof ms / sizeof *ms; m++) {
    struct kernel_problem product = product_of(GEMM_FORMAT_INT8, GEMM_SCALE_ROW, ms[m], 2560, 2560);
    int count = hopper_candidates(&product, false, list, HOPPER_CANDIDATES + 1), split[9] = {0};
    assert_in_range(count, 30, HOPPER_CANDIDATES);
    for (int i = 0; i < count; i++) {
      assert_true(hopper_config_valid(&list[i], GEMM_SCALE_ROW));
      split[list[i].split_k]++;
      for (int j = 0; j < i; j++)
        assert_memory_not_equal(&list[i], &list[j], sizeof *list);
    }
    for (int each = 1; each <= 8; each += each < 4 ? 1 : 2)
      assert_true(split[each] >= 4);
    assert_int_equal(hopper_candidates(&product, false, list, 5), 5);
    assert_int_equal(hopper_candidates(&product, true, list, 7), 7);
  }
}

/* The sums of other blocks come behind whatever else a block has in shared memory, each where no other does. */
static void test_hopper_shared_memory(void **state) {
  static const int columns[] = {8, 16, 32, 64, 128}, aheads[] = {2, 3, 4, 6};
  for (int c = 0; c < 5; c++)
    for (int rows = 8; rows <= 192; rows += 8)
      for (int split_k = 1; split_k <= 8; split_k++)
        for (int a = 0; a < 4; a++) {
          const struct hopper_config config = {
              .columns = columns[c], .groups = (rows + 63) / 64, .rows = rows, .split_k = split_k, .ahead = aheads[a]};
          int offset = hopper_sums_offset(&config, GEMM_SCALE_ROW), places = hopper_places(&config);
          int head = columns[c] * 4 + 16; /* scales of rows of x and a barrier, in front of the sums */
          assert_true(offset >= (aheads[a] + 1) * 256 * (rows + columns[c]) + head);
          assert_true(offset >= config.groups * 4 * 64 * columns[c]); /* a warpgroup's own sums */
          assert_true(places * split_k >= columns[c] / 8);
          int sums = (split_k - 1) * places * ((rows + 15) / 16) * 512;
          assert_true(hopper_shared_bytes(&config, GEMM_SCALE_ROW) >= 1024 + offset + sums);
        }
}

/* One block or more a multiprocessor; a weight that would leave most of them idle is cut along K. */
static void test_hopper_fills_the_device(void **state) {
  static const int64_t ns[] = {8192, 1280};
  for (int i = 0; i < 2; i++) {
    struct kernel_problem product = product_of(GEMM_FORMAT_FP8, GEMM_SCALE_ROW, 1, ns[i], 8192);
    struct hopper_config config = hopper_configure(&product);
    int64_t blocks = (product.n + config.rows - 1) / config.rows * config.split_k;
    assert_in_range(blocks, SMS / 2, 3 * SMS);
    assert_true(config.split_k > 1 || ns[i] > 1280);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_hopper_refuses),
      cmocka_unit_test(test_hopper_always_valid),
      cmocka_unit_test(test_hopper_scatters_what_is_large),
      cmocka_unit_test(test_hopper_in_row),
      cmocka_unit_test(test_hopper_shares_more_in_row),
      cmocka_unit_test(test_hopper_behind_a_quantizer),
      cmocka_unit_test(test_hopper_start),
      cmocka_unit_test(test_hopper_neighbours),
      cmocka_unit_test(test_hopper_candidates),
      cmocka_unit_test(test_hopper_shared_memory),
      cmocka_unit_test(test_hopper_fills_the_device),
      cmocka_unit_test(test_hopper_halves),
      cmocka_unit_test(test_hopper_small),
      cmocka_unit_test(test_hopper_corrections),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
