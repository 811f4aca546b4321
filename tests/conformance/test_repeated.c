/* Products and sequences that are asked for again and again, with other rows, addresses and weights in between: what a
 * backend keeps from one time to the next must not show. Each answer has the bits of the first one of its kind.
 *
 * Arguments and environment as for test_conformance. */
#include "kernels/backend.h"
#include "tests/support/worker/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SLAB_BYTES ((uint64_t)16 << 20)

enum { N = 272, K = 512, ROWS = 40, WEIGHTS = 2, TIMES = 5, WEIGHT_BYTES = 2 << 20 };

static const struct backend_ops *current;
static struct device device;

/* Two weights of one kind, x of two kinds, and what they give. */
struct kit {
  struct gemm_weight shape;
  struct oracle_weight weights[WEIGHTS];
  struct backend_weight *handles[WEIGHTS];
  struct oracle_x x[WEIGHTS];
  double *right[WEIGHTS][WEIGHTS]; /* by weight and x, [ROWS, N] */
};

static void kit_make(struct kit *kit, const struct oracle_kind *kind) {
  kit->shape = (struct gemm_weight){.n = N, .k = K, .format = kind->format, .scale = kind->scale};
  enum gemm_type type = kind->format == GEMM_FORMAT_BF16 ? GEMM_BF16 : GEMM_F16;
  for (uint64_t i = 0; i < WEIGHTS; i++) {
    oracle_weight_make(&kit->weights[i], &kit->shape, 40 + i);
    kit->handles[i] = device_load(&device, &kit->weights[i], i * WEIGHT_BYTES);
    oracle_x_make(&kit->x[i], ROWS, K, type, 1, 50 + i);
  }
  for (int x = 0; x < WEIGHTS; x++) {
    double *values = oracle_x_values(&kit->x[x], &kit->shape, false);
    for (int w = 0; w < WEIGHTS; w++)
      kit->right[w][x] = oracle_product(values, ROWS, &kit->weights[w], NULL);
    free(values);
  }
}

static void kit_free(struct kit *kit) {
  for (int i = 0; i < WEIGHTS; i++) {
    device.ops->weight_detach(device.backend, kit->handles[i]);
    oracle_weight_free(&kit->weights[i]);
    oracle_x_free(&kit->x[i]);
    for (int x = 0; x < WEIGHTS; x++)
      free(kit->right[i][x]);
  }
}

static void judge(const struct kit *kit, const struct device_request *request, const float *y, const double *right) {
  for (int64_t row = 0; row < request->m; row++) {
    double error = oracle_row_error(kit->shape.format, right + row * N, y + row * N, GEMM_F32, N);
    if (error > oracle_row_gate(&kit->shape, GEMM_F32, right + row * N))
      fail_msg("%s %s, row %lld of %lld: error %g", gemm_format_name(kit->shape.format),
               gemm_scale_name(kit->shape.scale), (long long)row, (long long)request->m, error);
  }
}

/* The i-th of what is asked for; in each round x and y lie elsewhere. */
static struct device_request request_of(const struct kit *kit, int i, int round) {
  static const int64_t rows[] = {1, 3, 4, 17, ROWS};
  return (struct device_request){.weight = kit->handles[i % 2],
                                 .shape = &kit->shape,
                                 .x = &kit->x[i / 2 % 2],
                                 .m = rows[i / 4 % 5],
                                 .y_type = GEMM_F32,
                                 .x_extra = 8 * (round % 3),
                                 .y_extra = 4 * (round % 2)};
}

enum { REQUESTS = 20 };

/* As one product, or as a chain of those of a few rows each. */
static void repeat(const struct kit *kit, bool chain) {
  float *first[REQUESTS] = {NULL};
  for (int round = 0; round < TIMES; round++)
    for (int i = 0; i < REQUESTS; i++) {
      struct device_request request = request_of(kit, i, round);
      float *y = chain ? device_run_chain(&device, &request, 7) : device_run(&device, &request);
      judge(kit, &request, y, kit->right[i % 2][i / 2 % 2]);
      if (!first[i])
        first[i] = y;
      else if (!chain && memcmp(first[i], y, (size_t)(request.m * N) * sizeof *y) != 0)
        fail_msg("%s %s: time %d of %lld rows differs from the first", gemm_format_name(kit->shape.format),
                 gemm_scale_name(kit->shape.scale), round, (long long)request.m);
      if (first[i] != y)
        free(y);
    }
  for (int i = 0; i < REQUESTS; i++)
    free(first[i]);
}

static void test_products(void **state) {
  for (int i = 0; i < device_kinds(current); i++) {
    struct kit kit;
    kit_make(&kit, &oracle_kinds[i]);
    repeat(&kit, false);
    repeat(&kit, true);
    kit_free(&kit);
  }
}

/* A weight goes, and another comes to the same place and perhaps the same handle: nothing of the first is left. */
static void test_weights_that_come_and_go(void **state) {
  static const struct oracle_kind kinds[] = {{GEMM_FORMAT_INT8, GEMM_SCALE_ROW}, {GEMM_FORMAT_FP8, GEMM_SCALE_ROW}};
  for (int round = 0; round < 6; round++) {
    struct kit kit;
    kit_make(&kit, &kinds[round % 2]);
    for (int turn = 0; turn < 4; turn++) {
      struct device_request request = request_of(&kit, 0, turn);
      float *y = device_run(&device, &request);
      judge(&kit, &request, y, kit.right[0][0]);
      free(y);
    }
    kit_free(&kit);
  }
}

static int group_setup(void **state) {
  device_open(&device, current, 2, SLAB_BYTES);
  return 0;
}

static int group_teardown(void **state) {
  device_close(&device);
  return close(device.slab_fd);
}

static int run_group(const struct backend_ops *ops) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_products),
      cmocka_unit_test(test_weights_that_come_and_go),
  };
  current = ops;
  return cmocka_run_group_tests_name(ops->name, tests, group_setup, group_teardown);
}

int main(int count, char **arguments) {
  return device_groups(count, arguments, run_group);
}
