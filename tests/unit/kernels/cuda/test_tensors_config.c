/* Kernels for products of two tensors: what is listed can run, and what cannot is refused with what can. */
#include "kernels/cuda/tensors/config.h"

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
  (void)state;
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
  (void)state;
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
  (void)state;
  struct tensors_problem problem = problem_of(128, 64, 300, 16, 90);
  struct tensors_problem loose = problem_of(128, 64, 300, 8, 90), ampere = problem_of(128, 64, 300, 16, 80);
  expect_nearest(&problem, (struct variant){.family = &tensors_wide_family, .values = {64, 1, 6}}); /* of 5 steps */
  expect_nearest(&problem, (struct variant){.family = &tensors_wide_family, .values = {128, 1, 1}});
  expect_nearest(&problem, (struct variant){.family = &tensors_wide_family, .values = {64, 2, 1}});
  expect_nearest(&problem, (struct variant){.family = &tensors_family, .values = {11}});
  expect_nearest(&loose, (struct variant){.family = &tensors_wide_family, .values = {64, 1, 1}});
  expect_nearest(&ampere, (struct variant){.family = &tensors_wide_family, .values = {64, 1, 1}});
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(lists), cmocka_unit_test(slices_fill_the_device),
                                     cmocka_unit_test(refusals_name_the_nearest)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
