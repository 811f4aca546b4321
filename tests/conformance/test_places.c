/* INT2 weights on a GPU of compute capability 9.0: it has passed the check of its sparse matrix instructions, so that
 * they lie in tiles; where it had not, they lie plainly and products are right, and what lies in tiles is refused.
 * Other devices and backends have nothing to check. Arguments and environment as for test_conformance. */
#include "kernels/backend.h"
#include "tests/support/worker/device.h"
#ifdef GEMMD_CUDA
#include "kernels/cuda/families/sm90/int2/places.h"
#include "kernels/cuda/state.h"
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SLAB_BYTES ((uint64_t)4 << 20)

enum { N = 272, K = 700, ROWS = 20 };

static struct device device;

#ifdef GEMMD_CUDA
static void skip_others(void) {
  if (strcmp(device.ops->name, "cuda") != 0)
    skip();
  if (device.backend->gpu.capability == 90)
    return;
  assert_false(device.backend->gpu.places);
  skip();
}

static void test_check(void **state) {
  skip_others();
  assert_true(device.backend->gpu.places);
  for (int i = 0; i < 3; i++) {
    struct error error;
    bool right = false;
    assert_int_equal(backend_enter(device.backend, &error), STATUS_OK);
    assert_int_equal(places_check(&right), cudaSuccess);
    assert_true(right);
  }
}

static void judge(const struct oracle_weight *weight, struct backend_weight *handle, enum gemm_type type) {
  struct oracle_x x;
  oracle_x_make(&x, ROWS, K, type, 1, 5);
  double *values = oracle_x_values(&x, &weight->shape, false);
  double *right = oracle_product(values, ROWS, weight, NULL);
  for (int64_t m = 1; m <= ROWS; m += ROWS - 1) {
    struct device_request request = {.weight = handle, .shape = &weight->shape, .x = &x, .m = m, .y_type = type};
    uint8_t *y = device_run(&device, &request);
    for (int64_t row = 0; row < m; row++) {
      const uint8_t *y_row = y + (uint64_t)(row * N) * gemm_type_bytes(type);
      double error = oracle_row_error(GEMM_FORMAT_INT2, right + row * N, y_row, type, N);
      assert_true(error <= oracle_row_gate(&weight->shape, type, right + row * N));
    }
    free(y);
  }
  free(right);
  free(values);
  oracle_x_free(&x);
}

static void test_without(void **state) {
  static const struct gemm_weight shape = {.n = N, .k = K, .format = GEMM_FORMAT_INT2, .scale = GEMM_SCALE_GROUP};
  struct backend *const backend = device.backend;
  struct backend_plan tiles, plain;
  struct backend_weight *handle = NULL;
  struct oracle_weight weight;
  struct error error;
  skip_others();
  assert_int_equal(device.ops->weight_plan(backend, &shape, &tiles, &error), STATUS_OK);
  assert_int_equal(tiles.layout, LAYOUT_TILES2);
  backend->gpu.places = false;
  assert_int_equal(device.ops->weight_plan(backend, &shape, &plain, &error), STATUS_OK);
  assert_int_equal(plain.layout, LAYOUT_CODES2);
  assert_int_equal(device.ops->weight_attach(backend, &shape, tiles.layout, device.slab, 0, &handle, &error),
                   STATUS_UNSUPPORTED);
  oracle_weight_make(&weight, &shape, 3);
  handle = device_load(&device, &weight, 0);
  judge(&weight, handle, GEMM_F16);
  judge(&weight, handle, GEMM_F32);
  device.ops->weight_detach(backend, handle);
  oracle_weight_free(&weight);
  backend->gpu.places = true;
}
#else
static void test_check(void **state) {
  skip();
}

static void test_without(void **state) {
  skip();
}
#endif

static int group(const struct backend_ops *ops) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_check),
      cmocka_unit_test(test_without),
  };
  device_group(&device, ops, SLAB_BYTES);
  return cmocka_run_group_tests_name(ops->name, tests, device_group_open, device_group_close);
}

int main(int count, char **arguments) {
  return device_groups(count, arguments, group);
}
