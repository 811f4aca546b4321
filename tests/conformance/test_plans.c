/* Sequences of products on every backend that has a device here, against float64 and against single products.
 *
 * Arguments and environment as for test_conformance. */
#include "kernels/backend.h"
#include "tests/support/reference/plan.h"
#include "tests/support/worker/device.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define SLAB_BYTES ((uint64_t)16 << 20)

enum { STEPS_MOST = 4, WEIGHT_BYTES = 4 << 20 };

static struct device device;
static double worst; /* error over gate */

/* One step as a test asks for it. */
struct step {
  enum gemm_format format;
  enum gemm_scale scale;
  int64_t n;
  enum gemm_type y_type, bias_type;
  enum gemm_activation activation;
  bool gated;
};

/* Steps with weights and biases made for them. */
struct plan {
  int count;
  struct gemm_weight whole; /* K of x, columns of y */
  struct oracle_weight weights[STEPS_MOST];
  struct oracle_step oracle[STEPS_MOST];
  struct backend_step steps[STEPS_MOST];
};

static void plan_make(struct plan *out, int64_t k, const struct step *steps, int count) {
  *out = (struct plan){.count = count, .whole = {.k = k, .format = steps[0].format, .scale = steps[0].scale}};
  out->whole.n = steps[count - 1].gated ? steps[count - 1].n / 2 : steps[count - 1].n;
  for (int i = 0; i < count; i++) {
    struct gemm_weight shape = {.n = steps[i].n, .k = k, .format = steps[i].format, .scale = steps[i].scale};
    oracle_weight_make(&out->weights[i], &shape, 3 + (uint64_t)i);
    out->oracle[i] = (struct oracle_step){.weight = &out->weights[i],
                                          .y_type = steps[i].y_type,
                                          .activation = steps[i].activation,
                                          .gated = steps[i].gated};
    out->steps[i] = (struct backend_step){.weight = device_load(&device, &out->weights[i], (uint64_t)i * WEIGHT_BYTES),
                                          .y_type = steps[i].y_type,
                                          .bias_type = steps[i].bias_type,
                                          .activation = steps[i].activation,
                                          .gated = steps[i].gated};
    if (steps[i].bias_type != GEMM_TYPE_NONE) {
      float *bias = calloc((size_t)shape.n, sizeof *bias);
      assert_non_null(bias);
      out->oracle[i].bias = oracle_bias_make(shape.n, steps[i].bias_type, bias, 77 + (uint64_t)i);
      assert_non_null(out->oracle[i].bias);
      out->steps[i].bias = device_keep(&device, bias, (uint64_t)shape.n * gemm_type_bytes(steps[i].bias_type));
      free(bias);
    }
    k = oracle_step_columns(&out->oracle[i]);
  }
}

static void plan_free(struct plan *plan) {
  for (int i = 0; i < plan->count; i++) {
    device.ops->weight_detach(device.backend, plan->steps[i].weight);
    free((void *)(uintptr_t)plan->oracle[i].bias);
    oracle_weight_free(&plan->weights[i]);
  }
  device.kept = 0;
}

static struct device_request request_of(const struct plan *plan, const struct oracle_x *x, int64_t m) {
  return (struct device_request){.weight = plan->steps[0].weight,
                                 .shape = &plan->whole,
                                 .x = x,
                                 .m = m,
                                 .y_type = plan->steps[plan->count - 1].y_type,
                                 .x_extra = m % 3,
                                 .y_extra = m % 2,
                                 .steps = plan->steps,
                                 .step_count = (uint32_t)plan->count};
}

/* Not rows whose magnitudes leave f16 in between: which of two right sums overflows is chance. */
static bool row_counts(const struct plan *plan, int64_t row) {
  int64_t kind = row % ORACLE_ROW_KINDS;
  bool ordinary = kind == ORACLE_ROW_NORMAL || kind == ORACLE_ROW_PLAIN || kind == ORACLE_ROW_ZERO;
  for (int i = 0; i < plan->count; i++)
    if (plan->steps[i].y_type == GEMM_F16 && !ordinary)
      return false;
  return true;
}

static void judge(const struct plan *plan, const struct device_request *request, const void *y,
                  const struct oracle_answer *right) {
  int64_t n = plan->whole.n;
  const struct gemm_weight *last = &plan->weights[plan->count - 1].shape;
  for (int64_t row = 0; row < request->m; row++) {
    double error = oracle_row_error(last->format, right->y + row * n,
                                    (const uint8_t *)y + (uint64_t)(row * n) * gemm_type_bytes(request->y_type),
                                    request->y_type, n);
    double gate = right->gates[row];
    if (row_counts(plan, row) && error > gate)
      fail_msg("%s then %s, row %lld of %lld: error %g, gate %g", gemm_format_name(plan->weights[0].shape.format),
               gemm_format_name(last->format), (long long)row, (long long)request->m, error, gate);
    if (row_counts(plan, row) && error / gate > worst)
      worst = error / gate;
  }
}

static void run_and_judge(const struct plan *plan, const struct oracle_x *x, int64_t m,
                          const struct oracle_answer *right) {
  struct device_request request = request_of(plan, x, m);
  void *y = device_run(&device, &request);
  judge(plan, &request, y, right);
  free(y);
}

/* The whole plan, for a few numbers of rows, and each again: a backend may keep something from one time to the next. */
static void check_plan(int64_t k, const struct step *steps, int count, enum gemm_type x_type) {
  static const int64_t rows[] = {1, 5, 67, 1, 5, 67, 1, 6};
  struct plan plan;
  struct oracle_x x;
  plan_make(&plan, k, steps, count);
  int64_t blocks = plan.whole.scale == GEMM_SCALE_BLOCK ? (k + 127) / 128 : 1;
  oracle_x_make(&x, 67, k, x_type, blocks, 21);
  struct oracle_answer right = oracle_plan(&x, plan.oracle, count);
  for (int i = 0; i < COUNT(rows); i++)
    run_and_judge(&plan, &x, rows[i], &right);
  oracle_answer_free(&right);
  oracle_x_free(&x);
  plan_free(&plan);
}

static enum gemm_type type_for(enum gemm_format format, int i) {
  static const enum gemm_type types[] = {GEMM_F16, GEMM_BF16, GEMM_F32};
  return format == GEMM_FORMAT_F16 ? GEMM_F16 : format == GEMM_FORMAT_BF16 ? GEMM_BF16 : types[i % 3];
}

/* Every format behind every other, as a gated layer of an odd number of columns. */
static void test_formats(void **state) {
  for (int i = 0; i < device_kinds(device.ops) * device_kinds(device.ops); i += DEVICE_EVERY) {
    const struct oracle_kind *first = &oracle_kinds[i / device_kinds(device.ops)],
                             *second = &oracle_kinds[i % device_kinds(device.ops)];
    const struct step steps[] = {
        {first->format, first->scale, 2 * 131, type_for(second->format, i), GEMM_TYPE_NONE, GEMM_SILU, true},
        {second->format, second->scale, 77, type_for(GEMM_FORMAT_INT8, i / 2), GEMM_TYPE_NONE, GEMM_ACTIVATION_NONE,
         false},
    };
    check_plan(260, steps, 2, type_for(first->format, i / 3));
  }
}

/* Every activation, gated and not, between products and behind the last. */
static void test_activations(void **state) {
  for (int i = 0; i < 4 * 2 * 3; i++) {
    const enum gemm_activation activation = (enum gemm_activation)(i % 4);
    const bool gated = i / 4 % 2 == 1;
    const enum gemm_type type = type_for(GEMM_FORMAT_INT8, i / 8);
    const struct step steps[] = {
        {GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 512, type, GEMM_F32, activation, gated},
        {GEMM_FORMAT_INT8, GEMM_SCALE_ONE, 96, type, GEMM_BF16, activation, gated},
    };
    check_plan(384, steps, 2, GEMM_F16);
  }
}

static void test_lengths(void **state) {
  const struct step steps[] = {
      {GEMM_FORMAT_FP8, GEMM_SCALE_ROW, 2 * 640, GEMM_BF16, GEMM_TYPE_NONE, GEMM_SILU, true},
      {GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK, 384, GEMM_F16, GEMM_F16, GEMM_RELU, false},
      {GEMM_FORMAT_INT2, GEMM_SCALE_GROUP, 2 * 200, GEMM_F16, GEMM_TYPE_NONE, GEMM_GELU, true},
      {GEMM_FORMAT_F16, GEMM_SCALE_NONE, 61, GEMM_F32, GEMM_TYPE_NONE, GEMM_SILU, false},
  };
  for (int count = 1; count <= 4; count++)
    check_plan(512, steps, count, GEMM_F32);
  /* rows that come quantized, and so wide a layer that several blocks share a row */
  const struct step wide[] = {
      {GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 2 * 9000, GEMM_F16, GEMM_TYPE_NONE, GEMM_SILU, true},
      {GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 64, GEMM_F16, GEMM_TYPE_NONE, GEMM_ACTIVATION_NONE, false},
  };
  check_plan(128, wide, 2, GEMM_INT8);
}

/* ---- the same as single products */

/* v of one step, by a product of its own; the caller frees. */
static void *single(const struct plan *plan, int i, const struct oracle_x *x) {
  struct device_request request = {.weight = plan->steps[i].weight,
                                   .shape = &plan->weights[i].shape,
                                   .x = x,
                                   .m = x->m,
                                   .y_type = plan->steps[i].y_type};
  return device_run(&device, &request);
}

/* The plan against single products with the activation computed in between, in float64. */
static void check_singles(const struct step *steps, bool exact) {
  struct plan plan;
  struct oracle_x x, middle;
  const int64_t columns = steps[1].n;
  const double few = 4e-3; /* of a row, from elements whose activation rounds the other way */
  plan_make(&plan, 300, steps, 2);
  oracle_x_make(&x, 9, 300, type_for(steps[0].format, 0), 1, 5);
  void *v = single(&plan, 0, &x);
  double *activated = oracle_activate(&plan.oracle[0], v, x.m);
  oracle_x_from(&middle, activated, x.m, oracle_step_columns(&plan.oracle[0]), steps[0].y_type);
  float *expected = single(&plan, 1, &middle);
  struct device_request request = request_of(&plan, &x, x.m);
  float *y = device_run(&device, &request);
  for (int64_t row = 0; row < x.m; row++) {
    double off = 0, size = 0;
    for (int64_t i = row * columns; i < (row + 1) * columns; i++) {
      bool same = y[i] == expected[i] || (isnan(y[i]) && isnan(expected[i]));
      if (exact && !same)
        fail_msg("%s %s: y[%lld] is %g, by single products %g", gemm_format_name(steps[0].format),
                 gemm_scale_name(steps[0].scale), (long long)i, (double)y[i], (double)expected[i]);
      double difference = same ? 0 : (double)y[i] - (double)expected[i];
      off += difference * difference;
      size += isnan(expected[i]) ? 0 : (double)expected[i] * (double)expected[i];
    }
    if (row_counts(&plan, row) && !(sqrt(off) <= few * sqrt(size)))
      fail_msg("%s %s: row %lld is off by %g", gemm_format_name(steps[0].format), gemm_scale_name(steps[0].scale),
               (long long)row, sqrt(off / size));
  }
  free(y);
  free(expected);
  free(middle.data);
  free(activated);
  free(v);
  oracle_x_free(&x);
  plan_free(&plan);
}

/* Activations that round nothing leave no room for a difference; the others for little. */
static void test_against_single_products(void **state) {
  for (int i = 0; i < device_kinds(device.ops) * 5; i++) {
    const struct oracle_kind *kind = &oracle_kinds[i / 5];
    static const enum gemm_activation activations[] = {GEMM_ACTIVATION_NONE, GEMM_RELU, GEMM_SILU, GEMM_GELU,
                                                       GEMM_SWIGLU_CLAMPED};
    const bool exact = i % 5 < 2;
    const struct step steps[] = {
        {kind->format, kind->scale, 200, type_for(kind->format, i), GEMM_TYPE_NONE, activations[i % 5], !exact},
        {kind->format, kind->scale, 150, GEMM_F32, GEMM_TYPE_NONE, GEMM_ACTIVATION_NONE, false},
    };
    check_singles(steps, exact);
  }
}

/* ---- rows of several requests, and rows that are not finite */

static const struct step layer[] = {
    {GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 2 * 160, GEMM_F16, GEMM_F32, GEMM_SILU, true},
    {GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 90, GEMM_F16, GEMM_TYPE_NONE, GEMM_ACTIVATION_NONE, false},
};

static void test_chains(void **state) {
  for (int gated_last = 0; gated_last < 2; gated_last++) {
    struct step steps[] = {layer[0], layer[1]};
    struct plan plan;
    struct oracle_x x;
    steps[1].gated = gated_last;
    plan_make(&plan, 200, steps, 2);
    oracle_x_make(&x, 41, 200, GEMM_BF16, 1, 8);
    struct oracle_answer right = oracle_plan(&x, plan.oracle, 2);
    struct device_request request = request_of(&plan, &x, x.m);
    void *y = device_run_chain(&device, &request, 7);
    judge(&plan, &request, y, &right);
    free(y);
    oracle_answer_free(&right);
    oracle_x_free(&x);
    plan_free(&plan);
  }
}

static void test_a_row_that_is_not_finite(void **state) {
  struct plan plan;
  struct oracle_x x;
  plan_make(&plan, 200, layer, 2);
  oracle_x_make(&x, 6, 200, GEMM_F32, 1, 8);
  struct device_request request = request_of(&plan, &x, x.m);
  uint16_t *clean = device_run(&device, &request);
  oracle_x_set(&x, 2, 17, NAN);
  uint16_t *spoilt = device_run(&device, &request);
  for (int64_t i = 0; i < 6 * 90; i++) {
    if (i / 90 == 2)
      assert_true(isnan(oracle_element(spoilt, i, GEMM_F16)));
    else if (clean[i] != spoilt[i])
      fail_msg("a NaN in row 2 has changed row %lld", (long long)i / 90);
  }
  free(clean);
  free(spoilt);
  oracle_x_free(&x);
  plan_free(&plan);
}

static void test_types_that_do_not_follow(void **state) {
  const struct step steps[] = {
      {GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 64, GEMM_BF16, GEMM_TYPE_NONE, GEMM_RELU, false},
      {GEMM_FORMAT_F16, GEMM_SCALE_NONE, 64, GEMM_F16, GEMM_TYPE_NONE, GEMM_RELU, false},
  };
  struct plan plan;
  struct oracle_x x;
  struct error error;
  plan_make(&plan, 64, steps, 2);
  oracle_x_make(&x, 1, 64, GEMM_F32, 1, 8);
  struct device_request request = request_of(&plan, &x, 1);
  struct backend_job job = device_stage(&device, &request);
  assert_int_equal(device.ops->submit(device.backend, &job, &error), STATUS_UNSUPPORTED);
  assert_int_equal(error.field, FIELD_X_TYPE);
  oracle_x_free(&x);
  plan_free(&plan);
}

/* The time of a sequence is that of its kernels: asked for as the tuner asks, with and without overlap. */
static void test_measured(void **state) {
  struct plan plan;
  struct oracle_x x;
  struct error error;
  plan_make(&plan, 200, layer, 2);
  oracle_x_make(&x, 5, 200, GEMM_F16, 1, 8);
  struct device_request request = request_of(&plan, &x, 5);
  struct backend_job job = device_stage(&device, &request);
  for (int dependent = 0; dependent < 2; dependent++) {
    const struct backend_timing timing = {.launches = 3, .quantize = true, .dependent = dependent};
    uint64_t ns = 0;
    assert_int_equal(device.ops->measure(device.backend, &job, &plan.steps[0].weight, 1, &timing, &ns, &error),
                     STATUS_OK);
    assert_true(ns > 0);
  }
  oracle_x_free(&x);
  plan_free(&plan);
}

static int run_group(const struct backend_ops *ops) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_formats),
      cmocka_unit_test(test_activations),
      cmocka_unit_test(test_lengths),
      cmocka_unit_test(test_against_single_products),
      cmocka_unit_test(test_chains),
      cmocka_unit_test(test_a_row_that_is_not_finite),
      cmocka_unit_test(test_types_that_do_not_follow),
      cmocka_unit_test(test_measured),
  };
  worst = 0;
  device_group(&device, ops, SLAB_BYTES);
  int failed = cmocka_run_group_tests_name(ops->name, tests, device_group_open, device_group_close);
  print_message("%s: the worst row has %.2f of what it may be off\n", ops->name, worst);
  return failed;
}

int main(int count, char **arguments) {
  return device_groups(count, arguments, run_group);
}
