/* x and y in memory of another process, on every backend that has a device here. The memory is that of a slab, which
 * every backend can make and export; what lies in it is written and read by products alone.
 *
 * Arguments and environment as for test_conformance. */
#include "kernels/backend.h"
#include "tests/support/reference/plan.h"
#include "tests/support/worker/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define SLAB_BYTES ((uint64_t)8 << 20)

enum { FIRST_N = 272, FIRST_K = 200, SECOND_N = 90, SECOND_AT = 4 << 20, PLACE = 4096 };

static struct device device;

/* Memory as another process would have it. */
struct foreign {
  struct backend_slab *slab;
  struct backend_arena *memory;
  uint8_t *address;
  uint64_t bytes;
  int fd;
};

static void foreign_open(struct foreign *foreign, uint64_t bytes) {
  struct backend_info info;
  struct error error;
  void *address = NULL;
  device.ops->describe(device.backend, &info);
  foreign->bytes = (bytes + info.slab_granularity - 1) / info.slab_granularity * info.slab_granularity;
  assert_int_equal(device.ops->slab_create(device.backend, foreign->bytes, &foreign->fd, &foreign->slab, &error),
                   STATUS_OK);
  if (device.ops->memory_import(device.backend, foreign->fd, foreign->bytes, &foreign->memory, &address, &error) !=
      STATUS_OK)
    fail_msg("%s", error.text);
  foreign->address = address;
}

static void foreign_close(struct foreign *foreign) {
  device.ops->memory_close(device.backend, foreign->memory);
  device.ops->slab_close(device.backend, foreign->slab);
  close(foreign->fd);
}

struct pair {
  struct gemm_weight shapes[2];
  struct oracle_weight weights[2];
  struct backend_weight *handles[2];
  struct oracle_step steps[2]; /* the second product takes what the first has made */
};

static void pair_make(struct pair *pair, const struct oracle_kind *kind) {
  pair->shapes[0] = (struct gemm_weight){.n = FIRST_N, .k = FIRST_K, .format = kind->format, .scale = kind->scale};
  pair->shapes[1] = (struct gemm_weight){.n = SECOND_N, .k = FIRST_N, .format = kind->format, .scale = kind->scale};
  for (int i = 0; i < 2; i++) {
    oracle_weight_make(&pair->weights[i], &pair->shapes[i], 5 + (uint64_t)i);
    pair->handles[i] = device_load(&device, &pair->weights[i], (uint64_t)i * SECOND_AT);
  }
  enum gemm_type between = kind->format == GEMM_FORMAT_BF16 ? GEMM_BF16 : GEMM_F16;
  pair->steps[0] = (struct oracle_step){.weight = &pair->weights[0], .y_type = between};
  pair->steps[1] = (struct oracle_step){.weight = &pair->weights[1], .y_type = GEMM_F32};
}

static void pair_free(struct pair *pair) {
  for (int i = 0; i < 2; i++) {
    device.ops->weight_detach(device.backend, pair->handles[i]);
    oracle_weight_free(&pair->weights[i]);
  }
}

/* x from the arena to y in the memory, that as x to y in the arena; `parts`: each product as a chain of so many jobs.
 */
static void check_rows(const struct pair *pair, const struct foreign *foreign, const struct oracle_x *x, int64_t m,
                       const struct oracle_answer *right, int parts) {
  enum gemm_type between = pair->steps[0].y_type;
  uint64_t stride = FIRST_N * gemm_type_bytes(between) + 32;
  struct device_request first = {
      .weight = pair->handles[0], .shape = &pair->shapes[0], .x = x, .m = m, .y_type = between};
  struct backend_job into = device_stage(&device, &first);
  into.y = foreign->address + PLACE;
  into.y_stride = stride;
  into.y_memory = foreign->memory;
  struct backend_job tail = into;
  if (parts == 2) { /* the last row by itself */
    into.m = m - 1;
    tail.m = 1;
    tail.x = (const uint8_t *)into.x + (uint64_t)(m - 1) * into.x_stride;
    tail.y = (uint8_t *)into.y + (uint64_t)(m - 1) * stride;
    into.next = &tail;
  }
  device_finish(&device, &into);

  struct oracle_x unused = {.m = m, .k = FIRST_N, .type = between};
  unused.data = calloc((size_t)(m * FIRST_N), gemm_type_bytes(between));
  assert_non_null(unused.data);
  struct device_request second = {
      .weight = pair->handles[1], .shape = &pair->shapes[1], .x = &unused, .m = m, .y_type = GEMM_F32};
  struct backend_job out = device_stage(&device, &second);
  out.x = foreign->address + PLACE;
  out.x_stride = stride;
  out.x_memory = foreign->memory;
  device_finish(&device, &out);
  float *y = device_collect(&device, &second, &out);
  for (int64_t row = 0; row < m; row++) {
    double error =
        oracle_row_error(pair->shapes[1].format, right->y + row * SECOND_N, y + row * SECOND_N, GEMM_F32, SECOND_N);
    int64_t kind = row % ORACLE_ROW_KINDS;
    if ((kind == ORACLE_ROW_NORMAL || kind == ORACLE_ROW_PLAIN || kind == ORACLE_ROW_ZERO) && error > right->gates[row])
      fail_msg("%s, row %lld of %lld in %d parts: error %g, gate %g", gemm_format_name(pair->shapes[0].format),
               (long long)row, (long long)m, parts, error, right->gates[row]);
  }
  free(y);
  free(unused.data);
}

static void test_products(void **state) {
  static const int64_t rows[] = {1, 5, 67, 300};
  struct foreign foreign;
  foreign_open(&foreign, (uint64_t)1 << 20);
  for (int i = 0; i < device_kinds(device.ops); i++) {
    struct pair pair;
    struct oracle_x x;
    pair_make(&pair, &oracle_kinds[i]);
    oracle_x_make(&x, 300, FIRST_K, pair.steps[0].y_type, 1, 12);
    struct oracle_answer right = oracle_plan(&x, pair.steps, 2);
    for (int r = 0; r < COUNT(rows); r++)
      for (int parts = 1; parts <= 2; parts++)
        if (rows[r] >= parts)
          check_rows(&pair, &foreign, &x, rows[r], &right, parts);
    oracle_answer_free(&right);
    oracle_x_free(&x);
    pair_free(&pair);
  }
  foreign_close(&foreign);
}

/* W is what a product has written into the memory: in place, in rows that are longer, and not aligned as kernels like
 * it. The bits are those of W in the arena. */
static void test_operand(void **state) {
  enum { ROWS_OF_W = 32, M = 5, STRIDE = FIRST_N * 2, W_AT = 1 << 20, X_AT = 2 << 20, Y_AT = 3 << 20 };
  static const struct { uint64_t at, stride; } places[] = {{PLACE, STRIDE}, {PLACE + 16, STRIDE}, {PLACE, STRIDE + 64}};
  const struct oracle_kind f16 = {.format = GEMM_FORMAT_F16, .scale = GEMM_SCALE_NONE};
  struct foreign foreign;
  struct pair pair;
  struct oracle_x x, other;
  foreign_open(&foreign, (uint64_t)1 << 20);
  pair_make(&pair, &f16);
  oracle_x_make(&x, ROWS_OF_W, FIRST_K, GEMM_F16, 1, 12);
  oracle_x_make(&other, M, FIRST_N, GEMM_F16, 1, 13);
  struct device_request request = {
      .weight = pair.handles[0], .shape = &pair.shapes[0], .x = &x, .m = ROWS_OF_W, .y_type = GEMM_F16};
  struct backend_operand operand = {
      .shape = {.n = ROWS_OF_W, .k = FIRST_N, .format = GEMM_FORMAT_F16, .scale = GEMM_SCALE_NONE}};
  for (int i = 0; i < COUNT(places); i++) {
    uint8_t y[2][M * ROWS_OF_W * 4];
    for (int where = 0; where < 2; where++) { /* in the arena, in the memory */
      struct backend_job make = device_stage(&device, &request);
      make.y = where == 0 ? device.base + W_AT : foreign.address + places[i].at;
      make.y_memory = where == 0 ? NULL : foreign.memory;
      make.y_stride = places[i].stride;
      device_finish(&device, &make);
      operand.memory = make.y_memory;
      operand.w = make.y;
      operand.stride = make.y_stride;
      memcpy(device.base + X_AT, other.data, M * FIRST_N * 2);
      memset(device.base + Y_AT, 0xfd, sizeof y[where]);
      struct backend_job job = {.operand = &operand,
                                .arena = device.arena,
                                .m = M,
                                .x_type = GEMM_F16,
                                .y_type = GEMM_F32,
                                .x = device.base + X_AT,
                                .y = device.base + Y_AT,
                                .x_stride = FIRST_N * 2,
                                .y_stride = ROWS_OF_W * 4};
      device_finish(&device, &job);
      memcpy(y[where], device.base + Y_AT, sizeof y[where]);
    }
    assert_memory_equal(y[0], y[1], sizeof y[0]);
  }
  oracle_x_free(&other);
  oracle_x_free(&x);
  pair_free(&pair);
  foreign_close(&foreign);
}

static void test_refusals(void **state) {
  struct foreign foreign;
  struct backend_arena *memory;
  struct error error;
  void *address;
  int ends[2];
  foreign_open(&foreign, (uint64_t)2 << 20);
  assert_int_equal(device.ops->memory_import(device.backend, foreign.fd, 2 * foreign.bytes, &memory, &address, &error),
                   STATUS_BAD_DESCRIPTOR);
  assert_int_not_equal(device.ops->memory_import(device.backend, foreign.fd, 4097, &memory, &address, &error),
                       STATUS_OK);
  assert_int_equal(pipe(ends), 0);
  assert_int_equal(device.ops->memory_import(device.backend, ends[0], foreign.bytes, &memory, &address, &error),
                   STATUS_BAD_DESCRIPTOR);
  close(ends[0]);
  close(ends[1]);
  foreign_close(&foreign);
}

static int run_group(const struct backend_ops *ops) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_products), cmocka_unit_test(test_operand),
                                     cmocka_unit_test(test_refusals)};
  device_group(&device, ops, SLAB_BYTES);
  return cmocka_run_group_tests_name(ops->name, tests, device_group_open, device_group_close);
}

int main(int count, char **arguments) {
  return device_groups(count, arguments, run_group);
}
