#include "proto/gemm.h"
#include "proto/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const enum gemm_type types[] = {GEMM_F32, GEMM_F16, GEMM_BF16, GEMM_INT8, GEMM_E4M3, GEMM_S32};

static void names_and_numbers(void **state) {
  static const uint32_t bytes[] = {4, 2, 2, 1, 1, 4};
  static const char *const names[] = {"f32", "f16", "bf16", "int8", "e4m3", "s32"};
  for (size_t i = 0; i < COUNT(types); i++) {
    enum gemm_type type;
    assert_int_equal(gemm_type_bytes(types[i]), bytes[i]);
    assert_string_equal(gemm_type_name(types[i]), names[i]);
    assert_true(gemm_type_parse(names[i], &type) && type == types[i]);
  }
  for (int number = GEMM_FORMAT_INT8; number < GEMM_FORMATS; number++) {
    enum gemm_format format;
    assert_true(gemm_format_parse(gemm_format_name((enum gemm_format)number), &format));
    assert_int_equal(format, number);
  }
  for (int number = GEMM_SCALE_NONE; number < GEMM_SCALES; number++) {
    enum gemm_scale scale;
    assert_true(gemm_scale_parse(gemm_scale_name((enum gemm_scale)number), &scale));
    assert_int_equal(scale, number);
  }
}

static void unknown_names_and_numbers(void **state) {
  enum gemm_type type = GEMM_F32;
  enum gemm_format format = GEMM_FORMAT_INT8;
  enum gemm_scale scale = GEMM_SCALE_ONE;
  assert_false(gemm_type_parse("f64", &type) || gemm_type_parse("", &type) || gemm_type_parse("none", &type));
  assert_int_equal(type, GEMM_TYPE_NONE);
  assert_false(gemm_format_parse("INT8", &format));
  assert_int_equal(format, GEMM_FORMAT_NONE);
  assert_false(gemm_scale_parse("rows", &scale));
  assert_int_equal(scale, GEMM_SCALE_NONE);
  assert_int_equal(gemm_type_bytes(GEMM_TYPE_NONE), 0);
  assert_int_equal(gemm_type_bytes((enum gemm_type)200), 0);
  assert_string_equal(gemm_type_name((enum gemm_type)200), "unknown");
  assert_string_equal(gemm_format_name((enum gemm_format)200), "unknown");
  assert_string_equal(gemm_scale_name((enum gemm_scale)280), "unknown");
}

static void arithmetic_saturates(void **state) {
  assert_true(gemm_round_up(0, 16) == 0);
  assert_true(gemm_round_up(1, 16) == 16);
  assert_true(gemm_round_up(16, 16) == 16);
  assert_true(gemm_round_up(UINT64_MAX - 15, 16) == UINT64_MAX - 15);
  assert_true(gemm_round_up(UINT64_MAX - 14, 16) == UINT64_MAX);
  assert_true(gemm_round_up(UINT64_MAX, 4096) == UINT64_MAX);
  assert_true(gemm_ceil_div(0, 128) == 0 && gemm_ceil_div(1, 128) == 1 && gemm_ceil_div(128, 128) == 1);
  assert_true(gemm_ceil_div(129, 128) == 2 && gemm_ceil_div(UINT64_MAX, 1) == UINT64_MAX);
  assert_true(gemm_ceil_div(UINT64_MAX, 2) == (uint64_t)1 << 63);
}

/* ---- weights */

static void refused_weights(void **state) {
  static const struct {
    struct gemm_weight weight;
    const char *text;
  } cases[] = {
      {{0, 8, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0}, "N must be 1..16777216, got 0"},
      {{-1, 8, GEMM_FORMAT_FP8, GEMM_SCALE_ROW, 0, 0}, "N must be 1..16777216, got -1"},
      {{LIMIT_N + 1, 8, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0}, "N must be 1..16777216, got 16777217"},
      {{8, 0, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0}, "K must be 1..131071, got 0"},
      {{8, LIMIT_K_INT8 + 1, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0}, "K must be 1..131071, got 131072"},
      {{8, LIMIT_K + 1, GEMM_FORMAT_F16, GEMM_SCALE_NONE, 0, 0}, "K must be 1..16777216, got 16777217"},
      {{8, 8, GEMM_FORMAT_INT8, GEMM_SCALE_BLOCK, 0, 0}, "scale mode block (3) does not go with format int8"},
      {{8, 8, GEMM_FORMAT_INT8, GEMM_SCALE_NONE, 0, 0}, "scale mode none (0) does not go with format int8"},
      {{8, 8, GEMM_FORMAT_FP8, GEMM_SCALE_GROUP, 0, 0}, "scale mode group (4) does not go with format fp8"},
      {{8, 8, GEMM_FORMAT_INT2, GEMM_SCALE_ONE, 0, 0}, "scale mode one (1) does not go with format int2"},
      {{8, 8, GEMM_FORMAT_INT2A8, GEMM_SCALE_ONE, 0, 0}, "scale mode one (1) does not go with format int2a8"},
      {{8, 8, GEMM_FORMAT_F16, GEMM_SCALE_ROW, 0, 0}, "scale mode row (2) does not go with format f16"},
      {{8, 8, GEMM_FORMAT_INT2, GEMM_SCALE_ROW_ZEROS, 0, 0}, "scale mode row-zeros (11) does not go with format int2"},
      {{8, 8, GEMM_FORMAT_INT4, GEMM_SCALE_ONE, 0, 0}, "scale mode one (1) does not go with format int4"},
      {{8, 8, GEMM_FORMAT_MXFP4, GEMM_SCALE_GROUP32_BF16, 0, 0},
       "scale mode group32-bf16 (10) does not go with format mxfp4"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct error error;
    struct gemm_layout layout;
    memset(&error, 0x5a, sizeof error);
    assert_int_equal(gemm_weight_check(&cases[i].weight, &error), STATUS_INVALID);
    assert_string_equal(error.text, cases[i].text);
    assert_int_equal(gemm_layout_compute(&cases[i].weight, &layout, &error), STATUS_INVALID);
  }
}

static void refused_numbers(void **state) {
  struct gemm_weight cases[] = {{8, 8, GEMM_FORMAT_NONE, GEMM_SCALE_NONE, 0, 0},
                                {8, 8, GEMM_FORMATS, GEMM_SCALE_NONE, 0, 0},
                                {8, 8, GEMM_FORMAT_BF16, GEMM_SCALES, 0, 0}};
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct error error = {0};
    char text[128];
    if (i < 2)
      snprintf(text, sizeof text, "format must be 1..%d, got %d", GEMM_FORMATS - 1, (int)cases[i].format);
    else
      snprintf(text, sizeof text, "scale mode unknown (%d) does not go with format bf16", GEMM_SCALES);
    assert_int_equal(gemm_weight_check(&cases[i], &error), STATUS_INVALID);
    assert_string_equal(error.text, text);
  }
}

static void layouts(void **state) {
  static const struct {
    struct gemm_weight weight;
    struct gemm_layout layout;
  } cases[] = {
      {{1, 1, GEMM_FORMAT_INT8, GEMM_SCALE_ONE, 0, 0}, {16, 16, 256, 1, 1, 1, 4, 260, 0, 0, 0, 0, 0, 0, 0}},
      {{3, 17, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0}, {32, 96, 256, 3, 3, 1, 12, 268, 0, 0, 0, 0, 0, 0, 0}},
      {{8, 32, GEMM_FORMAT_FP8, GEMM_SCALE_ROW, 0, 0}, {32, 256, 256, 8, 8, 1, 32, 288, 0, 0, 0, 0, 0, 0, 0}},
      {{129, 257, GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK, 0, 0},
       {272, 35088, 35328, 6, 2, 3, 24, 35352, 0, 0, 0, 0, 0, 0, 0}},
      {{128, 128, GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK, 0, 0},
       {128, 16384, 16384, 1, 1, 1, 4, 16388, 0, 0, 0, 0, 0, 0, 0}},
      {{2, 1, GEMM_FORMAT_INT2, GEMM_SCALE_GROUP, 0, 0}, {32, 64, 256, 2, 2, 1, 4, 260, 0, 0, 0, 0, 0, 0, 0}},
      {{3, 129, GEMM_FORMAT_INT2, GEMM_SCALE_GROUP, 0, 0}, {64, 192, 256, 6, 3, 2, 12, 268, 0, 0, 0, 0, 0, 0, 0}},
      {{3, 129, GEMM_FORMAT_INT2A8, GEMM_SCALE_GROUP, 0, 0}, {64, 192, 256, 6, 3, 2, 12, 268, 0, 0, 0, 0, 0, 0, 0}},
      {{3, 129, GEMM_FORMAT_INT2, GEMM_SCALE_ROW, 0, 0}, {64, 192, 256, 3, 3, 1, 6, 262, 0, 0, 0, 0, 0, 0, 0}},
      {{3, 129, GEMM_FORMAT_INT4, GEMM_SCALE_GROUP64, 0, 0}, {128, 384, 512, 9, 3, 3, 18, 530, 0, 0, 0, 0, 0, 0, 0}},
      {{3, 129, GEMM_FORMAT_INT4A8, GEMM_SCALE_GROUP32_BF16_ZEROS, 0, 0},
       {128, 384, 512, 15, 3, 5, 30, 783, 0, 0, 0, 768, 15, 0, 0}},
      {{3, 129, GEMM_FORMAT_INT4, GEMM_SCALE_GROUP32_ZEROS_F16, 0, 0},
       {128, 384, 512, 15, 3, 5, 30, 798, 0, 0, 0, 768, 30, 0, 0}},
      {{3, 129, GEMM_FORMAT_MXFP4, GEMM_SCALE_GROUP32, 0, 0}, {128, 384, 512, 15, 3, 5, 15, 527, 0, 0, 0, 0, 0, 0, 0}},
      {{3, 129, GEMM_FORMAT_NVFP4, GEMM_SCALE_GROUP16_FACTORS, 0, 0},
       {128, 384, 512, 27, 3, 9, 27, 780, 0, 0, 0, 0, 0, 768, 12}},
      {{5, 15, GEMM_FORMAT_F16, GEMM_SCALE_NONE, 0, 0}, {32, 160, 256, 0, 0, 0, 0, 256, 0, 0, 0, 0, 0, 0, 0}},
      {{5, 17, GEMM_FORMAT_BF16, GEMM_SCALE_NONE, 0, 0}, {64, 320, 512, 0, 0, 0, 0, 512, 0, 0, 0, 0, 0, 0, 0}},
      {{LIMIT_N, LIMIT_K, GEMM_FORMAT_F16, GEMM_SCALE_NONE, 0, 0},
       {(uint64_t)1 << 25, (uint64_t)1 << 49, (uint64_t)1 << 49, 0, 0, 0, 0, (uint64_t)1 << 49, 0, 0, 0, 0, 0, 0, 0}},
      /* with experts */
      {{3, 17, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 2, 0}, {32, 192, 256, 6, 6, 1, 24, 280, 0, 0, 0, 0, 0, 0, 0}},
      {{3, 17, GEMM_FORMAT_INT8, GEMM_SCALE_ONE, 2, 0}, {32, 192, 256, 2, 2, 1, 8, 264, 0, 0, 0, 0, 0, 0, 0}},
      {{129, 257, GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK, 3, 0},
       {272, 105264, 105472, 18, 6, 3, 72, 105544, 0, 0, 0, 0, 0, 0, 0}},
      {{3, 129, GEMM_FORMAT_INT2, GEMM_SCALE_GROUP, 4, 0}, {64, 768, 768, 24, 12, 2, 48, 816, 0, 0, 0, 0, 0, 0, 0}},
      {{3, 129, GEMM_FORMAT_INT4, GEMM_SCALE_ROW_ZEROS, 4, 0},
       {128, 1536, 1536, 12, 12, 1, 24, 1804, 0, 0, 0, 1792, 12, 0, 0}},
      {{3, 129, GEMM_FORMAT_NVFP4, GEMM_SCALE_GROUP16_FACTORS, 4, 0},
       {128, 1536, 1536, 108, 12, 9, 108, 1840, 0, 0, 0, 0, 0, 1792, 48}},
      {{5, 17, GEMM_FORMAT_BF16, GEMM_SCALE_NONE, 1, 0}, {64, 320, 512, 0, 0, 0, 0, 512, 0, 0, 0, 0, 0, 0, 0}},
      {{LIMIT_N, LIMIT_K, GEMM_FORMAT_F16, GEMM_SCALE_NONE, LIMIT_EXPERTS, 0},
       {(uint64_t)1 << 25, (uint64_t)1 << 58, (uint64_t)1 << 58, 0, 0, 0, 0, (uint64_t)1 << 58, 0, 0, 0, 0, 0, 0, 0}},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct gemm_layout layout;
    struct error error;
    assert_int_equal(gemm_layout_compute(&cases[i].weight, &layout, &error), STATUS_OK);
    assert_memory_equal(&layout, &cases[i].layout, sizeof layout);
  }
}

/* ---- products */

static void types_by_format(void **state) {
  static const struct {
    enum gemm_format format;
    const char *x, *y; /* types taken, S32 apart */
  } rows[] = {
      {GEMM_FORMAT_INT8, "f32 f16 bf16 int8", "f32 f16 bf16"},
      {GEMM_FORMAT_FP8, "f32 f16 bf16 e4m3", "f32 f16 bf16"},
      {GEMM_FORMAT_INT2, "f32 f16 bf16", "f32 f16 bf16"},
      {GEMM_FORMAT_F16, "[f16]", "f32 f16 bf16"},
      {GEMM_FORMAT_BF16, "[bf16]", "f32 f16 bf16"},
      {GEMM_FORMAT_INT2A8, "f32 f16 bf16 int8", "f32 f16 bf16"},
      {GEMM_FORMAT_INT4, "f32 f16 bf16", "f32 f16 bf16"},
      {GEMM_FORMAT_INT4A8, "f32 f16 bf16 int8", "f32 f16 bf16"},
      {GEMM_FORMAT_MXFP4, "f32 f16 bf16", "f32 f16 bf16"},
      {GEMM_FORMAT_NVFP4, "f32 f16 bf16", "f32 f16 bf16"},
      {GEMM_FORMAT_NONE, "", ""},
  };
  for (size_t i = 0; i < COUNT(rows); i++)
    for (size_t x = 0; x < COUNT(types); x++) {
      bool only = rows[i].x[0] == '[';
      const char *name = gemm_type_name(types[x]);
      bool takes = only ? strlen(rows[i].x) == strlen(name) + 2 && strstr(rows[i].x, name) != NULL
                        : strstr(rows[i].x, name) != NULL;
      assert_int_equal(gemm_takes_x(rows[i].format, types[x]), takes);
      for (size_t y = 0; y < COUNT(types); y++) {
        bool gives = takes && strstr(rows[i].y, gemm_type_name(types[y])) != NULL;
        if (types[y] == GEMM_S32)
          gives = rows[i].format == GEMM_FORMAT_INT8 && types[x] == GEMM_INT8;
        assert_int_equal(gemm_takes_y(rows[i].format, types[x], types[y]), gives);
      }
    }
  assert_false(gemm_takes_x(GEMM_FORMAT_INT8, (enum gemm_type)77));
  assert_false(gemm_takes_y(GEMM_FORMAT_INT8, GEMM_F32, GEMM_TYPE_NONE));
}

enum { BEGIN = 4096, END = 65536 };

static const struct gemm_weight int8_weight = {48, 100, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0};

/* x [4, 100] f32 at 4096, y [4, 48] f32 at 8192. */
static struct gemm_product good_product(void) {
  return (struct gemm_product){
      .m = 4, .n = 48, .k = 100, .x_type = GEMM_F32, .y_type = GEMM_F32, .x_offset = 4096, .y_offset = 8192};
}

static void expect_refused(const struct gemm_product *product, enum status status, enum field field, const char *text) {
  struct gemm_extent extent, untouched;
  struct error error;
  memset(&extent, 0x5a, sizeof extent);
  untouched = extent;
  memset(&error, 0x5a, sizeof error);
  assert_int_equal(gemm_product_check(product, &int8_weight, BEGIN, END, &extent, &error), status);
  assert_string_equal(error.text, text);
  assert_int_equal(error.status, status);
  assert_int_equal(error.field, field);
  assert_memory_equal(&extent, &untouched, sizeof extent);
  /* The sentence can be made again from the numbers, as a completion does it. */
  error.text[0] = '\0';
  gemm_error_compose(&error);
  assert_string_equal(error.text, text);
}

static void good_products(void **state) {
  struct gemm_product product = good_product();
  struct gemm_extent extent;
  struct error error;
  assert_int_equal(gemm_product_check(&product, &int8_weight, BEGIN, END, &extent, &error), STATUS_OK);
  struct gemm_extent dense = {
      .x_stride = 400, .y_stride = 192, .x_row_bytes = 400, .y_row_bytes = 192, .x_bytes = 1600, .y_bytes = 768};
  assert_memory_equal(&extent, &dense, sizeof extent);

  product.x_stride = 404;
  product.y_stride = 256;
  product.bias_type = GEMM_F16;
  product.bias_offset = 16384;
  assert_int_equal(gemm_product_check(&product, &int8_weight, BEGIN, END, &extent, &error), STATUS_OK);
  assert_true(extent.x_bytes == 3 * 404 + 400 && extent.y_bytes == 3 * 256 + 192 && extent.bias_bytes == 96);

  product = good_product();
  product.x_type = GEMM_INT8;
  product.x_scale_offset = 16384;
  assert_int_equal(gemm_product_check(&product, &int8_weight, BEGIN, END, &extent, &error), STATUS_OK);
  assert_true(extent.x_scale_bytes == 16 && extent.x_bytes == 400);

  /* A raw sum has no use for a scale: its offset is ignored. */
  product.y_type = GEMM_S32;
  product.x_scale_offset = UINT64_MAX;
  assert_int_equal(gemm_product_check(&product, &int8_weight, BEGIN, END, &extent, &error), STATUS_OK);
  assert_true(extent.x_scale_bytes == 0);
}

static void block_scales_of_x(void **state) {
  struct gemm_weight weight = {48, 300, GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK, 0, 0};
  struct gemm_product product = good_product();
  product.k = 300;
  product.x_type = GEMM_E4M3;
  product.x_scale_offset = 16384;
  struct gemm_extent extent;
  struct error error;
  assert_int_equal(gemm_product_check(&product, &weight, BEGIN, END, &extent, &error), STATUS_OK);
  assert_true(extent.x_scale_bytes == 4 * 3 * 4);
}

static void dimensions_refused(void **state) {
  struct gemm_product product = good_product();
  product.m = 0;
  expect_refused(&product, STATUS_INVALID, FIELD_M, "M must be 1..16777216, got 0");
  product.m = LIMIT_M + 1;
  expect_refused(&product, STATUS_INVALID, FIELD_M, "M must be 1..16777216, got 16777217");
  product.m = INT64_MIN;
  expect_refused(&product, STATUS_INVALID, FIELD_M, "M must be 1..16777216, got -9223372036854775808");
  product = good_product();
  product.n = 47;
  expect_refused(&product, STATUS_INVALID, FIELD_N, "N must be 48, got 47");
  product = good_product();
  product.k = 101;
  expect_refused(&product, STATUS_INVALID, FIELD_K, "K must be 100, got 101");
}

static void types_refused(void **state) {
  struct gemm_product product = good_product();
  product.x_type = GEMM_E4M3;
  expect_refused(&product, STATUS_UNSUPPORTED, FIELD_X_TYPE, "x type e4m3 (5) is not supported with this weight");
  product.x_type = (enum gemm_type)200;
  expect_refused(&product, STATUS_UNSUPPORTED, FIELD_X_TYPE, "x type unknown (200) is not supported with this weight");
  product = good_product();
  product.y_type = GEMM_S32;
  expect_refused(&product, STATUS_UNSUPPORTED, FIELD_Y_TYPE, "y type s32 (6) is not supported with this weight");
  product.y_type = GEMM_TYPE_NONE;
  expect_refused(&product, STATUS_UNSUPPORTED, FIELD_Y_TYPE, "y type none (0) is not supported with this weight");
  product = good_product();
  product.bias_type = GEMM_INT8;
  expect_refused(&product, STATUS_UNSUPPORTED, FIELD_BIAS_TYPE, "bias type int8 (4) is not supported with this weight");
  product = good_product(); /* a raw sum takes no bias */
  product.x_type = GEMM_INT8;
  product.y_type = GEMM_S32;
  product.bias_type = GEMM_F32;
  product.bias_offset = 16384;
  expect_refused(&product, STATUS_UNSUPPORTED, FIELD_BIAS_TYPE, "bias type f32 (1) is not supported with this weight");
}

static void strides_refused(void **state) {
  struct gemm_product product = good_product();
  product.x_stride = 399;
  expect_refused(&product, STATUS_INVALID, FIELD_X_STRIDE, "x stride must be 400..9223372036854775807, got 399");
  product.x_stride = 402;
  expect_refused(&product, STATUS_INVALID, FIELD_X_STRIDE, "x stride must be a multiple of 4, got 402");
  product = good_product();
  product.y_stride = 191;
  expect_refused(&product, STATUS_INVALID, FIELD_Y_STRIDE, "y stride must be 192..9223372036854775807, got 191");
  product.y_stride = 193;
  expect_refused(&product, STATUS_INVALID, FIELD_Y_STRIDE, "y stride must be a multiple of 4, got 193");
  product = good_product(); /* so large that m rows of it leave 64 bits */
  product.x_stride = (uint64_t)1 << 63;
  expect_refused(&product, STATUS_INVALID, FIELD_BYTES, "bytes must be 0..61440, got 9223372036854775807");
}

static void offsets_refused(void **state) {
  struct gemm_product product = good_product();
  product.x_offset = 4095;
  expect_refused(&product, STATUS_INVALID, FIELD_X_OFFSET, "x offset must be 4096..63936, got 4095");
  product.x_offset = 63952;
  expect_refused(&product, STATUS_INVALID, FIELD_X_OFFSET, "x offset must be 4096..63936, got 63952");
  product.x_offset = UINT64_MAX;
  expect_refused(&product, STATUS_INVALID, FIELD_X_OFFSET, "x offset must be 4096..63936, got 9223372036854775807");
  product.x_offset = 4104;
  expect_refused(&product, STATUS_INVALID, FIELD_X_OFFSET, "x offset must be a multiple of 16, got 4104");
  product = good_product();
  product.y_offset = 0;
  expect_refused(&product, STATUS_INVALID, FIELD_Y_OFFSET, "y offset must be 4096..64768, got 0");
  product = good_product();
  product.bias_type = GEMM_F32;
  product.bias_offset = 65536;
  expect_refused(&product, STATUS_INVALID, FIELD_BIAS_OFFSET, "bias offset must be 4096..65344, got 65536");
  product = good_product();
  product.x_type = GEMM_INT8; /* needs scales, and 0 is no place for them */
  expect_refused(&product, STATUS_INVALID, FIELD_X_SCALE_OFFSET, "x scale offset must be 4096..65520, got 0");
  product = good_product();
  product.m = LIMIT_M;
  expect_refused(&product, STATUS_INVALID, FIELD_BYTES, "bytes must be 0..61440, got 3221225472");
}

static void the_last_byte_counts(void **state) {
  struct gemm_product product = good_product();
  struct gemm_extent extent;
  struct error error;
  product.x_offset = 63936; /* 65536 - 1600 */
  assert_int_equal(gemm_product_check(&product, &int8_weight, BEGIN, END, &extent, &error), STATUS_OK);
  product.x_offset = 4096;
  product.y_offset = 4096 + 1600; /* right behind x */
  assert_int_equal(gemm_product_check(&product, &int8_weight, BEGIN, END, &extent, &error), STATUS_OK);
  assert_int_equal(gemm_product_check(&product, &int8_weight, BEGIN, 4096 + 1600 + 768, &extent, &error), STATUS_OK);
  assert_int_equal(gemm_product_check(&product, &int8_weight, BEGIN, 4096 + 1600 + 767, &extent, &error),
                   STATUS_INVALID);
  assert_int_equal(gemm_product_check(&product, &int8_weight, BEGIN, 0, &extent, &error), STATUS_INVALID);
}

static void y_apart_from_all_inputs(void **state) {
  struct gemm_product product = good_product();
  product.y_offset = 4096 + 1600 - 16;
  expect_refused(&product, STATUS_INVALID, FIELD_Y_OFFSET, "y offset 5680: y overlaps x, bias or x scale");
  product.y_offset = product.x_offset;
  expect_refused(&product, STATUS_INVALID, FIELD_Y_OFFSET, "y offset 4096: y overlaps x, bias or x scale");
  product = good_product();
  product.bias_type = GEMM_F32;
  product.bias_offset = 8192 + 752;
  expect_refused(&product, STATUS_INVALID, FIELD_Y_OFFSET, "y offset 8192: y overlaps x, bias or x scale");
  product = good_product();
  product.x_type = GEMM_INT8;
  product.x_scale_offset = 8192;
  expect_refused(&product, STATUS_INVALID, FIELD_Y_OFFSET, "y offset 8192: y overlaps x, bias or x scale");

  struct gemm_extent extent; /* inputs may share memory */
  struct error error;
  product = good_product();
  product.bias_type = GEMM_F32;
  product.bias_offset = product.x_offset;
  assert_int_equal(gemm_product_check(&product, &int8_weight, BEGIN, END, &extent, &error), STATUS_OK);
}

static void a_bad_weight_is_refused_with_the_product(void **state) {
  struct gemm_weight weight = {48, 100, GEMM_FORMAT_INT2, GEMM_SCALE_BLOCK, 0, 0};
  struct gemm_product product = good_product();
  struct gemm_extent extent;
  struct error error;
  assert_int_equal(gemm_product_check(&product, &weight, BEGIN, END, &extent, &error), STATUS_INVALID);
  assert_int_equal(error.field, FIELD_SCALE);
}

/* W from the arena: what a product's tensors must be, and W beside them. */
static void tensors(void **state) {
  const struct gemm_product good = {
      .m = 4, .n = 8, .k = 16, .x_type = GEMM_F16, .y_type = GEMM_F32, .x_offset = 4096, .y_offset = 8192};
  struct gemm_product product = good;
  struct gemm_extent extent;
  struct error error;
  uint64_t stride = 0;
  assert_int_equal(gemm_tensors_check(&product, 16384, &stride, 4096, 65536, &extent, &error), STATUS_OK);
  assert_int_equal(stride, 32);
  assert_int_equal(extent.y_stride, 32);
  stride = 40;
  assert_int_equal(gemm_tensors_check(&product, 65536 - 7 * 40 - 32, &stride, 4096, 65536, &extent, &error),
                   STATUS_INVALID); /* not a multiple of 16 */
  assert_int_equal(error.field, FIELD_W_OFFSET);
  assert_int_equal(gemm_tensors_check(&product, 65216, &stride, 4096, 65536, &extent, &error), STATUS_OK);
  assert_int_equal(gemm_tensors_check(&product, 65232, &stride, 4096, 65536, &extent, &error), STATUS_INVALID);
  assert_int_equal(error.field, FIELD_W_OFFSET);
  stride = 33;
  assert_int_equal(gemm_tensors_check(&product, 16384, &stride, 4096, 65536, &extent, &error), STATUS_INVALID);
  assert_int_equal(error.field, FIELD_W_STRIDE);
  stride = UINT64_MAX - 1;
  assert_int_equal(gemm_tensors_check(&product, 16384, &stride, 4096, 65536, &extent, &error), STATUS_INVALID);
  assert_int_equal(error.field, FIELD_BYTES);
  stride = 0;
  assert_int_equal(gemm_tensors_check(&product, 8192 + 112, &stride, 4096, 65536, &extent, &error), STATUS_INVALID);
  assert_string_equal(error.text, "w offset 8304: W overlaps y");
  assert_int_equal(gemm_tensors_check(&product, 4096, &stride, 4096, 65536, &extent, &error), STATUS_OK); /* x itself */
  product.w_tensor = 9; /* memory of the client's own: offsets from 0, and what lies elsewhere is not overlapped */
  product.w_tensor_bytes = 8 * 32 + 16;
  assert_int_equal(gemm_tensors_check(&product, 16, &stride, 4096, 65536, &extent, &error), STATUS_OK);
  assert_int_equal(gemm_tensors_check(&product, 32, &stride, 4096, 65536, &extent, &error), STATUS_INVALID);
  assert_int_equal(error.field, FIELD_W_OFFSET);
  product.y_tensor = 9;
  product.y_tensor_bytes = 65536;
  product.y_offset = 256;
  assert_int_equal(gemm_tensors_check(&product, 16, &stride, 4096, 65536, &extent, &error), STATUS_INVALID);
  assert_string_equal(error.text, "w offset 16: W overlaps y");
  product.y_tensor = 8;
  assert_int_equal(gemm_tensors_check(&product, 16, &stride, 4096, 65536, &extent, &error), STATUS_OK);
  product.x_type = GEMM_INT8;
  assert_int_equal(gemm_tensors_check(&product, 16384, &stride, 4096, 65536, &extent, &error), STATUS_UNSUPPORTED);
  assert_int_equal(error.field, FIELD_X_TYPE);
}

static void test_methods(void **state) {
  for (int format = 1; format < GEMM_FORMATS; format++) {
    const struct gemm_format_facts *facts = gemm_format_facts((enum gemm_format)format);
    assert_true(gemm_takes_method((enum gemm_format)format, GEMM_METHOD_DEFAULT));
    assert_true(gemm_takes_method((enum gemm_format)format, facts->method_default));
    assert_int_equal(facts->methods == 0, gemm_is_wide((enum gemm_format)format));
    assert_false(gemm_takes_method((enum gemm_format)format, (enum gemm_method)33)); /* 1 of 32 bits */
  }
  assert_true(gemm_takes_method(GEMM_FORMAT_FP8, GEMM_METHOD_ABSMAX));
  assert_true(gemm_takes_method(GEMM_FORMAT_INT2A8, GEMM_METHOD_TERNARY));
  assert_false(gemm_takes_method(GEMM_FORMAT_INT2, GEMM_METHOD_ABSMAX));
  assert_false(gemm_takes_method(GEMM_FORMAT_INT8, GEMM_METHOD_LEAST_SQUARES));
  assert_false(gemm_takes_method(GEMM_FORMAT_F16, GEMM_METHOD_ABSMAX));
}

static void test_stored_alike(void **state) {
  static const enum gemm_format as[GEMM_FORMATS] = {
      [GEMM_FORMAT_INT2A8] = GEMM_FORMAT_INT2, [GEMM_FORMAT_INT4A8] = GEMM_FORMAT_INT4};
  for (int a = 1; a < GEMM_FORMATS; a++)
    for (int b = 1; b < GEMM_FORMATS; b++)
      assert_int_equal(gemm_stored_alike((enum gemm_format)a, (enum gemm_format)b),
                       a == b || (int)as[a] == b || (int)as[b] == a);
}

/* A row's bytes behind K are codes of zero, and a group does not straddle its end. */
static void test_rows_end(void **state) {
  for (int format = 1; format < GEMM_FORMATS; format++) {
    const struct gemm_format_facts *facts = gemm_format_facts((enum gemm_format)format);
    bool integers = gemm_is_packed((enum gemm_format)format) && facts->element != GEMM_E2M1;
    assert_int_equal(facts->padding, !integers ? 0 : facts->bits == 2 ? 0x55 : 0x88);
    assert_int_equal(facts->element == GEMM_TYPE_NONE, integers);
    for (int scale = 0; scale < GEMM_SCALES; scale++)
      if (gemm_is_packed((enum gemm_format)format) &&
          gemm_takes_scale((enum gemm_format)format, (enum gemm_scale)scale))
        assert_true(gemm_scale_facts((enum gemm_scale)scale)->k <= facts->align);
  }
}

/* What a weight may do to x, and where what it needs for that lies. */
static void what_is_done_to_x(void **state) {
  static const struct {
    struct gemm_weight weight;
    const char *text; /* NULL: it may */
  } cases[] = {
      {{8, 64, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 3 * GEMM_INPUT_ROTATE}, NULL},
      {{8, 64, GEMM_FORMAT_FP8, GEMM_SCALE_ONE, 0, GEMM_INPUT_SCALE | GEMM_INPUT_ORDER}, NULL},
      {{8, 64, GEMM_FORMAT_INT2, GEMM_SCALE_ROW, 0, GEMM_INPUT_ORDER}, NULL},
      {{8, 64, GEMM_FORMAT_INT2, GEMM_SCALE_ROW, 0, GEMM_INPUT_SCALE},
       "a int2 weight with scale mode row does not take"},
      {{8, 64, GEMM_FORMAT_F16, GEMM_SCALE_NONE, 0, GEMM_INPUT_ORDER}, "a f16 weight"},
      {{8, 128, GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK, 0, GEMM_INPUT_SCALE}, "with scale mode block"},
      {{8, 64, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 2, GEMM_INPUT_ORDER}, "and experts"},
      {{8, 64, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 4 * GEMM_INPUT_ROTATE}, "K must be a multiple of 256"},
      {{8, 4096, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 6 * GEMM_INPUT_ROTATE}, "does not take input 96"},
      {{8, 64, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 4}, "does not take input 4"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct error error = {.text = ""};
    enum status status = gemm_weight_check(&cases[i].weight, &error);
    assert_int_equal(status, cases[i].text == NULL ? STATUS_OK : STATUS_UNSUPPORTED);
    if (cases[i].text != NULL)
      assert_non_null(strstr(error.text, cases[i].text));
  }
  struct gemm_layout layout;
  struct error error;
  assert_int_equal(gemm_layout_compute(&cases[1].weight, &layout, &error), STATUS_OK);
  assert_true(layout.input_offset == 768 && layout.order_offset == 1024 && layout.total_bytes == 1024 + 4 * 64);
  assert_true(layout.input_bytes == 256 + 4 * 64);
  assert_int_equal(gemm_layout_compute(&cases[0].weight, &layout, &error), STATUS_OK);
  assert_true(layout.total_bytes == 512 + 8 * 4 && layout.input_bytes == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_done_to_x),
      cmocka_unit_test(test_methods),
      cmocka_unit_test(test_stored_alike),
      cmocka_unit_test(test_rows_end),
      cmocka_unit_test(names_and_numbers),
      cmocka_unit_test(unknown_names_and_numbers),
      cmocka_unit_test(arithmetic_saturates),
      cmocka_unit_test(refused_weights),
      cmocka_unit_test(refused_numbers),
      cmocka_unit_test(layouts),
      cmocka_unit_test(types_by_format),
      cmocka_unit_test(good_products),
      cmocka_unit_test(block_scales_of_x),
      cmocka_unit_test(dimensions_refused),
      cmocka_unit_test(types_refused),
      cmocka_unit_test(strides_refused),
      cmocka_unit_test(offsets_refused),
      cmocka_unit_test(the_last_byte_counts),
      cmocka_unit_test(y_apart_from_all_inputs),
      cmocka_unit_test(tensors),
      cmocka_unit_test(a_bad_weight_is_refused_with_the_product),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
