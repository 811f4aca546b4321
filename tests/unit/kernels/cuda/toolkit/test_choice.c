/* What a variant stands for where a product comes in several goes: each has fewer rows than the product that the
 * variant was chosen for. */
#include "kernels/cuda/heuristics/families.h"
#include "kernels/cuda/heuristics/variants.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct gemm_weight int8 = {.n = 152064, .k = 8192, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW};

static struct choice_request request_of(int64_t m) {
  return (struct choice_request){.weight = &int8, .n = int8.n, .k = int8.k, .m = m, .y_type = GEMM_BF16};
}

/* The backend's own choice stands in where there are no more rows than the kernel takes. */
static void test_many_rows_that_are_few(void **state) {
  (void)state;
  const struct variant variant = variant_of_many(&(struct many_config){.columns = 256, .group = 16});
  static const struct {
    int64_t m;
    bool takes;
  } cases[] = {{1, false}, {128, false}, {129, true}, {384, true}, {16384, true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct choice_request request = request_of(cases[i].m);
    struct choice choice = {.way = CHOICE_PLAIN};
    assert_int_equal(cuda_variant_choice(&variant, &request, &choice), cases[i].takes);
    if (!cases[i].takes)
      continue;
    assert_int_equal(choice.way, CHOICE_MANY);
    assert_int_equal(choice.many.columns, 256);
    assert_int_equal(choice.many.group, 16);
  }
}

/* A go of any number of rows has a kernel by these. */
static void test_others_take_any_rows(void **state) {
  (void)state;
  const struct hopper_config config = {.columns = 64, .groups = 1, .rows = 64, .split_k = 1, .ahead = 3};
  const struct variant variant = variant_of_hopper(&config);
  for (int64_t m = 1; m <= 16384; m *= 2) {
    struct choice_request request = request_of(m);
    struct choice choice = {.way = CHOICE_PLAIN};
    assert_true(cuda_variant_choice(&variant, &request, &choice));
    assert_int_equal(choice.way, CHOICE_HOPPER);
    assert_memory_equal(&choice.hopper, &config, sizeof config);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_many_rows_that_are_few),
      cmocka_unit_test(test_others_take_any_rows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
