/* Weights with experts, and products over them: sizes, and what is refused. */
#include "proto/gemm.h"
#include "proto/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum { BEGIN = 4096, END = 1 << 20 };

/* What all experts take is what one takes as a weight by itself, as often. */
static void an_expert_is_a_weight(void **state) {
  for (int format = GEMM_FORMAT_INT8; format < GEMM_FORMATS; format++) {
    struct gemm_weight weight = {.n = 130, .k = 260, .format = (enum gemm_format)format, .experts = 7};
    weight.scale = gemm_format_facts(weight.format)->scale_default;
    struct gemm_weight one = gemm_expert(&weight);
    struct gemm_layout all, single;
    struct error error;
    assert_int_equal(gemm_layout_compute(&weight, &all, &error), STATUS_OK);
    assert_int_equal(gemm_layout_compute(&one, &single, &error), STATUS_OK);
    assert_int_equal(gemm_matrices(&weight), 7);
    assert_int_equal(gemm_matrices(&one), 1);
    assert_true(all.codes_bytes == 7 * single.codes_bytes && all.scale_count == 7 * single.scale_count);
    assert_true(all.scale_columns == single.scale_columns && all.row_bytes == single.row_bytes);
  }
}

static void refused_weights(void **state) {
  struct gemm_weight weight = {8, 8, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, LIMIT_EXPERTS + 1, 0};
  struct error error;
  assert_int_equal(gemm_weight_check(&weight, &error), STATUS_INVALID);
  assert_string_equal(error.text, "experts must be 0..512, got 513");
  weight.experts = -1;
  assert_int_equal(gemm_weight_check(&weight, &error), STATUS_INVALID);
  assert_string_equal(error.text, "experts must be 0..512, got -1");
}

static const struct gemm_weight layer = {48, 100, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 6, 0};

/* x [4, 100] f32 at 4096, y [4 * 2, 48] f32 at 8192, ids at 16384. */
static struct gemm_product good_product(void) {
  return (struct gemm_product){.m = 4,
                               .n = 48,
                               .k = 100,
                               .x_type = GEMM_F32,
                               .y_type = GEMM_F32,
                               .x_offset = 4096,
                               .y_offset = 8192,
                               .choice = {.top = 2, .ids_offset = 16384}};
}

static void sizes(void **state) {
  struct gemm_product product = good_product();
  struct gemm_extent extent;
  struct error error;
  assert_int_equal(gemm_product_check(&product, &layer, BEGIN, END, &extent, &error), STATUS_OK);
  assert_true(extent.x_bytes == 4 * 400 && extent.y_bytes == 8 * 192 && extent.ids_bytes == 32);
  assert_true(extent.routing_bytes == 0);

  product.choice.x_pairs = product.choice.sum = product.choice.routed = true;
  product.choice.routing_offset = 20480;
  product.bias_type = GEMM_F16;
  product.bias_offset = 32768;
  assert_int_equal(gemm_product_check(&product, &layer, BEGIN, END, &extent, &error), STATUS_OK);
  assert_true(extent.x_bytes == 8 * 400 && extent.y_bytes == 4 * 192 && extent.ids_bytes == 32);
  assert_true(extent.routing_bytes == 32 && extent.bias_bytes == 6 * 96);
}

static void expect_refused(const struct gemm_product *product, const struct gemm_weight *weight, enum status status,
                           const char *text) {
  struct gemm_extent extent;
  struct error error;
  memset(&error, 0x5a, sizeof error);
  assert_int_equal(gemm_product_check(product, weight, BEGIN, END, &extent, &error), status);
  assert_string_equal(error.text, text);
  error.text[0] = '\0';
  gemm_error_compose(&error);
  assert_string_equal(error.text, text);
}

static void refused_products(void **state) {
  struct gemm_product product = good_product();
  struct gemm_weight dense = gemm_expert(&layer);
  expect_refused(&product, &dense, STATUS_INVALID, "T must be 0, got 2");
  product.choice.top = 0;
  expect_refused(&product, &layer, STATUS_INVALID, "T must be 1..6, got 0");
  product.choice.top = 7;
  expect_refused(&product, &layer, STATUS_INVALID, "T must be 1..6, got 7");
  product.choice.top = -1;
  expect_refused(&product, &layer, STATUS_INVALID, "T must be 1..6, got -1");

  product = good_product();
  product.m = LIMIT_M / 2 + 1;
  expect_refused(&product, &layer, STATUS_INVALID, "pairs must be 1..16777216, got 16777218");

  product = good_product();
  product.x_type = GEMM_INT8;
  expect_refused(&product, &layer, STATUS_UNSUPPORTED, "x type int8 (4) is not supported with this weight");
  product.y_type = GEMM_S32;
  expect_refused(&product, &layer, STATUS_UNSUPPORTED, "x type int8 (4) is not supported with this weight");

  product = good_product();
  product.choice.routed = true;
  product.choice.routing_offset = 20480;
  expect_refused(&product, &layer, STATUS_INVALID, "routing offset must be 0, got 20480");
}

static void refused_places(void **state) {
  struct gemm_product product = good_product();
  product.choice.ids_offset = 0;
  expect_refused(&product, &layer, STATUS_INVALID, "ids offset must be 4096..1048544, got 0");
  product.choice.ids_offset = END
  -16;
  expect_refused(&product, &layer, STATUS_INVALID, "ids offset must be 4096..1048544, got 1048560");
  product.choice.ids_offset = 16388;
  expect_refused(&product, &layer, STATUS_INVALID, "ids offset must be a multiple of 16, got 16388");
  product.choice.ids_offset = 8192 + 7 * 192;
  expect_refused(&product, &layer, STATUS_INVALID, "ids offset 9536: y overlaps them");
  product.choice.ids_offset = 16384;

  product.choice.sum = product.choice.routed = true;
  product.choice.routing_offset = UINT64_MAX;
  expect_refused(&product, &layer, STATUS_INVALID, "routing offset must be 4096..1048544, got 9223372036854775807");
  product.choice.routing_offset = 8192;
  expect_refused(&product, &layer, STATUS_INVALID, "routing offset 8192: y overlaps them");

  /* All rows of a pair's x lie in the arena, too. */
  product = good_product();
  product.choice.x_pairs = true;
  product.x_offset = END
  -4 * 400;
  expect_refused(&product, &layer, STATUS_INVALID, "x offset must be 4096..1045376, got 1046976");
}

/* Where x is in memory of the client's own, ids and routing are, too. */
static void in_memory_of_ones_own(void **state) {
  struct gemm_product product = good_product();
  struct gemm_extent extent;
  struct error error;
  product.x_tensor = 3;
  product.x_tensor_bytes = 2048;
  product.x_offset = 0;
  product.choice.ids_offset = 2048 - 32;
  assert_int_equal(gemm_product_check(&product, &layer, BEGIN, END, &extent, &error), STATUS_OK);
  product.choice.ids_offset = 2048 - 16;
  expect_refused(&product, &layer, STATUS_INVALID, "ids offset must be 0..2016, got 2032");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_expert_is_a_weight),
      cmocka_unit_test(refused_weights),
      cmocka_unit_test(sizes),
      cmocka_unit_test(refused_products),
      cmocka_unit_test(refused_places),
      cmocka_unit_test(in_memory_of_ones_own),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
