/* Which products the kernel for many rows with FP8 weights takes, how it is configured, and how they are cut up. */
#include "kernels/cuda/families/cublaslt/config.h"
#include "kernels/cuda/families/sm90/fp8_many/config.h"
#include "kernels/cuda/heuristics/clusters.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { SMS = 132 };

static struct kernel_problem product_of(int64_t m, int64_t n, int64_t k, enum gemm_type y_type) {
  return (struct kernel_problem){.device = {.capability = 90, .multiprocessors = SMS},
                                 .format = GEMM_FORMAT_FP8,
                                 .scale = GEMM_SCALE_ROW,
                                 .m = m,
                                 .n = n,
                                 .k = k,
                                 .k_padded = k,
                                 .y_type = y_type};
}

static void test_takes(void **state) {
  struct kernel_problem product = product_of(65, 128, 16, GEMM_BF16);
  assert_true(fp8_many_takes(&product));
  product.m = 64;
  assert_false(fp8_many_takes(&product));
  product.m = 65;
  product.scale = GEMM_SCALE_BLOCK;
  assert_false(fp8_many_takes(&product));
  product.scale = GEMM_SCALE_ONE;
  assert_true(fp8_many_takes(&product));
  product.format = GEMM_FORMAT_INT8;
  assert_true(fp8_many_takes(&product));
  product.y_type = GEMM_S32;
  assert_false(fp8_many_takes(&product));
  product.format = GEMM_FORMAT_INT2A8;
  product.y_type = GEMM_F16;
  assert_false(fp8_many_takes(&product)); /* plain codes */
  product.tiled = true;
  assert_true(fp8_many_takes(&product));
}

static struct fp8_many_config choice_of(int64_t m, int64_t n, int64_t k) {
  const struct kernel_problem product = product_of(m, n, k, GEMM_BF16);
  double us;
  const struct fp8_many_config config = fp8_many_configure(&product, &us);
  assert_true(us > 0 && us < INFINITY);
  return config;
}

static void test_chooses(void **state) {
  assert_int_equal(choice_of(128, 8192, 8192).split_k, 2); /* 64 tiles of 132 */
  assert_int_equal(choice_of(128, 1280, 8192).split_k, 4);
  assert_int_equal(choice_of(256, 8192, 8192).split_k, 1);
  assert_int_equal(choice_of(256, 8192, 8192).rows, 128);   /* 128 tiles rather than 64 of twice the size */
  assert_int_equal(choice_of(1024, 8192, 1024).rows, 256);  /* half as many that begin and end */
  assert_int_equal(choice_of(128, 4096, 14336).split_k, 3); /* 32 clusters of 4 are two more than there is room for */
  const struct kernel_problem wide = product_of(1024, 8192, 1024, GEMM_F32);
  double us;
  assert_int_equal(fp8_many_configure(&wide, &us).rows, 128); /* no other has sums of such precision */
}

/* The library has less to begin with, its tiles in whole waves alone, and no others where x ends. */
static void test_compares(void **state) {
  const struct kernel_problem narrow = product_of(128, 8192, 8192, GEMM_BF16);
  const struct kernel_problem many = product_of(4096, 8192, 8192, GEMM_BF16);
  double us;
  (void)fp8_many_configure(&narrow, &us);
  assert_true(us < 0.9 * library_us(&narrow));
  (void)fp8_many_configure(&many, &us);
  struct variant ignored;
  double offered;
  assert_true(library_predict(&many, &ignored, &offered) && offered < us);
  const struct kernel_problem few = product_of(1024, 8192, 8192, GEMM_BF16);
  (void)fp8_many_configure(&few, &us);
  assert_true(library_predict(&few, &ignored, &offered) && offered > us);
  const struct kernel_problem whole = product_of(256, 8192, 8192, GEMM_BF16);
  const struct kernel_problem part = product_of(192, 8192, 8192, GEMM_BF16); /* its second tile goes beyond x */
  assert_true(library_us(&part) > library_us(&whole));
  (void)fp8_many_configure(&part, &us);
  assert_true(us < library_us(&part));
}

static int64_t divided(int64_t value, const struct fp8_many_divisor *by) {
  assert_true((int64_t)by->by * value <= UINT32_MAX);
  return by->inverse == 0 ? value : (int64_t)((uint64_t)value * by->inverse >> 32);
}

/* Each tile of y once, as fp8_many/share.cuh finds its place; whole ones, and one a cluster. */
static void check_plan(const struct fp8_many_config *config, const struct kernel_problem *product,
                       const struct fp8_many_plan *plan) {
  int64_t tiles = (int64_t)plan->w_tiles * plan->x_tiles;
  uint8_t *seen = calloc((size_t)tiles, 1);
  assert_non_null(seen);
  assert_true((int64_t)plan->w_tiles * config->rows >= product->n && (plan->w_tiles - 1) * config->rows < product->n);
  assert_true((int64_t)plan->x_tiles * plan->columns >= product->m && (plan->x_tiles - 1) * plan->columns < product->m);
  assert_true(plan->columns % 8 == 0 && plan->columns <= plan->width && plan->width <= config->columns);
  assert_true((int64_t)plan->steps_of_block * plan->split_k >= plan->steps && plan->blocks <= SMS);
  int64_t whole = (int64_t)plan->whole * plan->blocks;
  assert_true(tiles <= whole + (plan->split_k > 1 ? plan->blocks / plan->split_k : 0));
  assert_true(tiles > whole - plan->blocks);
  for (int64_t tile = 0; tile < tiles; tile++) {
    int64_t number = divided(tile, &plan->by_group), within = tile - number * plan->by_group.by;
    bool last = (number + 1) * plan->group >= plan->x_tiles;
    const struct fp8_many_divisor *wide = last ? &plan->by_last : &plan->by_wide;
    int64_t w = divided(within, wide), x = number * plan->group + within - w * wide->by;
    assert_in_range(w, 0, plan->w_tiles - 1);
    assert_in_range(x, 0, plan->x_tiles - 1);
    assert_int_equal(seen[w * plan->x_tiles + x]++, 0);
  }
  free(seen);
}

static void test_cuts_up(void **state) {
  static const int64_t shapes[][3] = {{65, 128, 16},       {128, 8192, 8192}, {200, 1000, 1040},   {513, 57344, 8192},
                                      {4096, 57344, 8192}, {8192, 130, 64},   {2177, 5120, 28672}, {256, 28672, 5120}};
  struct fp8_many_config list[FP8_MANY_ALL];
  struct fp8_many_plan plan;
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (int y = 0; y < 6; y++) {
      struct kernel_problem product =
          product_of(shapes[i][0], shapes[i][1], shapes[i][2], y % 2 ? GEMM_F32 : GEMM_BF16);
      product.format = y / 2 == 0 ? GEMM_FORMAT_FP8 : y / 2 == 1 ? GEMM_FORMAT_INT8 : GEMM_FORMAT_INT2A8;
      product.tiled = y / 2 == 2;
      int count = fp8_many_candidates(&product, true, list, FP8_MANY_ALL);
      assert_in_range(count, 1, FP8_MANY_ALL);
      for (int j = 0; j < count; j++) {
        assert_true(fp8_many_plan_for(&list[j], &product, &plan));
        assert_true(list[j].split_k == 1 || plan.blocks <= clusters_usable(SMS, list[j].split_k));
        check_plan(&list[j], &product, &plan);
      }
    }
}

static void test_refuses(void **state) {
  static const struct fp8_many_config bad[] = {{64, 128, 1, 16},  {320, 128, 1, 16}, {256, 128, 2, 16},
                                               {128, 128, 0, 16}, {128, 128, 5, 16}, {128, 128, 1, 0},
                                               {128, 128, 1, 65}, {128, 112, 1, 16}};
  const struct kernel_problem many = product_of(1024, 8192, 8192, GEMM_BF16);
  const struct kernel_problem short_k = product_of(128, 128, 128, GEMM_BF16);
  const struct kernel_problem exact = product_of(1024, 8192, 8192, GEMM_F16);
  struct fp8_many_plan plan;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_false(fp8_many_plan_for(&bad[i], &many, &plan));
  assert_false(fp8_many_plan_for(&(struct fp8_many_config){128, 128, 2, 16}, &short_k, &plan));
  assert_false(fp8_many_plan_for(&(struct fp8_many_config){256, 128, 1, 16}, &exact, &plan));
  assert_true(fp8_many_plan_for(&(struct fp8_many_config){128, 128, 1, 16}, &exact, &plan));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_takes),   cmocka_unit_test(test_chooses), cmocka_unit_test(test_compares),
      cmocka_unit_test(test_cuts_up), cmocka_unit_test(test_refuses),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
