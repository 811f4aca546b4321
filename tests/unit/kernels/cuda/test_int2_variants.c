/* What INT2 and INT4A8 weights can be tuned in on Hopper: lists, neighbours, refusals. No device. */
#include "kernels/cuda/families/sm90/int2/variants.h"
#include "kernels/cuda/families/sm90/int4/variants.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SMS = 132, MOST = 1024 };

static const struct variant_family *const families[] = {&variant_plain, &int2_few_family, &int2_many_family,
                                                        &int2a8_family, NULL};
static struct variant list[MOST], near[MOST];

static struct kernel_problem problem_of(enum gemm_format format, enum gemm_type x_type, int64_t m, int64_t n,
                                        int64_t k) {
  return (struct kernel_problem){.device = {.capability = 90, .multiprocessors = SMS},
                                 .format = format,
                                 .tiled = true,
                                 .x_type = x_type,
                                 .y_type = GEMM_F16,
                                 .m = m,
                                 .n = n,
                                 .k = k};
}

/* The only offer. */
static struct variant own_of(const struct kernel_problem *problem) {
  struct variant own = {.family = NULL};
  double us = 0;
  bool offered[] = {int2_few_predict(problem, &own, &us), int2_many_predict(problem, &own, &us),
                    int2a8_predict(problem, &own, &us)};
  assert_int_equal(offered[0] + offered[1] + offered[2], 1);
  assert_true(us > 1 && us < 1e6);
  return own;
}

static int list_of(const struct kernel_problem *problem, bool all, struct variant *out, int most) {
  out[0] = own_of(problem);
  int count = int2_few_list(NULL, problem, all, out, 1, most);
  count = int2a8_list(NULL, problem, all, out, count, most);
  return int2_many_list(NULL, problem, all, out, count, most);
}

static enum status check(const struct kernel_problem *problem, const struct variant *variant, struct error *error) {
  struct variant copy = *variant;
  return int2_check(NULL, problem, &copy, NULL, error);
}

static void check_list(const struct kernel_problem *problem, bool all, int least, int highest) {
  struct error error;
  struct variant own = own_of(problem);
  int count = list_of(problem, all, list, MOST);
  assert_in_range(count, least, highest);
  assert_true(variant_equal(&list[0], &own));
  for (int i = 0; i < count; i++) {
    assert_int_equal(check(problem, &list[i], &error), STATUS_OK);
    for (int j = 0; j < i; j++)
      assert_false(variant_equal(&list[i], &list[j]));
  }
  assert_int_equal(list_of(problem, all, list, 2), 2);
}

static void test_lists(void **state) {
  static const int64_t shapes[][2] = {{4096, 4096}, {8192, 1024}, {1280, 8192}, {2560, 2560}, {57344, 8192}};
  static const int64_t rows[] = {1, 8, 16, 32, 64, 256};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (size_t j = 0; j < sizeof rows / sizeof *rows; j++) {
      struct kernel_problem problem = problem_of(GEMM_FORMAT_INT2, GEMM_F16, rows[j], shapes[i][0], shapes[i][1]);
      check_list(&problem, false, 2, 45);
      check_list(&problem, true, 8, MOST);
      problem.x_type = GEMM_F32;
      if (rows[j] <= 64)
        check_list(&problem, false, 4, 9);
      problem.format = GEMM_FORMAT_INT2A8;
      check_list(&problem, false, 4, rows[j] <= 16 ? 9 : 26);
      check_list(&problem, true, 16, MOST);
    }
}

/* What serves without tuning is what the search begins with. */
static void test_own(void **state) {
  struct int2_few_way ways[INT2_FEW_WAYS];
  struct int2_few_config few;
  struct int2_many_config many, should = int2_many_configure(GEMM_F16, 64, 4096, 4096, SMS);
  struct kernel_problem problem = problem_of(GEMM_FORMAT_INT2, GEMM_BF16, 3, 4096, 4096);
  assert_true(int2_few_ways_find(4096, 4096, SMS, ways));
  struct variant own = own_of(&problem);
  assert_true(int2_few_of(&own, GEMM_BF16, GEMM_F16, 3, &few));
  assert_memory_equal(&few, &ways[2].config, sizeof few);
  problem.y_type = GEMM_F32; /* as for f32 x, a row takes two columns */
  own = own_of(&problem);
  assert_true(int2_few_of(&own, GEMM_BF16, GEMM_F32, 3, &few));
  assert_memory_equal(&few, &ways[3].config, sizeof few);
  problem.x_type = GEMM_F32;
  problem.y_type = GEMM_F16;
  problem.m = 5;
  own = own_of(&problem);
  assert_true(int2_few_of(&own, GEMM_F32, GEMM_F16, 5, &few));
  assert_memory_equal(&few, &ways[4].config, sizeof few);
  problem = problem_of(GEMM_FORMAT_INT2, GEMM_F16, 64, 4096, 4096);
  own = own_of(&problem);
  assert_true(int2_many_of(&own, &many));
  assert_memory_equal(&many, &should, sizeof many);
  assert_false(int2_few_of(&own, GEMM_F16, GEMM_F16, 64, &few));
  should = int2_many_configure(GEMM_INT8, 64, 4096, 4096, SMS); /* whatever x is before it is quantized */
  problem = problem_of(GEMM_FORMAT_INT2A8, GEMM_F32, 64, 4096, 4096);
  own = own_of(&problem);
  assert_true(int2_many_of(&own, &many));
  assert_memory_equal(&many, &should, sizeof many);
  problem.m = 16;
  own = own_of(&problem);
  assert_false(int2_many_of(&own, &many));
  assert_false(int2_many_of(NULL, &many));
}

/* From nine rows on all at once, but f32 x and INT2A8. */
static void test_few_or_many(void **state) {
  static const struct {
    enum gemm_format format;
    enum gemm_type x_type;
    int64_t m, n, k;
    bool many;
  } rows[] = {
      {GEMM_FORMAT_INT2, GEMM_F16, 16, 10240, 8192, true}, {GEMM_FORMAT_INT2, GEMM_BF16, 16, 57344, 8192, true},
      {GEMM_FORMAT_INT2, GEMM_F16, 9, 57344, 8192, true},  {GEMM_FORMAT_INT2, GEMM_F16, 8, 10240, 8192, false},
      {GEMM_FORMAT_INT2, GEMM_F16, 16, 4096, 4096, true},  {GEMM_FORMAT_INT2, GEMM_F32, 16, 10240, 8192, false},
      {GEMM_FORMAT_INT2, GEMM_F16, 9, 8192, 28672, true},  {GEMM_FORMAT_INT2, GEMM_F16, 17, 4096, 4096, true},
      {GEMM_FORMAT_INT2, GEMM_F16, 8, 8192, 28672, false}, {GEMM_FORMAT_INT2A8, GEMM_F16, 16, 10240, 8192, false},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct kernel_problem problem = problem_of(rows[i].format, rows[i].x_type, rows[i].m, rows[i].n, rows[i].k);
    struct int2_many_config config;
    struct variant own = own_of(&problem);
    if (int2_many_of(&own, &config) != rows[i].many)
      fail_msg("M %lld N %lld K %lld", (long long)rows[i].m, (long long)rows[i].n, (long long)rows[i].k);
  }
}

/* f32 y goes there from 5 rows on, unless W has so few rows that most of the device would wait. */
static void test_few_or_many_of_f32_y(void **state) {
  static const struct {
    int64_t m, n, k;
    bool many;
  } rows[] = {{4, 8192, 8192, false},
              {5, 8192, 8192, true},
              {8, 2048, 2048, true},
              {8, 128, 8192, false},
              {9, 128, 8192, true}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct kernel_problem problem = problem_of(GEMM_FORMAT_INT2, GEMM_BF16, rows[i].m, rows[i].n, rows[i].k);
    struct int2_many_config config;
    problem.y_type = GEMM_F32;
    struct variant own = own_of(&problem);
    if (int2_many_of(&own, &config) != rows[i].many)
      fail_msg("M %lld N %lld K %lld", (long long)rows[i].m, (long long)rows[i].n, (long long)rows[i].k);
  }
}

static void test_neighbours(void **state) {
  struct error error;
  struct kernel_problem problem = problem_of(GEMM_FORMAT_INT2A8, GEMM_F16, 8, 8192, 8192);
  struct variant base = own_of(&problem);
  int count = int2_neighbours(NULL, &problem, &base, false, near, MOST);
  assert_in_range(count, 2, 8);
  for (int i = 0; i < count; i++) {
    int changed = 0;
    for (size_t j = 0; j < base.family->count; j++)
      changed += near[i].values[j] != base.values[j];
    assert_int_equal(changed, 1);
    assert_int_equal(check(&problem, &near[i], &error), STATUS_OK);
  }
  assert_int_equal(int2_neighbours(NULL, &problem, &base, false, near, 1), 1);
}

/* Orders of tiles that are the same are listed once: 64 rows are 4 tiles of 16, 2 of 32 and 1 of 64 or 128. */
static void test_orders_once(void **state) {
  struct kernel_problem problem = problem_of(GEMM_FORMAT_INT2, GEMM_F16, 64, 1280, 8192);
  int count = list_of(&problem, true, list, MOST), orders[INT2_MANY_COLUMNS_MOST + 1] = {0};
  struct int2_many_config config;
  for (int i = 0; i < count; i++)
    if (int2_many_of(&list[i], &config) && config.split_k == 0 && config.rows == INT2_MANY_ROWS_MOST)
      orders[config.columns]++;
  assert_int_equal(orders[16], 3);
  assert_int_equal(orders[32], 2);
  assert_int_equal(orders[64], 1);
  assert_int_equal(orders[128], 1);
  struct variant base = {.family = &int2_many_family, .values = {32, 0, 8, 256}};
  count = int2_neighbours(NULL, &problem, &base, false, near, MOST);
  for (int i = 0; i < count; i++)
    assert_true(int2_many_of(&near[i], &config) && (config.columns != 32 || config.split_k != 0));
  base.values[2] = 1;
  count = int2_neighbours(NULL, &problem, &base, false, near, MOST);
  for (int i = 0; i < count; i++)
    orders[32] += int2_many_of(&near[i], &config) && config.columns == 32 && config.split_k == 0;
  assert_int_equal(orders[32], 3);
}

/* With 9 to 16 rows a tuning file may hold one of int2_few, which had 16 columns: it is read, and not taken. f32 x goes
 * there with any number of rows. */
static void test_older_files(void **state) {
  struct error error;
  struct variant kept;
  assert_int_equal(variant_parse(families, "int2_few split_k=2 rows=128", &kept, &error), STATUS_OK);
  for (int64_t m = 8; m <= 64; m++) {
    struct kernel_problem problem = problem_of(GEMM_FORMAT_INT2, GEMM_BF16, m, 4096, 4096);
    assert_int_equal(check(&problem, &kept, &error), m <= 8 ? STATUS_OK : STATUS_UNSUPPORTED);
    int count = list_of(&problem, true, list, MOST), few = 0;
    for (int i = 0; i < count; i++)
      few += list[i].family == &int2_few_family;
    assert_int_equal(few > 0, m <= 8);
    problem.x_type = GEMM_F32;
    assert_int_equal(check(&problem, &kept, &error), STATUS_OK);
  }
  assert_int_equal(variant_parse(families, "int2_few columns=16 split_k=2 rows=128", &kept, &error), STATUS_NOT_FOUND);
  assert_int_equal(variant_parse(families, "int2_few split_k=2 blocks=2", &kept, &error), STATUS_NOT_FOUND);
}

static void test_refusals(void **state) {
  static const struct {
    enum gemm_format format;
    enum gemm_type x_type;
    const char *kernel, *why;
  } rows[] = {
      {GEMM_FORMAT_INT2, GEMM_F16, "int2_few split_k=2 rows=64",
       "family int2_few takes fewer rows of f16 or bf16 x than 16"},
      {GEMM_FORMAT_INT2A8, GEMM_F16, "int2_few split_k=2", "family int2_few takes INT2 weights, not int2a8"},
      {GEMM_FORMAT_INT2, GEMM_F16, "int2a8 split_k=2", "family int2a8 takes INT2A8 weights, not int2"},
      {GEMM_FORMAT_INT2, GEMM_F32, "int2_many columns=16", "family int2_many takes x of f16 or bf16, not of f32"},
      {GEMM_FORMAT_INT2, GEMM_F32, "int2_few split_k=3", "split_k is a power of two"},
      {GEMM_FORMAT_INT2, GEMM_F16, "int2_many columns=40", "columns is 16, 24, 32, 48"},
      {GEMM_FORMAT_INT2A8, GEMM_F16, "int2_many columns=16", "for INT2A8 32, 48"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct kernel_problem problem = problem_of(rows[i].format, rows[i].x_type, 16, 4096, 4096);
    struct variant variant;
    struct error error;
    assert_int_equal(variant_parse(families, rows[i].kernel, &variant, &error), STATUS_OK);
    assert_int_equal(check(&problem, &variant, &error), STATUS_UNSUPPORTED);
    if (strstr(error.text, rows[i].why) == NULL)
      fail_msg("%s: %s", rows[i].kernel, error.text);
  }
}

static void test_four_bits(void **state) {
  static const int64_t rows[] = {1, 17, 64, 65, 256, 4096};
  struct kernel_problem problem = problem_of(GEMM_FORMAT_INT4A8, GEMM_F16, 1, 4096, 4096);
  struct variant own, base = {.family = &int4_many_family, .values = {64, 0, 1}};
  struct int2_many_config config;
  struct error error;
  double us = 0, before = 0;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++, before = us) {
    problem.m = rows[i];
    assert_true(int4_many_predict(&problem, &own, &us) && us >= before);
    assert_true(int4_many_of(&own, &config) && config.columns < 2 * rows[i] + 32);
    for (int all = 0; all < 2; all++) {
      int count = int4_many_list(NULL, &problem, all, list, 0, MOST), of_own = 0;
      assert_int_equal(int4_many_list(NULL, &problem, all, list, count, count), count);
      for (int j = 0; j < count; j++) {
        assert_int_equal(int4_many_check(NULL, &problem, &list[j], NULL, &error), STATUS_OK);
        of_own += variant_equal(&list[j], &own);
      }
      assert_int_equal(of_own, 1);
    }
  }
  assert_int_equal(int4_many_neighbours(NULL, &problem, &base, true, near, MOST), 5);
  problem.m = 64;
  assert_int_equal(int4_many_neighbours(NULL, &problem, &base, true, near, MOST), 0); /* one tile of x */
  base.values[0] = 96;
  assert_int_equal(int4_many_check(NULL, &problem, &base, NULL, &error), STATUS_UNSUPPORTED);
  assert_non_null(strstr(error.text, "columns is 16 (not INT4A8), 32, 64 or 128"));
  problem.format = GEMM_FORMAT_INT4;
  assert_int_equal(int4_many_kind(&problem), INT4_MANY_SCALED);
  problem.x_type = GEMM_BF16;
  assert_int_equal(int4_many_kind(&problem), INT4_MANY_SUMS);
  problem.x_type = GEMM_F32;
  assert_false(int4_many_predict(&problem, &own, &us));
  problem.x_type = GEMM_F16;
  problem.n = 127; /* too few for what scaled numbers are rounded by to average out */
  assert_true(int4_many_predict(&problem, &own, &us) && int4_many_of(&own, &config) && config.columns == 64);
  base.values[0] = 128;
  assert_int_equal(int4_many_check(NULL, &problem, &base, NULL, &error), STATUS_UNSUPPORTED);
  problem.format = GEMM_FORMAT_MXFP4;
  assert_int_equal(int4_many_kind(&problem), INT4_MANY_SCALED);
  problem.format = GEMM_FORMAT_NVFP4, problem.scale = GEMM_SCALE_GROUP16_FACTORS;
  assert_int_equal(int4_many_kind(&problem), INT4_MANY_SCALED);
  problem.format = GEMM_FORMAT_INT4A8, problem.scale = GEMM_SCALE_GROUP32;
  assert_int_equal(int4_many_kind(&problem), INT4_MANY_INT8_FINE);
  assert_int_equal(int4_many_check(NULL, &problem, &base, NULL, &error), STATUS_UNSUPPORTED);
  problem.format = GEMM_FORMAT_INT2A8;
  assert_false(int4_many_predict(&problem, &own, &us));
  assert_int_equal(int4_many_list(NULL, &problem, true, list, 0, MOST), 0);
  assert_int_equal(int4_many_check(NULL, &problem, &base, NULL, &error), STATUS_UNSUPPORTED);
  assert_non_null(strstr(error.text, "INT4A8"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_lists),       cmocka_unit_test(test_own),
      cmocka_unit_test(test_neighbours),  cmocka_unit_test(test_orders_once),
      cmocka_unit_test(test_refusals),    cmocka_unit_test(test_older_files),
      cmocka_unit_test(test_few_or_many), cmocka_unit_test(test_few_or_many_of_f32_y),
      cmocka_unit_test(test_four_bits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
