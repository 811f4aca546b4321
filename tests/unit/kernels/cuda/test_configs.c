/* What the families of few lines take, and how they are configured: few rows, many rows, plain kernels, a library. */
#include "kernels/cuda/families/cublaslt/config.h"
#include "kernels/cuda/families/few/config.h"
#include "kernels/cuda/families/plain/config.h"
#include "kernels/cuda/families/sm90/many/config.h"
#include "tests/support/reference/hopper_problem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool takes(const struct kernel_problem *problem, int capability) {
  struct kernel_problem at = *problem;
  at.device.capability = capability;
  return few_takes(&at);
}

static void test_few_takes(void **state) {
  struct kernel_problem int8 = product_of(GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 16, 8192, 8192);
  struct kernel_problem fp8 = product_of(GEMM_FORMAT_FP8, GEMM_SCALE_ONE, 1, 3, 16);
  struct kernel_problem block = product_of(GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK, 1, 128, 128);
  struct kernel_problem rows = product_of(GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 17, 128, 128);
  struct kernel_problem wide = product_of(GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 16, 128, 16384);
  assert_true(takes(&int8, 90));
  assert_false(takes(&int8, 80)); /* 16 rows of 8192 do not fit there */
  int8.m = 8;
  assert_true(takes(&int8, 80));
  assert_false(takes(&int8, 75));
  assert_true(takes(&fp8, 90));
  assert_false(takes(&fp8, 89));
  assert_false(takes(&block, 90));
  assert_false(takes(&rows, 90));
  assert_false(takes(&wide, 90));
}

/* Whatever is chosen can run, covers W, and leaves few multiprocessors without a tile. */
static void test_few_chooses(void **state) {
  static const int64_t ns[] = {1, 7, 130, 1280, 8192, 57344, 1 << 24}, ks[] = {16, 304, 1024, 3584, 8192, 10000};
  struct few_config listed[400];
  for (size_t i = 0; i < sizeof ns / sizeof *ns; i++)
    for (size_t j = 0; j < sizeof ks / sizeof *ks; j++) {
      struct kernel_problem product = product_of(GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 9, ns[i], ks[j]);
      struct few_config config = few_configure(&product);
      assert_true(few_config_valid(&config));
      int count = few_candidates(&product, listed, 400);
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
  for (int64_t k = 16; k < 20000; k += 16) {
    int stride = few_x_stride(k);
    assert_int_equal(stride % 128, 64);
    assert_true(stride >= (k + 63) / 64 * 64 + 64);
    assert_true(few_shared_bytes(9, k) >= 9 * (int64_t)stride + 2 * 16 * 16 * 20 * 4);
  }
}

static void test_many_chooses(void **state) {
  double busy;
  struct kernel_problem product = product_of(GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 1024, 8192, 8192);
  product.y_type = GEMM_BF16;
  assert_true(many_takes(&product));
  assert_int_equal(many_configure(&product, &busy).columns, 256); /* 256 tiles in two rounds */
  assert_true(busy > 0.96 && busy <= 1);
  product.m = 256; /* 64 wide tiles, or 128 */
  assert_int_equal(many_configure(&product, &busy).columns, 128);
  assert_true(busy > 0.96 && busy <= 1);
  product.n = 130;
  product.m = 129;
  assert_true(many_config_valid(&(struct many_config){.columns = 128, .group = 1}));
  (void)many_configure(&product, &busy);
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

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define WORKSPACE ((uint64_t)32 << 20)

enum { LONG = 32768 + 512 };

static void covers_k(void **state) {
  static const int64_t sizes[] = {1, 3, 64, 127, 1000, 65536}, ks[] = {1, 127, 2048, 4095, 8192, 131071, 1 << 24};
  for (size_t i = 0; i < COUNT(sizes); i++)
    for (size_t j = 0; j < COUNT(sizes); j++)
      for (size_t l = 0; l < COUNT(ks); l++) {
        int64_t m = sizes[i], n = sizes[j], k = ks[l], blocks = (m + 63) / 64 * ((n + 63) / 64);
        struct plain_cut cut = plain_cut(m, n, k, blocks, SMS, WORKSPACE);
        assert_true(cut.slices >= 1 && cut.slices <= 65535);
        assert_true(cut.slices * cut.slice_k >= k && (cut.slices - 1) * cut.slice_k < k);
        if (cut.slices == 1)
          continue;
        assert_int_equal(cut.slice_k % PLAIN_SLICE_ALIGN, 0);
        assert_true((uint64_t)(cut.slices * m * n) * 4 <= WORKSPACE);
      }
}

static void long_ones_are_brief(void **state) {
  for (int64_t n = 1; n <= 256; n *= 2)
    assert_in_range(plain_cut(64, n, 1 << 24, (n + 63) / 64, SMS, WORKSPACE).slice_k, 1, LONG);
  assert_in_range(plain_cut(1, 1, 1 << 24, 1, SMS, WORKSPACE).slice_k, 1, LONG);
}

/* One more launch costs more than it gains where K is short or the device is full. */
static void others_stay_whole(void **state) {
  assert_int_equal(plain_cut(1, 64, 2048, 1, SMS, WORKSPACE).slices, 1);
  assert_int_equal(plain_cut(4096, 4096, 8192, 4096, SMS, WORKSPACE).slices, 1);
  assert_int_equal(plain_cut(1, 64, 8192, 1, SMS, 0).slices, 1);
  assert_int_equal(plain_cut(1, 64, 8192, 1, SMS, WORKSPACE).slices, 4);
}

static bool keeps(enum gemm_format format, int32_t slices, int32_t cluster) {
  const int32_t attributes[ALGORITHM_ATTRIBUTES] = {
      [ALGORITHM_ID] = 66, [ALGORITHM_SPLIT_K] = slices, [ALGORITHM_CLUSTER] = cluster};
  return library_keeps_sums(format, attributes);
}

/* Halves whose K is cut up by kernels in clusters are added up as halves. */
static void many_slices_of_halves_are_refused(void **state) {
  assert_false(keeps(GEMM_FORMAT_F16, 82, 2));
  assert_false(keeps(GEMM_FORMAT_BF16, 82, 2));
  assert_true(keeps(GEMM_FORMAT_F16, 1, 2));
  assert_true(keeps(GEMM_FORMAT_F16, 82, 0));
  assert_true(keeps(GEMM_FORMAT_INT8, 82, 2));
}

/* W of few rows in FP8 is multiplied in f32: no way of the library's is one, whoever asks. */
static void few_rows_of_fp8_are_not_the_librarys(void **state) {
  struct kernel_problem problem = {.device = {.capability = 90, .multiprocessors = 132},
                                   .scale = GEMM_SCALE_ROW,
                                   .k = 128,
                                   .k_padded = 128,
                                   .m = 1,
                                   .y_type = GEMM_BF16};
  struct library_way out;
  for (int way = 0; way < LIBRARY_WAYS; way++)
    for (int64_t n = 1; n <= FP8_COLUMNS_LEAST; n += FP8_COLUMNS_LEAST - 1) {
      problem.n = n;
      problem.n_padded = 128;
      problem.format = GEMM_FORMAT_FP8;
      bool taken = library_way(&problem, way, &out);
      assert_true(n == FP8_COLUMNS_LEAST || !taken);
      problem.format = GEMM_FORMAT_F16;
      problem.scale = GEMM_SCALE_NONE;
      assert_true(way != 0 || library_way(&problem, way, &out));
      problem.scale = GEMM_SCALE_ROW;
    }
  problem.format = GEMM_FORMAT_FP8;
  assert_true(library_way(&problem, 1, &out));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_few_takes),
      cmocka_unit_test(test_few_chooses),
      cmocka_unit_test(test_few_shared),
      cmocka_unit_test(test_many_chooses),
      cmocka_unit_test(covers_k),
      cmocka_unit_test(long_ones_are_brief),
      cmocka_unit_test(others_stay_whole),
      cmocka_unit_test(many_slices_of_halves_are_refused),
      cmocka_unit_test(few_rows_of_fp8_are_not_the_librarys),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
