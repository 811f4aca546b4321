/* Products of two tensors of the arena, by the real daemon: right in both types, tall in K as the gradients of weights
 * are, beside products with stored weights, and over the death of a worker. */
#include "client/gemmclient.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/product.h"
#include "tests/support/daemon/status.h"
#include "tests/support/reference/checkpoint.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

enum { N = 48, K = 100, ROUNDS = 40 };

static struct daemon gemmd;
static struct oracle_weight stored;

static const struct gemm_weight shapes[] = {
    {1, 1, GEMM_FORMAT_F16, GEMM_SCALE_NONE, 0, 0},      {17, 33, GEMM_FORMAT_BF16, GEMM_SCALE_NONE, 0, 0},
    {64, 256, GEMM_FORMAT_F16, GEMM_SCALE_NONE, 0, 0},   {70, 130, GEMM_FORMAT_BF16, GEMM_SCALE_NONE, 0, 0},
    {48, 25088, GEMM_FORMAT_F16, GEMM_SCALE_NONE, 0, 0},
};
enum { SHAPES = COUNT(shapes) };
static struct oracle_weight tensors[SHAPES];

static int start(void **state) {
  gemmd_load request = {.name = "stored", .tensor = "w", .format = GEMMD_FORMAT_INT8, .device = -1};
  daemon_make(&gemmd, "cpu_threads = 2\n");
  oracle_weight_make(&stored, &(struct gemm_weight){N, K, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0}, 1);
  for (int i = 0; i < SHAPES; i++)
    oracle_weight_make(&tensors[i], &shapes[i], (uint64_t)i + 2);
  checkpoint_write_one(daemon_path(&gemmd, "model.safetensors"), "w", &stored);
  daemon_start(&gemmd);
  gemmd_session *session = daemon_join(&gemmd, NULL);
  if (gemmd_weight_load_file(session, daemon_path(&gemmd, "model.safetensors"), &request, NULL) != GEMMD_OK)
    fail_msg("%s", gemmd_error(session));
  gemmd_disconnect(session);
  return 0;
}

static int stop(void **state) {
  daemon_end(&gemmd);
  oracle_weight_free(&stored);
  for (int i = 0; i < SHAPES; i++)
    oracle_weight_free(&tensors[i]);
  return 0;
}

/* W in the arena, rows `extra` elements longer than they need to be. */
static gemmd_tensor lay_out(gemmd_session *session, const struct oracle_weight *weight, size_t extra) {
  size_t row = (size_t)weight->shape.k * 2, stride = row + 2 * extra;
  uint8_t *data = gemmd_alloc(session, (size_t)weight->shape.n * stride);
  for (int64_t n = 0; data != NULL && n < weight->shape.n; n++)
    memcpy(data + (size_t)n * stride, weight->canonical + (uint64_t)n * weight->layout.row_bytes, row);
  return (gemmd_tensor){
      .data = data, .n = (uint32_t)weight->shape.n, .k = (uint32_t)weight->shape.k, .stride = extra > 0 ? stride : 0};
}

static bool run(gemmd_session *session, int i, int64_t m, enum gemm_type y_type, bool biased) {
  struct product product;
  struct product_request request = {.weight = &tensors[i],
                                    .m = m,
                                    .x_type = shapes[i].format == GEMM_FORMAT_F16 ? GEMM_F16 : GEMM_BF16,
                                    .y_type = y_type,
                                    .bias_type = biased ? GEMM_F32 : GEMM_TYPE_NONE,
                                    .y_extra = m % 3,
                                    .seed = (uint64_t)m + 1};
  if (!product_make(&product, session, &request))
    return false;
  gemmd_tensor w = lay_out(session, &tensors[i], (size_t)(m % 2) * 8);
  int status = gemmd_tensors_matmul(session, &w, &product.product);
  if (status != GEMMD_OK)
    fprintf(stderr, "tensors: %s\n", gemmd_error(session));
  bool right = status == GEMMD_OK && product_right(&product);
  gemmd_free(session, (void *)(uintptr_t)w.data);
  product_free(&product, session);
  return right;
}

/* ---- tests */

static void test_right(void **state) {
  static const int64_t rows[] = {1, 5, 40};
  static const enum gemm_type y_types[] = {GEMM_F32, GEMM_F16, GEMM_BF16};
  gemmd_session *session = daemon_join(&gemmd, NULL);
  for (int i = 0; i < SHAPES; i++)
    for (int r = 0; r < COUNT(rows); r++)
      for (int y = 0; y < COUNT(y_types); y++)
        assert_true(run(session, i, rows[r], y_types[y], (i + r + y) % 2 == 0));
  gemmd_disconnect(session);
}

/* On the CPU these are computed some rows at a time. */
static void test_many_rows(void **state) {
  enum { SIDE = 1024, MANY = 2057, X_ROW = SIDE + 8, Y_ROW = SIDE + 4, CODES = 3 };
  static const uint16_t codes[CODES] = {0x3c00, 0x4000, 0xb800};
  static const float values[CODES] = {1, 2, -0.5f};
  gemmd_session *session = daemon_join(&gemmd, NULL);
  uint16_t *x = gemmd_alloc(session, (size_t)MANY * X_ROW * sizeof *x);
  uint16_t *w = gemmd_alloc(session, (size_t)SIDE * SIDE * sizeof *w);
  float *y = gemmd_alloc(session, (size_t)MANY * Y_ROW * sizeof *y);
  assert_true(x != NULL && w != NULL && y != NULL);
  for (int i = 0; i < MANY * X_ROW; i++)
    x[i] = codes[i / X_ROW % CODES];
  for (int i = 0; i < SIDE * SIDE; i++)
    w[i] = codes[i / SIDE % CODES];
  memset(y, 0xfd, (size_t)MANY * Y_ROW * sizeof *y);
  gemmd_product product = {.m = MANY,
                           .x = x,
                           .x_type = GEMMD_F16,
                           .x_stride = X_ROW * sizeof *x,
                           .y = y,
                           .y_type = GEMMD_F32,
                           .y_stride = Y_ROW * sizeof *y};
  gemmd_result result;
  uint64_t ticket;
  assert_int_equal(gemmd_tensors_submit(session, &(gemmd_tensor){.data = w, .n = SIDE, .k = SIDE}, &product, &ticket),
                   GEMMD_OK);
  assert_int_equal(gemmd_wait(session, ticket, -1, &result), GEMMD_OK);
  assert_true(result.device_ns > 0);
  for (int row = 0; row < MANY; row++)
    for (int n = 0; n < SIDE; n++)
      assert_true(y[row * Y_ROW + n] == SIDE * values[row % CODES] * values[n % CODES]);
  gemmd_disconnect(session);
}

static void test_refused(void **state) {
  gemmd_session *session = daemon_join(&gemmd, NULL);
  uint16_t *tensor = gemmd_alloc(session, 4096), elsewhere[64];
  gemmd_product product = {.m = 1, .x = tensor, .x_type = GEMMD_F16, .y = tensor + 1024, .y_type = GEMMD_F16};
  gemmd_tensor w = {.data = elsewhere, .n = 8, .k = 8};
  assert_int_equal(gemmd_tensors_matmul(session, &w, &product), GEMMD_INVALID);
  assert_non_null(strstr(gemmd_error(session), "W must lie in the session's arena"));
  w.data = tensor;
  w.device = 5;
  assert_int_equal(gemmd_tensors_matmul(session, &w, &product), GEMMD_INVALID);
  assert_non_null(strstr(gemmd_error(session), "device must be 0, got 5"));
  w.device = 0;
  product.x_type = GEMMD_F32;
  assert_int_equal(gemmd_tensors_matmul(session, &w, &product), GEMMD_UNSUPPORTED);
  product.x_type = GEMMD_F16;
  w.data = product.y;
  assert_int_equal(gemmd_tensors_matmul(session, &w, &product), GEMMD_INVALID);
  assert_non_null(strstr(gemmd_error(session), "W overlaps y"));
  gemmd_disconnect(session);
}

/* Each of a batch of two, x and W by columns, added to what y held. */
static void test_form(void **state) {
  enum { ROWS = 6, COLUMNS = 5, DEPTH = 40, BATCH = 2 };
  static const uint16_t codes[] = {0x3c00, 0x4000, 0xbc00}; /* 1, 2, -1 */
  static const float values[] = {1, 2, -1};
  gemmd_session *session = daemon_join(&gemmd, NULL);
  uint16_t *x = gemmd_alloc(session, (size_t)BATCH * DEPTH * ROWS * sizeof *x);
  uint16_t *w = gemmd_alloc(session, (size_t)BATCH * DEPTH * COLUMNS * sizeof *w);
  float *y = gemmd_alloc(session, (size_t)BATCH * ROWS * COLUMNS * sizeof *y);
  assert_true(x != NULL && w != NULL && y != NULL);
  for (int i = 0; i < BATCH * DEPTH * ROWS; i++)
    x[i] = codes[i * 7 % 3];
  for (int i = 0; i < BATCH * DEPTH * COLUMNS; i++)
    w[i] = codes[i * 5 % 11 % 3];
  for (int i = 0; i < BATCH * ROWS * COLUMNS; i++)
    y[i] = (float)i;
  const gemmd_product product = {.m = ROWS, .x = x, .x_type = GEMMD_F16, .y = y, .y_type = GEMMD_F32};
  const gemmd_tensor tensor = {
      .data = w, .n = COLUMNS, .k = DEPTH, .turned = 1, .x_turned = 1, .add = 1, .batch = BATCH};
  assert_int_equal(gemmd_tensors_matmul(session, &tensor, &product), GEMMD_OK);
  for (int b = 0; b < BATCH; b++)
    for (int row = 0; row < ROWS; row++)
      for (int column = 0; column < COLUMNS; column++) {
        int at = (b * ROWS + row) * COLUMNS + column;
        float sum = (float)at;
        for (int k = 0; k < DEPTH; k++)
          sum += values[((b * DEPTH + k) * ROWS + row) * 7 % 3] *
                 values[((b * DEPTH + k) * COLUMNS + column) * 5 % 11 % 3];
        assert_true(y[at] == sum);
      }
  gemmd_disconnect(session);
}

static void test_forms_refused(void **state) {
  gemmd_session *session = daemon_join(&gemmd, NULL);
  uint16_t *x = gemmd_alloc(session, 4096), *w = gemmd_alloc(session, 4096), *y = gemmd_alloc(session, 4096);
  gemmd_product product = {.m = 8, .x = x, .x_type = GEMMD_F16, .y = y, .y_type = GEMMD_S32};
  gemmd_tensor tensor = {.data = w, .n = 8, .k = 8, .add = 1};
  assert_int_equal(gemmd_tensors_matmul(session, &tensor, &product), GEMMD_UNSUPPORTED);
  assert_non_null(strstr(gemmd_error(session), "y type s32"));
  product.y_type = GEMMD_F32;
  tensor.turned = 1;
  tensor.stride = 14; /* lines of K that overlap */
  assert_int_equal(gemmd_tensors_matmul(session, &tensor, &product), GEMMD_INVALID);
  assert_non_null(strstr(gemmd_error(session), "w stride"));
  tensor.stride = 0;
  tensor.batch = 65536;
  assert_int_equal(gemmd_tensors_matmul(session, &tensor, &product), GEMMD_INVALID);
  assert_non_null(strstr(gemmd_error(session), "a batch has 1..65535 products, got 65536"));
  tensor.batch = 2;
  tensor.y_batch_stride = 252; /* the second y begins in the first */
  assert_int_equal(gemmd_tensors_matmul(session, &tensor, &product), GEMMD_INVALID);
  assert_non_null(strstr(gemmd_error(session), "y stride"));
  gemmd_disconnect(session);
}

enum { LONG_SIDE = 256, LONG_K = 1 << 17 };

/* What is added to y is never computed twice: where its worker dies it ends with that, and the session goes on. */
static void test_added_over_a_death(void **state) {
  gemmd_options options = {.arena_bytes = (size_t)160 << 20};
  gemmd_session *session = daemon_join(&gemmd, &options);
  size_t bytes = (size_t)LONG_SIDE * LONG_K * sizeof(uint16_t);
  uint16_t *x = gemmd_alloc(session, bytes), *w = gemmd_alloc(session, bytes);
  float *y = gemmd_alloc(session, (size_t)LONG_SIDE * LONG_SIDE * sizeof *y);
  assert_true(x != NULL && w != NULL && y != NULL);
  memset(x, 0, bytes);
  memset(w, 0, bytes);
  memset(y, 0, (size_t)LONG_SIDE * LONG_SIDE * sizeof *y);
  const gemmd_product product = {.m = LONG_SIDE, .x = x, .x_type = GEMMD_F16, .y = y, .y_type = GEMMD_F32};
  const gemmd_tensor tensor = {.data = w, .n = LONG_SIDE, .k = LONG_K, .add = 1};
  gemmd_daemon_info info;
  uint64_t ticket;
  int status = GEMMD_OK;
  for (int i = 0; i < 20 && status == GEMMD_OK; i++) { /* one of them will be under way */
    assert_int_equal(gemmd_tensors_submit(session, &tensor, &product, &ticket), GEMMD_OK);
    assert_int_equal(gemmd_daemon_status(session, &info), GEMMD_OK);
    if (info.device[0].pid > 0)
      kill((pid_t)info.device[0].pid, SIGKILL);
    status = gemmd_wait(session, ticket, -1, NULL);
  }
  assert_int_equal(status, GEMMD_DEVICE_LOST);
  assert_int_equal(gemmd_tensors_matmul(session, &(gemmd_tensor){.data = w, .n = 8, .k = 8}, &product), GEMMD_OK);
  gemmd_disconnect(session);
}

/* A session whose only products are such, and a worker that dies under them: they are asked for again. */
static int over_a_death(int index, void *user) {
  gemmd_session *session = daemon_join(&gemmd, NULL);
  gemmd_weight *opened = NULL;
  gemmd_daemon_info info;
  bool right = index == 0 || gemmd_weight_open(session, "stored", &opened) == GEMMD_OK;
  for (int i = 0; i < ROUNDS && right; i++) {
    struct product_request request = {
        .weight = &stored, .m = 3, .x_type = GEMM_F16, .y_type = GEMM_F32, .seed = (uint64_t)i + 1};
    right =
        run(session, i % SHAPES, 1 + i % 7, GEMM_F32, false) && (index == 0 || product_run(session, opened, &request));
    if (index == 0 && i % 10 == 5 && right)
      right = gemmd_daemon_status(session, &info) == GEMMD_OK && info.device[0].pid > 0 &&
              kill((pid_t)info.device[0].pid, SIGKILL) == 0;
  }
  gemmd_disconnect(session);
  return !right;
}

static void test_over_a_death(void **state) {
  clients_run(3, over_a_death, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_right),         cmocka_unit_test(test_many_rows),
      cmocka_unit_test(test_refused),       cmocka_unit_test(test_form),
      cmocka_unit_test(test_forms_refused), cmocka_unit_test(test_added_over_a_death),
      cmocka_unit_test(test_over_a_death),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
