/* Weights that change x before it is multiplied (proto/gemm.h, enum gemm_input), on every backend that has a device
 * here: every change by itself and all of them, every type of x, rows that are kept in registers and rows that are not,
 * chains, plans, products on the caller's own stream, and what comes back of the weight.
 *
 * Arguments and environment as for test_conformance. */
#include "kernels/backend.h"
#include "tests/support/reference/plan.h"
#include "tests/support/worker/lanes.h"
#include "tests/support/worker/suite.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define SLAB_BYTES ((uint64_t)16 << 20)
#define WEIGHT_BYTES ((uint64_t)4 << 20)

enum { ALL = GEMM_INPUT_ORDER | GEMM_INPUT_SCALE | 2 * GEMM_INPUT_ROTATE };

static const uint32_t inputs[] = {GEMM_INPUT_ORDER,
                                  GEMM_INPUT_SCALE,
                                  GEMM_INPUT_ROTATE,
                                  2 * GEMM_INPUT_ROTATE,
                                  3 * GEMM_INPUT_ROTATE,
                                  4 * GEMM_INPUT_ROTATE,
                                  5 * GEMM_INPUT_ROTATE,
                                  GEMM_INPUT_ORDER | GEMM_INPUT_SCALE,
                                  ALL};

static struct device device; /* of the group that runs */

static bool takes(const struct gemm_weight *shape) {
  struct error error;
  return gemm_weight_check(shape, &error) == STATUS_OK;
}

/* The next combination from *at on that is one, as a weight of these dimensions; false: there is none. */
static bool next_shape(int *at, int64_t n, int64_t k, struct gemm_weight *out) {
  for (; *at < device_kinds(device.ops) * COUNT(inputs); ++*at) {
    const struct oracle_kind *kind = &oracle_kinds[*at / COUNT(inputs)];
    *out = (struct gemm_weight){
        .n = n, .k = k, .format = kind->format, .scale = kind->scale, .input = inputs[*at % COUNT(inputs)]};
    if (takes(out)) {
      ++*at;
      return true;
    }
  }
  return false;
}

static void one_weight(const struct gemm_weight *shape, const int64_t *rows, int count) {
  struct oracle_weight weight;
  oracle_weight_make(&weight, shape, 11);
  struct backend_weight *handle = device_load(&device, &weight, 0);
  for (int i = 0; i < 3; i++) {
    struct oracle_x x;
    oracle_x_make(&x, rows[count - 1], shape->k, suite_x_type(shape->format, i), 0, 3 + (uint64_t)i);
    double *reference = suite_reference(&x, &weight, NULL, false);
    for (int j = 0; j < count; j++) {
      struct device_request request = {.weight = handle,
                                       .shape = &weight.shape,
                                       .x = &x,
                                       .m = rows[j],
                                       .y_type = suite_y_type(shape->format, x.type, i + j),
                                       .x_extra = (i + j) % 3};
      suite_expect(&device, &request, reference);
    }
    free(reference);
    oracle_x_free(&x);
  }
  device.ops->weight_detach(device.backend, handle);
  oracle_weight_free(&weight);
}

static void test_all(void **state) {
  static const int64_t rows[] = {1, 7, 70};
  struct gemm_weight shape;
  for (int at = 0; next_shape(&at, 131, 1024, &shape); at += DEVICE_EVERY - 1)
    one_weight(&shape, rows, COUNT(rows));
}

/* Rows whose length is no multiple of anything, which cannot be rotated, and of several chunks of a block. */
static void test_lengths(void **state) {
  static const int64_t ks[] = {1, 61, 300, 4 * 61, 64 * 67, 5 * 1024, 9 * 1024}, rows[] = {1, 5}, many[] = {66};
  struct gemm_weight shape;
  for (int i = 0; i < COUNT(ks); i++)
    for (int at = i % DEVICE_EVERY; next_shape(&at, 19, ks[i], &shape); at += DEVICE_EVERY - 1) {
      one_weight(&shape, rows, COUNT(rows));
      if (ks[i] <= 300)
        one_weight(&shape, many, COUNT(many));
    }
}

/* Rows in another order that shared memory has room for, and one element more. */
static void test_long_rows(void **state) {
  static const int64_t ks[] = {20480, 20481, 40960, 40961}, rows[] = {2};
  struct gemm_weight shape;
  for (int i = 0; i < COUNT(ks); i++)
    for (int at = 0; next_shape(&at, 3, ks[i], &shape);)
      if (shape.input == GEMM_INPUT_ORDER)
        one_weight(&shape, rows, COUNT(rows));
}

/* A row with a NaN or an infinity is NaN, and no other row notices. */
static void test_not_finite(void **state) {
  struct gemm_weight shape;
  for (int at = 0; next_shape(&at, 33, 1024, &shape);) {
    struct oracle_weight weight;
    struct oracle_x x;
    oracle_weight_make(&weight, &shape, 5);
    oracle_x_make(&x, 4, shape.k, GEMM_F32, 0, 6);
    oracle_x_set(&x, 1, 700, NAN);
    oracle_x_set(&x, 2, 0, INFINITY);
    struct backend_weight *handle = device_load(&device, &weight, 0);
    double *reference = suite_reference(&x, &weight, NULL, false);
    struct device_request request = {.weight = handle, .shape = &weight.shape, .x = &x, .m = 4, .y_type = GEMM_F32};
    suite_expect(&device, &request, reference);
    free(reference);
    device.ops->weight_detach(device.backend, handle);
    oracle_x_free(&x);
    oracle_weight_free(&weight);
  }
}

/* Rows of several jobs as one product. */
static void test_chains(void **state) {
  struct gemm_weight shape;
  for (int at = 0; next_shape(&at, 64, 1024, &shape);) {
    struct oracle_weight weight;
    struct oracle_x x;
    oracle_weight_make(&weight, &shape, 7);
    oracle_x_make(&x, 21, shape.k, GEMM_F16, 0, 8);
    struct backend_weight *handle = device_load(&device, &weight, 0);
    double *reference = suite_reference(&x, &weight, NULL, false);
    struct device_request request = {.weight = handle, .shape = &weight.shape, .x = &x, .m = 21, .y_type = GEMM_F16};
    void *y = device_run_chain(&device, &request, 4);
    suite_judge(&device, &request, y, reference);
    free(y);
    free(reference);
    device.ops->weight_detach(device.backend, handle);
    oracle_x_free(&x);
    oracle_weight_free(&weight);
  }
}

/* What is stored is what comes back, with what is done to x. */
static void test_back(void **state) {
  struct gemm_weight shape;
  for (int at = 0; next_shape(&at, 70, 512 * 2, &shape);) {
    struct oracle_weight weight;
    struct error error;
    oracle_weight_make(&weight, &shape, 9);
    struct backend_weight *handle = device_load(&device, &weight, 0);
    uint8_t *back = calloc(1, weight.layout.total_bytes);
    assert_non_null(back);
    assert_int_equal(device.ops->weight_read(device.backend, handle, back, &error), STATUS_OK);
    assert_memory_equal(back, weight.canonical, weight.layout.total_bytes);
    free(back);
    device.ops->weight_detach(device.backend, handle);
    oracle_weight_free(&weight);
  }
}

/* A weight that changes x is refused by who would not do it, and the other way round. */
static void test_layout(void **state) {
  struct gemm_weight shape = {.n = 32, .k = 256, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW, .input = ALL};
  struct gemm_weight bare = {.n = 32, .k = 256, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW};
  struct backend_plan plan, plain;
  struct backend_weight *handle;
  struct oracle_weight weight;
  struct error error;
  oracle_weight_make(&weight, &shape, 10);
  assert_int_equal(device.ops->weight_plan(device.backend, &shape, &plan, &error), STATUS_OK);
  assert_int_equal(device.ops->weight_plan(device.backend, &bare, &plain, &error), STATUS_OK);
  device.ops->weight_detach(device.backend, device_load(&device, &weight, 0));
  assert_int_equal(device.ops->weight_attach(device.backend, &shape, plain.layout, device.slab, 0, &handle, &error),
                   STATUS_UNSUPPORTED);
  assert_int_equal(device.ops->weight_attach(device.backend, &bare, plan.layout, device.slab, 0, &handle, &error),
                   STATUS_UNSUPPORTED);
  oracle_weight_free(&weight);
}

/* ---- plans, and products on the caller's own stream */

enum { STEPS = 2, PLAN_ROWS = 9 };

struct layer {
  struct gemm_weight shapes[STEPS], whole;
  struct oracle_weight weights[STEPS];
  struct oracle_step oracle[STEPS];
  struct backend_step steps[STEPS];
};

/* A gated layer whose second product, at least, changes x; `attach` makes a stored weight usable. */
static void layer_make(struct layer *out, const struct gemm_weight *second, struct lanes *lanes) {
  *out = (struct layer){.shapes = {{.n = 2 * second->k,
                                    .k = 256,
                                    .format = GEMM_FORMAT_INT8,
                                    .scale = GEMM_SCALE_ROW,
                                    .input = 4 * GEMM_INPUT_ROTATE},
                                   *second},
                        .whole = {.n = second->n, .k = 256, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW}};
  for (int i = 0; i < STEPS; i++) {
    uint64_t offset = (uint64_t)i * WEIGHT_BYTES;
    oracle_weight_make(&out->weights[i], &out->shapes[i], 30 + (uint64_t)i);
    out->oracle[i] = (struct oracle_step){.weight = &out->weights[i],
                                          .y_type = i == 0 ? GEMM_F16 : GEMM_F32,
                                          .activation = i == 0 ? GEMM_SILU : GEMM_ACTIVATION_NONE,
                                          .gated = i == 0};
    struct backend_weight *handle = device_load(&device, &out->weights[i], offset);
    if (lanes != NULL) {
      device.ops->weight_detach(device.backend, handle);
      handle = lanes_attach(lanes, &out->weights[i], offset);
    }
    out->steps[i] = (struct backend_step){.weight = handle,
                                          .y_type = out->oracle[i].y_type,
                                          .activation = out->oracle[i].activation,
                                          .gated = out->oracle[i].gated};
  }
}

static void layer_free(struct layer *layer, struct backend *backend) {
  for (int i = 0; i < STEPS; i++) {
    device.ops->weight_detach(backend, layer->steps[i].weight);
    oracle_weight_free(&layer->weights[i]);
  }
}

static void judge_layer(const struct device_request *request, const void *y, const struct oracle_answer *right) {
  for (int64_t row = 0; row < request->m; row++) {
    int64_t n = request->shape->n;
    bool counts = row % ORACLE_ROW_KINDS == ORACLE_ROW_NORMAL || row % ORACLE_ROW_KINDS == ORACLE_ROW_PLAIN ||
                  row % ORACLE_ROW_KINDS == ORACLE_ROW_ZERO; /* others leave f16 in between */
    double error = oracle_row_error(GEMM_FORMAT_INT8, right->y + row * n, (const float *)y + row * n, GEMM_F32, n);
    if (counts && error > right->gates[row])
      fail_msg("row %lld: error %g, gate %g", (long long)row, error, right->gates[row]);
  }
}

static void run_layers(struct lanes *lanes) {
  struct gemm_weight second;
  struct oracle_x x;
  oracle_x_make(&x, PLAN_ROWS, 256, GEMM_F16, 0, 40);
  for (int at = 0; next_shape(&at, 48, 1024, &second);) {
    struct layer layer;
    layer_make(&layer, &second, lanes);
    struct oracle_answer right = oracle_plan(&x, layer.oracle, STEPS);
    struct device_request request = {.weight = layer.steps[0].weight,
                                     .shape = &layer.whole,
                                     .x = &x,
                                     .m = PLAN_ROWS,
                                     .y_type = GEMM_F32,
                                     .steps = layer.steps,
                                     .step_count = STEPS};
    void *y = lanes != NULL ? lanes_run(lanes, 0, &request) : device_run(&device, &request);
    judge_layer(&request, y, &right);
    free(y);
    oracle_answer_free(&right);
    layer_free(&layer, lanes != NULL ? lanes->device.backend : device.backend);
  }
  oracle_x_free(&x);
}

static void test_plans(void **state) {
  run_layers(NULL);
}

static void enqueue_one(struct lanes *lanes, const struct gemm_weight *shape, enum gemm_type type) {
  struct oracle_weight weight;
  struct oracle_x x;
  oracle_weight_make(&weight, shape, 50);
  oracle_x_make(&x, PLAN_ROWS, shape->k, type, 0, 51);
  device.ops->weight_detach(device.backend, device_load(&device, &weight, 0));
  struct backend_weight *handle = lanes_attach(lanes, &weight, 0);
  double *reference = suite_reference(&x, &weight, NULL, false);
  for (int64_t m = 1; m <= PLAN_ROWS; m += PLAN_ROWS - 1) {
    struct device_request request = {
        .weight = handle, .shape = &weight.shape, .x = &x, .m = m, .y_type = GEMM_F32, .x_extra = m % 4};
    void *y = lanes_run(lanes, 0, &request);
    suite_judge(&lanes->device, &request, y, reference);
    free(y);
  }
  free(reference);
  device.ops->weight_detach(lanes->device.backend, handle);
  oracle_x_free(&x);
  oracle_weight_free(&weight);
}

static void test_enqueue(void **state) {
  struct gemm_weight shape;
  struct lanes lanes;
  if (!lanes_open(&lanes, &device, 1, PLAN_ROWS))
    skip();
  for (int at = 0; next_shape(&at, 40, 1024, &shape);)
    for (int i = 0; i < 3; i++)
      enqueue_one(&lanes, &shape, suite_x_type(shape.format, i));
  run_layers(&lanes);
  lanes_close(&lanes);
}

static int group(const struct backend_ops *ops) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_all),        cmocka_unit_test(test_lengths), cmocka_unit_test(test_long_rows),
      cmocka_unit_test(test_not_finite), cmocka_unit_test(test_chains),  cmocka_unit_test(test_back),
      cmocka_unit_test(test_layout),     cmocka_unit_test(test_plans),   cmocka_unit_test(test_enqueue),
  };
  device_group(&device, ops, SLAB_BYTES);
  return cmocka_run_group_tests(tests, device_group_open, device_group_close);
}

int main(int count, char **arguments) {
  int status = device_groups(count, arguments, group);
  suite_table();
  return status;
}
