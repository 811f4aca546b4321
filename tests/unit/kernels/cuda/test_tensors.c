/* Products of two tensors: which kernels are listed and refused, and how such a product is cut: every element of every
 * product once, in order, within memory and time. */
#include "kernels/cuda/tensors/config.h"
#include "kernels/cuda/tensors/cut.h"
#include "kernels/cuda/tensors/product.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { MOST = 512 };

static struct tensors_problem problem_of(int64_t m, int64_t n, int64_t k, int align, int capability) {
  return (struct tensors_problem){
      .device = {.capability = capability, .multiprocessors = 132}, .m = m, .n = n, .k = k, .align = align};
}

static void listed_can_run(const struct tensors_problem *problem) {
  static struct variant list[MOST];
  for (int all = 0; all < 2; all++) {
    int count = tensors_list(problem, all, list, MOST);
    assert_in_range(count, 1, MOST);
    struct variant own = tensors_default(problem);
    assert_true(variant_equal(&list[0], &own));
    for (int i = 0; i < count; i++) {
      struct tensors_config config;
      struct error error;
      if (tensors_config(problem, &list[i], &config, NULL, &error) != STATUS_OK)
        fail_msg("%s", error.text);
      for (int j = 0; j < i; j++)
        assert_false(variant_equal(&list[i], &list[j]));
    }
  }
}

static void lists(void **state) {
  static const int64_t sizes[][3] = {
      {64, 64, 25088}, {256, 256, 1605632}, {1, 1, 1}, {200, 136, 5000}, {4096, 4096, 64}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int align = 2; align <= 16; align *= 2)
      for (int capability = 80; capability <= 90; capability += 10) {
        struct tensors_problem problem = problem_of(sizes[i][0], sizes[i][1], sizes[i][2], align, capability);
        listed_can_run(&problem);
      }
}

static void slices_fill_the_device(void **state) {
  struct tensors_problem problem = problem_of(256, 128, 200704, 16, 90);
  struct variant variant = tensors_default(&problem);
  struct tensors_config config;
  struct error error;
  assert_int_equal(tensors_config(&problem, &variant, &config, NULL, &error), STATUS_OK);
  assert_true(config.wide);
  assert_int_equal(config.slices, 132 / 4); /* 2 x 2 tiles */
}

static void expect_nearest(const struct tensors_problem *problem, struct variant variant) {
  struct tensors_config config;
  struct variant nearest = {.family = NULL};
  struct error error;
  assert_int_equal(tensors_config(problem, &variant, &config, &nearest, &error), STATUS_UNSUPPORTED);
  assert_non_null(nearest.family);
  assert_int_equal(tensors_config(problem, &nearest, &config, NULL, &error), STATUS_OK);
}

static void refusals_name_the_nearest(void **state) {
  struct tensors_problem problem = problem_of(128, 64, 300, 16, 90);
  struct tensors_problem loose = problem_of(128, 64, 300, 8, 90), ampere = problem_of(128, 64, 300, 16, 80);
  expect_nearest(&problem, (struct variant){.family = &tensors_wide_family, .values = {64, 1, 6}}); /* of 5 steps */
  expect_nearest(&problem, (struct variant){.family = &tensors_wide_family, .values = {128, 1, 1}});
  expect_nearest(&problem, (struct variant){.family = &tensors_wide_family, .values = {64, 2, 1}});
  expect_nearest(&problem, (struct variant){.family = &tensors_family, .values = {11}});
  expect_nearest(&loose, (struct variant){.family = &tensors_wide_family, .values = {64, 1, 1}});
  expect_nearest(&ampere, (struct variant){.family = &tensors_wide_family, .values = {64, 1, 1}});
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define BYTES ((uint64_t)128 << 20)

static struct tensors_cut_problem problem_to_cut(int64_t m, int64_t n, int64_t k, int64_t batch, bool far) {
  return (struct tensors_cut_problem){.m = m,
                                      .n = n,
                                      .k = k,
                                      .batch = batch,
                                      .x_far = far,
                                      .w_far = far,
                                      .slices = TENSORS_SLICES_MOST,
                                      .bytes = BYTES,
                                      .bytes_per_ns = 2000,
                                      .flops_per_ns = 300000,
                                      .copied_per_ns = 20};
}

/* Pieces follow one another along K, then along rows of y, then down, then from product to product. */
static void covers(const struct tensors_cut_problem *problem) {
  struct tensors_cut cut = tensors_cut(problem);
  double volume = 0;
  int64_t k = 0;
  for (int64_t i = 0; i < cut.pieces; i++) {
    struct tensors_piece piece = tensors_piece(problem, &cut, i);
    assert_int_equal(piece.k, k);
    assert_true(piece.first == (k == 0));
    k += piece.depth;
    assert_true(piece.last == (k == problem->k));
    k = piece.last ? 0 : k;
    assert_in_range(piece.product, 0, problem->batch - 1);
    assert_true(piece.rows >= 1 && piece.row + piece.rows <= problem->m);
    assert_true(piece.columns >= 1 && piece.column + piece.columns <= problem->n);
    assert_true(piece.last || piece.depth % 64 == 0);
    volume += (double)piece.rows * (double)piece.columns * (double)piece.depth;
  }
  assert_true(volume == (double)problem->m * (double)problem->n * (double)problem->k * (double)problem->batch);
  assert_in_range(cut.slices, 1, TENSORS_SLICES_MOST);
  assert_true(tensors_partial_bytes(cut.rows, cut.columns, cut.slices) <= problem->bytes / 2);
  uint64_t staged =
      2 * (uint64_t)cut.depth * (uint64_t)((problem->x_far ? cut.rows : 0) + (problem->w_far ? cut.columns : 0));
  assert_true(staged <= problem->bytes / 4 || cut.depth <= 64);
}

static void every_product(void **state) {
  static const int64_t sizes[][4] = {{1, 1, 1, 1},           {64, 64, 25088, 1},     {256, 256, 1605632, 1},
                                     {256, 128, 1 << 24, 1}, {4096, 4096, 4096, 3},  {1 << 20, 3, 130, 2},
                                     {5, 1 << 20, 77, 1},    {129, 257, 1000, 65535}};
  for (size_t i = 0; i < COUNT(sizes); i++)
    for (int far = 0; far < 2; far++) {
      struct tensors_cut_problem problem = problem_to_cut(sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3], far);
      covers(&problem);
    }
}

/* What fits goes in one piece, with all the slices that were asked for. */
static void short_ones_are_whole(void **state) {
  struct tensors_cut_problem problem = problem_to_cut(128, 128, 25088, 1, false);
  problem.slices = 66;
  struct tensors_cut cut = tensors_cut(&problem);
  assert_int_equal(cut.pieces, 1);
  assert_int_equal(cut.depth, 25088);
  assert_int_equal(cut.slices, 66);
}

/* Runs of K and slices go together: a long K in runs has its slices in each. */
static void long_ones_come_in_runs(void **state) {
  struct tensors_cut_problem problem = problem_to_cut(256, 256, 1 << 24, 1, false);
  problem.slices = 32;
  struct tensors_cut cut = tensors_cut(&problem);
  assert_true(cut.pieces > 4);
  assert_int_equal(cut.slices, 32);
  assert_true(cut.depth >= 32 * 64);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lists),
      cmocka_unit_test(slices_fill_the_device),
      cmocka_unit_test(refusals_name_the_nearest),
      cmocka_unit_test(every_product),
      cmocka_unit_test(short_ones_are_whole),
      cmocka_unit_test(long_ones_come_in_runs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
