/* Tensors anywhere in an arena of 100 MiB, on every backend that has a device here: a device may know such memory in
 * pieces, and rows lie across the ends of these. W is all ones, so that y is the sums of x's rows. */
#include "kernels/backend.h"
#include "tests/support/worker/device.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)
#define ARENA_BYTES (100 * MIB)
#define SLAB_BYTES (8 * MIB)

enum { N = 40, K = 1100, PERIOD = 5 };

static struct device device;
static uint8_t *base;
static struct backend_arena *arena;

static double value(int64_t row, int64_t k) {
  return (double)((row + k) % PERIOD) / 4;
}

static void write_x(uint8_t *x, int64_t m, enum gemm_type type, uint64_t stride) {
  static const uint16_t halves[PERIOD] = {0, 0x3400, 0x3800, 0x3a00, 0x3c00};
  for (int64_t row = 0; row < m; row++)
    for (int64_t k = 0; k < K; k++) {
      float number = (float)value(row, k);
      if (type == GEMM_F32)
        memcpy(x + (uint64_t)row * stride + (uint64_t)k * 4, &number, 4);
      else
        memcpy(x + (uint64_t)row * stride + (uint64_t)k * 2, &halves[(row + k) % PERIOD], 2);
    }
}

static void expect_y(const uint8_t *y, int64_t m, uint64_t stride, double off_most) {
  for (int64_t row = 0; row < m; row++) {
    double sum = 0;
    for (int64_t k = 0; k < K; k++)
      sum += value(row, k);
    for (int64_t n = 0; n < N; n++) {
      float got;
      memcpy(&got, y + (uint64_t)row * stride + (uint64_t)n * 4, 4);
      if (!(fabs((double)got - sum) <= off_most * sum))
        fail_msg("y[%lld, %lld] is %g, not %g", (long long)row, (long long)n, (double)got, sum);
    }
  }
}

static struct backend_weight *load_ones(enum gemm_format format) {
  struct oracle_weight weight;
  struct gemm_weight shape = {.n = N, .k = K, .format = format, .scale = GEMM_SCALE_NONE};
  if (!gemm_is_wide(format))
    shape.scale = GEMM_SCALE_ROW;
  oracle_weight_make(&weight, &shape, 1);
  for (int64_t row = 0; row < N; row++) {
    const float one = 1;
    for (int64_t k = 0; k < K; k++)
      if (format == GEMM_FORMAT_INT8)
        weight.canonical[(uint64_t)row * weight.layout.row_bytes + (uint64_t)k] = 1;
      else
        memcpy(weight.canonical + (uint64_t)row * weight.layout.row_bytes + (uint64_t)k * 2, &(uint16_t){0x3c00}, 2);
    if (format == GEMM_FORMAT_INT8)
      memcpy(weight.canonical + weight.layout.scales_offset + (uint64_t)row * 4, &one, 4);
  }
  struct backend_weight *handle = device_load(&device, &weight, 0);
  oracle_weight_free(&weight);
  return handle;
}

/* x and y from these places on, rows apart by some bytes. */
static void one(struct backend_weight *weight, enum gemm_type x_type, int64_t m, uint64_t x_at, uint64_t y_at,
                double off_most) {
  uint64_t x_stride = (uint64_t)(K + 12) * gemm_type_bytes(x_type), y_stride = (N + 3) * sizeof(float);
  struct backend_job job = {.weight = weight,
                            .arena = arena,
                            .m = m,
                            .awake = 1,
                            .x_type = x_type,
                            .y_type = GEMM_F32,
                            .x = base + x_at,
                            .y = base + y_at,
                            .x_stride = x_stride,
                            .y_stride = y_stride};
  assert_true(x_at + (uint64_t)m * x_stride <= ARENA_BYTES && y_at + (uint64_t)m * y_stride <= ARENA_BYTES);
  write_x(base + x_at, m, x_type, x_stride);
  memset(base + y_at, 0xfd, (uint64_t)m * y_stride);
  device_finish(&device, &job);
  expect_y(base + y_at, m, y_stride, off_most);
}

/* Over each end of 16 MiB that a piece might have, in few rows and many. */
static void test_rows_anywhere(void **state) {
  for (int kind = 0; kind < 2; kind++) {
    enum gemm_format format = kind == 0 ? GEMM_FORMAT_F16 : GEMM_FORMAT_INT8;
    enum gemm_type x_type = kind == 0 ? GEMM_F16 : GEMM_F32;
    double off_most = kind == 0 ? 1e-4 : 1e-2;
    struct backend_weight *weight = load_ones(format);
    for (uint64_t end = 16 * MIB; end < 96 * MIB; end += 16 * MIB) {
      one(weight, x_type, 3, end - 1504, end + 8 * MIB - 48, off_most);
      one(weight, x_type, 700, end - MIB, end + 8 * MIB - 48000, off_most);
      one(weight, x_type, 700, end + 8 * MIB - 48000, end - 4096, off_most);
    }
    device.ops->weight_detach(device.backend, weight);
  }
}

/* W that comes with its product lies across an end, too. */
static void test_operand_anywhere(void **state) {
  for (uint64_t end = 16 * MIB; end < 96 * MIB; end += 16 * MIB) {
    uint64_t stride = (K + 4) * 2, w_at = end - 40000;
    struct backend_operand operand = {.shape = {.n = N, .k = K, .format = GEMM_FORMAT_F16, .scale = GEMM_SCALE_NONE},
                                      .w = base + w_at,
                                      .stride = stride};
    struct backend_job job = {.operand = &operand,
                              .arena = arena,
                              .m = 5,
                              .awake = 1,
                              .x_type = GEMM_F16,
                              .y_type = GEMM_F32,
                              .x = base,
                              .y = base + MIB,
                              .x_stride = K * 2,
                              .y_stride = N * 4};
    for (int64_t row = 0; row < N; row++)
      for (int64_t k = 0; k < K; k++)
        memcpy(base + w_at + (uint64_t)row * stride + (uint64_t)k * 2, &(uint16_t){0x3c00}, 2);
    write_x(base, 5, GEMM_F16, K * 2);
    memset(base + MIB, 0xfd, 5 * N * 4);
    device_finish(&device, &job);
    expect_y(base + MIB, 5, N * 4, 1e-4);
  }
}

static int open_arena(void **state) {
  struct error error;
  int status = device_group_open(state);
  base = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(base, MAP_FAILED);
  assert_int_equal(device.ops->arena_register(device.backend, base, ARENA_BYTES, &arena, &error), STATUS_OK);
  return status;
}

static int close_arena(void **state) {
  device.ops->arena_unregister(device.backend, arena);
  munmap(base, ARENA_BYTES);
  return device_group_close(state);
}

static int run_group(const struct backend_ops *ops) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows_anywhere), cmocka_unit_test(test_operand_anywhere)};
  device_group(&device, ops, SLAB_BYTES);
  return cmocka_run_group_tests_name(ops->name, tests, open_arena, close_arena);
}

int main(int count, char **arguments) {
  return device_groups(count, arguments, run_group);
}
