/* Where tensors of products of two may lie. */
#include "proto/tensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* W at 16384, in an arena whose tensors begin at 4096. What was made explicit is not kept. */
static enum status check(const struct gemm_product *product, struct tensors_form *form, uint64_t *stride,
                         struct gemm_extent *extent, struct error *error) {
  struct tensors_form asked = *form;
  return tensors_check(product, form, 16384, stride, 4096, 65536, extent, error) == STATUS_OK
             ? STATUS_OK
             : (*form = asked, error->status);
}

/* By columns: strides are those of lines of K, and may not overlap. */
static void tensors_turned(void **state) {
  struct gemm_product product = {.m = 24, .n = 8, .k = 16, .x_type = GEMM_BF16, .y_type = GEMM_F32};
  struct gemm_extent extent;
  struct tensors_form form = {.batch = 0};
  struct error error;
  uint64_t stride = 0;
  product.x_offset = 4096;
  product.y_offset = 8192;
  form = (struct tensors_form){.x_turned = true, .w_turned = true, .add = true};
  assert_int_equal(check(&product, &form, &stride, &extent, &error), STATUS_OK);
  assert_int_equal(stride, 16);
  assert_int_equal(extent.x_stride, 48);
  assert_int_equal(extent.x_bytes, 16 * 48);
  assert_int_equal(extent.y_stride, 32);
  assert_int_equal(form.batch, 1);
  product.x_stride = 46; /* a line of K begins before the one ahead of it ends */
  assert_int_equal(check(&product, &form, &stride, &extent, &error), STATUS_INVALID);
  assert_int_equal(error.field, FIELD_X_STRIDE);
  product.x_stride = 50;
  assert_int_equal(check(&product, &form, &stride, &extent, &error), STATUS_OK);
  stride = 14;
  assert_int_equal(check(&product, &form, &stride, &extent, &error), STATUS_INVALID);
  assert_int_equal(error.field, FIELD_W_STRIDE);
  stride = 16;
  product.y_type = GEMM_S32;
  assert_int_equal(check(&product, &form, &stride, &extent, &error), STATUS_UNSUPPORTED);
  assert_int_equal(error.field, FIELD_Y_TYPE);
}

static void tensors_in_batches(void **state) {
  struct gemm_product product = {.m = 4, .n = 8, .k = 16, .x_type = GEMM_F16, .y_type = GEMM_F16};
  struct gemm_extent extent;
  struct tensors_form form = {.batch = 0};
  struct error error;
  uint64_t stride = 0;
  product.x_offset = 4096;
  product.y_offset = 8192;
  form.batch = 3;
  assert_int_equal(check(&product, &form, &stride, &extent, &error), STATUS_OK);
  assert_int_equal(form.x_step, 128);
  assert_int_equal(form.w_step, 256);
  assert_int_equal(form.y_step, 64);
  assert_int_equal(extent.y_bytes, 192);
  form.x_step = 2; /* products may share what they read */
  assert_int_equal(check(&product, &form, &stride, &extent, &error), STATUS_OK);
  assert_int_equal(extent.x_bytes, 132);
  form.y_step = 62; /* but no y */
  assert_int_equal(check(&product, &form, &stride, &extent, &error), STATUS_INVALID);
  assert_int_equal(error.field, FIELD_Y_STRIDE);
  form.y_step = UINT64_MAX - 1;
  assert_int_equal(check(&product, &form, &stride, &extent, &error), STATUS_INVALID);
  assert_int_equal(error.field, FIELD_BYTES);
  form.y_step = 8192 - 64; /* the second one lies where W is */
  assert_int_equal(check(&product, &form, &stride, &extent, &error), STATUS_INVALID);
  assert_int_equal(error.field, FIELD_W_OFFSET);
  form.y_step = 0;
  form.w_step = 3;
  assert_int_equal(check(&product, &form, &stride, &extent, &error), STATUS_INVALID);
  assert_int_equal(error.field, FIELD_W_STRIDE);
  form.w_step = 0;
  product.bias_type = GEMM_F32;
  product.bias_offset = 32768;
  assert_int_equal(check(&product, &form, &stride, &extent, &error), STATUS_UNSUPPORTED);
  form.batch = 65536;
  assert_int_equal(check(&product, &form, &stride, &extent, &error), STATUS_INVALID);
  assert_string_equal(error.text, "a batch has 1..65535 products, got 65536");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tensors_turned),
      cmocka_unit_test(tensors_in_batches),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
