/* Products that a backend computes for its caller, in memory and on streams of the caller's own, on every backend that
 * has a device here: every type, plans, kernels by name, lanes side by side, and what is refused.
 *
 * Arguments and environment as for test_conformance. */
#include "kernels/backend.h"
#include "tests/support/reference/plan.h"
#include "tests/support/system/gpu.h"
#include "tests/support/system/nap.h"
#include "tests/support/worker/lanes.h"
#include "tests/support/worker/suite.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define SLAB_BYTES ((uint64_t)16 << 20)
#define WEIGHT_BYTES ((uint64_t)4 << 20)

enum { LANES = 3, ROWS_MOST = 160 };

static const enum gemm_type bias_types[] = {GEMM_TYPE_NONE, GEMM_F32, GEMM_F16, GEMM_BF16};

static struct device owner;
static struct lanes lanes;
static const struct backend_ops *ops;

/* A weight that the owner stores and the lanes use. */
struct lent {
  struct oracle_weight weight;
  struct backend_weight *kept, *handle;
};

static void lend(struct lent *out, const struct gemm_weight *shape, uint64_t seed, uint64_t offset) {
  oracle_weight_make(&out->weight, shape, seed);
  out->kept = device_load(&owner, &out->weight, offset);
  out->handle = lanes_attach(&lanes, &out->weight, offset);
}

static void take_back(struct lent *lent) {
  ops->weight_detach(lanes.device.backend, lent->handle);
  ops->weight_detach(owner.backend, lent->kept);
  oracle_weight_free(&lent->weight);
}

static struct gemm_weight kind_shape(int kind, int64_t n, int64_t k) {
  return (struct gemm_weight){.n = n, .k = k, .format = oracle_kinds[kind].format, .scale = oracle_kinds[kind].scale};
}

static void expect(int lane, const struct device_request *request, const double *reference) {
  void *y = lanes_run(&lanes, lane, request);
  suite_judge(&lanes.device, request, y, reference);
  free(y);
}

/* ---- every type */

static void one_type(const struct lent *lent, struct device_request *request, enum gemm_type bias_type, int lane) {
  double *bias = NULL;
  void *bias_data = bias_type != GEMM_TYPE_NONE ? suite_bias(lent->weight.shape.n, bias_type, &bias) : NULL;
  request->bias_type = bias_type;
  request->bias = bias_data;
  double *reference = suite_reference(request->x, &lent->weight, bias, request->y_type == GEMM_S32);
  expect(lane, request, reference);
  free(reference);
  free(bias_data);
  free(bias);
}

static void types_of(const struct lent *lent, enum gemm_type x_type, int64_t m) {
  const struct gemm_weight *shape = &lent->weight.shape;
  struct oracle_x x;
  oracle_x_make(&x, m, shape->k, x_type, suite_scale_columns(shape), 5);
  for (int i = 0; i < SUITE_TYPES * COUNT(bias_types); i++) {
    enum gemm_type y_type = (enum gemm_type)(i / COUNT(bias_types)), bias_type = bias_types[i % COUNT(bias_types)];
    struct device_request request = {
        .weight = lent->handle, .shape = shape, .x = &x, .m = m, .y_type = y_type, .x_extra = i % 3, .y_extra = i % 4};
    if (gemm_takes_y(shape->format, x_type, y_type) && (y_type != GEMM_S32 || bias_type == GEMM_TYPE_NONE))
      one_type(lent, &request, bias_type, i % LANES);
  }
  oracle_x_free(&x);
}

/* K where x can be read where it lies, and where its rows are too short or lie askew for that. */
static void test_types(void **state) {
  static const struct { int64_t n, k, m; } sizes[] = {{129, 260, 17}, {256, 512, 16}, {384, 1024, 1}};
  for (int i = 0; i < device_kinds(owner.ops) * COUNT(sizes); i++) {
    int kind = i / COUNT(sizes), size = i % COUNT(sizes);
    struct gemm_weight shape = kind_shape(kind, sizes[size].n, sizes[size].k);
    struct lent lent;
    lend(&lent, &shape, 1 + (uint64_t)i, 0);
    for (int x_type = GEMM_F32; x_type < SUITE_TYPES; x_type++)
      if (gemm_takes_x(shape.format, (enum gemm_type)x_type))
        types_of(&lent, (enum gemm_type)x_type, sizes[size].m);
    take_back(&lent);
  }
}

static void test_rows(void **state) {
  for (int kind = 0; kind < device_kinds(owner.ops); kind++) {
    struct gemm_weight shape = kind_shape(kind, 130, 384);
    struct lent lent;
    lend(&lent, &shape, 20 + (uint64_t)kind, 0);
    for (int sample = 0; sample < 4; sample++) {
      struct oracle_x x;
      enum gemm_type x_type = suite_x_type(shape.format, sample);
      oracle_x_make(&x, ROWS_MOST, shape.k, x_type, suite_scale_columns(&shape), 9);
      double *reference = suite_reference(&x, &lent.weight, NULL, false);
      for (int64_t m = 1 + sample; m <= ROWS_MOST; m = m < 20 ? m + 4 : m * 2 + 1) {
        struct device_request request = {.weight = lent.handle, .shape = &shape, .x = &x, .m = m};
        request.y_type = suite_y_type(shape.format, x_type, (int)m % 3);
        expect(sample % LANES, &request, reference);
      }
      struct device_request most = {.weight = lent.handle, .shape = &shape, .x = &x, .m = ROWS_MOST};
      most.y_type = suite_y_type(shape.format, x_type, 0);
      expect(0, &most, reference);
      free(reference);
      oracle_x_free(&x);
    }
    take_back(&lent);
  }
}

/* ---- the same product by other tensors */

/* By one lane, of x, bias and y in the memory of another. */
static void from_memory_of(int memory, const struct device_request *request, const double *reference) {
  struct backend_job job = lanes_stage(&lanes, memory, request);
  struct error error = {0};
  lanes_poison(&lanes, memory, &job);
  if (ops->enqueue(lanes.device.backend, 0, &job, lanes.streams[0], &error) != STATUS_OK)
    fail_msg("enqueue: %s", error.text);
  if (lanes.streams[0] != NULL)
    assert_true(gpu_stream_wait(lanes.streams[0]));
  void *y = lanes_collect(&lanes, memory, request, &job);
  suite_judge(&lanes.device, request, y, reference);
  free(y);
}

static void moved(const struct lent *lent, enum gemm_type x_type, int64_t m, enum gemm_type bias_type) {
  enum { ROUNDS = 3 };
  const struct gemm_weight *shape = &lent->weight.shape;
  struct oracle_x x[LANES];
  double *bias = NULL, *references[LANES];
  void *bias_data = bias_type != GEMM_TYPE_NONE ? suite_bias(shape->n, bias_type, &bias) : NULL;
  for (int i = 0; i < LANES; i++) {
    oracle_x_make(&x[i], m, shape->k, x_type, suite_scale_columns(shape), 60 + (uint64_t)i);
    references[i] = suite_reference(&x[i], &lent->weight, bias, false);
  }
  for (int i = 0; i < ROUNDS * LANES; i++) {
    int memory = (i + i / LANES) % LANES;
    struct device_request request = {.weight = lent->handle,
                                     .shape = shape,
                                     .x = &x[memory],
                                     .m = m,
                                     .y_type = suite_y_type(shape->format, x_type, 1),
                                     .bias = bias_data,
                                     .bias_type = bias_type};
    from_memory_of(memory, &request, references[memory]);
  }
  for (int i = 0; i < LANES; i++) {
    free(references[i]);
    oracle_x_free(&x[i]);
  }
  free(bias_data);
  free(bias);
}

static void test_moved(void **state) {
  static const int64_t rows[] = {1, 16, 80};
  for (int kind = 0; kind < device_kinds(owner.ops); kind++) {
    struct gemm_weight shape = kind_shape(kind, 256, 512);
    struct lent lent;
    lend(&lent, &shape, 40 + (uint64_t)kind, 0);
    for (int sample = 0; sample < 4; sample++)
      for (int i = 0; i < COUNT(rows); i++)
        moved(&lent, suite_x_type(shape.format, sample), rows[i], i == 1 ? GEMM_F32 : GEMM_TYPE_NONE);
    take_back(&lent);
  }
}

/* ---- kernels by name */

enum { VARIANTS_TRIED = 12 };

static void try_variants(const struct lent *lent, const struct oracle_x *x, int64_t m, enum gemm_type y_type) {
  struct variant_problem problem = {.weight = lent->weight.shape, .m = m, .x_type = x->type, .y_type = y_type};
  struct variant variants[VARIANTS_TRIED];
  struct error error;
  int count = ops->variants(lanes.device.backend, &problem, NULL, false, variants, VARIANTS_TRIED);
  assert_true(count > 0);
  double *reference = suite_reference(x, &lent->weight, NULL, false);
  for (int i = 0; i < count; i++) {
    if ((ops->variant_foreign != NULL && ops->variant_foreign(&variants[i])) ||
        ops->variant_check(lanes.device.backend, &problem, &variants[i], NULL, &error) != STATUS_OK)
      continue;
    struct device_request request = {.weight = lent->handle,
                                     .shape = &lent->weight.shape,
                                     .x = x,
                                     .m = m,
                                     .y_type = y_type,
                                     .variant = &variants[i]};
    expect(i % LANES, &request, reference);
  }
  free(reference);
}

static void test_variants(void **state) {
  static const int64_t ms[] = {1, 8, 32, 128};
  for (int kind = 0; kind < device_kinds(owner.ops); kind++) {
    struct gemm_weight shape = kind_shape(kind, 512, 1024);
    struct lent lent;
    struct oracle_x x;
    lend(&lent, &shape, 60 + (uint64_t)kind, 0);
    enum gemm_type x_type = gemm_takes_x(shape.format, GEMM_BF16) ? GEMM_BF16 : suite_x_type(shape.format, 0);
    oracle_x_make(&x, ROWS_MOST, shape.k, x_type, suite_scale_columns(&shape), 61);
    for (int i = kind % DEVICE_EVERY % COUNT(ms); i < COUNT(ms); i += DEVICE_EVERY)
      try_variants(&lent, &x, ms[i], i % 2 ? GEMM_BF16 : GEMM_F32);
    oracle_x_free(&x);
    take_back(&lent);
  }
}

/* ---- plans */

enum { PLAN_STEPS = 2 };

/* A gated layer: [2F, K] and [F, F], with a bias behind the first product. */
struct layer {
  struct lent lent[PLAN_STEPS];
  struct oracle_step oracle[PLAN_STEPS];
  struct backend_step steps[PLAN_STEPS];
  struct gemm_weight whole;
  double *bias;
};

static void layer_make(struct layer *layer, int kind, int64_t k, int64_t f, enum gemm_type y_type) {
  struct gemm_weight up = kind_shape(kind, 2 * f, k), down = kind_shape(kind, k, f);
  lend(&layer->lent[0], &up, 3, 0);
  lend(&layer->lent[1], &down, 4, WEIGHT_BYTES);
  void *bias = suite_bias(2 * f, GEMM_F32, &layer->bias);
  for (int i = 0; i < PLAN_STEPS; i++) {
    layer->oracle[i] = (struct oracle_step){.weight = &layer->lent[i].weight, .y_type = y_type};
    layer->steps[i] = (struct backend_step){.weight = layer->lent[i].handle, .y_type = y_type};
  }
  layer->oracle[0].activation = layer->steps[0].activation = GEMM_SILU;
  layer->oracle[0].gated = layer->steps[0].gated = true;
  layer->oracle[0].bias = layer->bias;
  layer->steps[0].bias = device_keep(&lanes.device, bias, (uint64_t)(2 * f) * sizeof(float));
  layer->steps[0].bias_type = GEMM_F32;
  layer->whole = up;
  layer->whole.n = k;
  free(bias);
}

static void layer_free(struct layer *layer) {
  take_back(&layer->lent[0]);
  take_back(&layer->lent[1]);
  free(layer->bias);
  lanes.device.kept = 0;
}

static void layer_judge(const struct layer *layer, const struct device_request *request, const void *y) {
  struct oracle_answer right = oracle_plan(request->x, layer->oracle, PLAN_STEPS);
  for (int64_t row = 0; row < request->m; row++) {
    int64_t kind = row % ORACLE_ROW_KINDS;
    if (kind != ORACLE_ROW_NORMAL && kind != ORACLE_ROW_PLAIN && kind != ORACLE_ROW_ZERO)
      continue; /* their magnitudes leave the types in between: which of two right sums overflows is chance */
    const uint8_t *at = (const uint8_t *)y + (uint64_t)(row * layer->whole.n) * gemm_type_bytes(request->y_type);
    double error =
        oracle_row_error(layer->whole.format, right.y + row * layer->whole.n, at, request->y_type, layer->whole.n);
    if (!(error <= right.gates[row]))
      fail_msg("%s: row %lld of %lld is off by %g, allowed %g", gemm_format_name(layer->whole.format), (long long)row,
               (long long)request->m, error, right.gates[row]);
  }
  oracle_answer_free(&right);
}

static void test_plans(void **state) {
  static const int64_t ms[] = {1, 3, 16, 65};
  for (int i = 0; i < device_kinds(owner.ops) * COUNT(ms); i++) {
    struct layer layer;
    struct oracle_x x;
    int kind = i / COUNT(ms);
    enum gemm_type type = oracle_kinds[kind].format == GEMM_FORMAT_F16 ? GEMM_F16 : GEMM_BF16;
    layer_make(&layer, kind, 256, 384, type);
    oracle_x_make(&x, ms[i % COUNT(ms)], 256, type, 1, 7);
    struct device_request request = {.weight = layer.steps[0].weight,
                                     .shape = &layer.whole,
                                     .x = &x,
                                     .m = x.m,
                                     .y_type = type,
                                     .y_extra = i % 3,
                                     .steps = layer.steps,
                                     .step_count = PLAN_STEPS};
    void *y = lanes_run(&lanes, i % LANES, &request);
    layer_judge(&layer, &request, y);
    free(y);
    oracle_x_free(&x);
    layer_free(&layer);
  }
}

/* ---- lanes side by side */

/* What each lane asks for: another weight, another number of rows. */
struct turn {
  struct lent lent;
  struct oracle_x x;
  double *reference;
  struct device_request request;
  struct backend_job job;
  int lane;
};

static void turn_make(struct turn *turn, int lane) {
  static const int kinds[LANES] = {1, 3, 6};
  struct gemm_weight shape = kind_shape(kinds[lane], 512 - 128 * lane, 1024);
  *turn = (struct turn){.lane = lane};
  lend(&turn->lent, &shape, 100 + (uint64_t)lane, (uint64_t)lane * WEIGHT_BYTES);
  oracle_x_make(&turn->x, 5 + 20 * lane, shape.k, GEMM_F16, 1, 8);
  turn->reference = suite_reference(&turn->x, &turn->lent.weight, NULL, false);
  turn->request = (struct device_request){.weight = turn->lent.handle,
                                          .shape = &turn->lent.weight.shape,
                                          .x = &turn->x,
                                          .m = turn->x.m,
                                          .y_type = GEMM_F16};
  turn->job = lanes_stage(&lanes, lane, &turn->request);
}

static void turn_free(struct turn *turn) {
  free(turn->reference);
  oracle_x_free(&turn->x);
  take_back(&turn->lent);
}

static void turn_collect(struct turn *turn) {
  void *y = lanes_collect(&lanes, turn->lane, &turn->request, &turn->job);
  suite_judge(&lanes.device, &turn->request, y, turn->reference);
  free(y);
}

enum { REPEATED = 200 };

/* Not a cmocka assertion: it is for the main thread alone. */
static void *enqueue_often(void *argument) {
  struct turn *turn = argument;
  struct error error = {0};
  for (int i = 0; i < REPEATED; i++)
    if (ops->enqueue(lanes.device.backend, turn->lane, &turn->job, lanes.streams[turn->lane], &error) != STATUS_OK)
      return "enqueue failed";
  return NULL;
}

static void test_lanes_by_threads(void **state) {
  struct turn turns[LANES];
  pthread_t threads[LANES];
  for (int i = 0; i < LANES; i++)
    turn_make(&turns[i], i);
  for (int i = 0; i < LANES; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, enqueue_often, &turns[i]), 0);
  for (int i = 0; i < LANES; i++) {
    void *failed = NULL;
    assert_int_equal(pthread_join(threads[i], &failed), 0);
    assert_null(failed);
  }
  for (int i = 0; i < LANES; i++) {
    turn_collect(&turns[i]);
    turn_free(&turns[i]);
  }
}

/* Not a cmocka assertion either. */
static void *enqueue_or_busy(void *argument) {
  struct turn *turn = argument;
  struct error error = {0};
  for (int i = 0; i < REPEATED; i++) {
    enum status status = ops->enqueue(lanes.device.backend, turn->lane, &turn->job, lanes.streams[turn->lane], &error);
    if (status != STATUS_OK && status != STATUS_BUSY)
      return "enqueue failed";
  }
  return NULL;
}

/* Two threads on one lane: one of them is told, or each has its turn; neither spoils the other. */
static void test_one_lane_by_threads(void **state) {
  struct turn turn;
  pthread_t threads[2];
  turn_make(&turn, 0);
  for (int i = 0; i < 2; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, enqueue_or_busy, &turn), 0);
  for (int i = 0; i < 2; i++) {
    void *failed = NULL;
    assert_int_equal(pthread_join(threads[i], &failed), 0);
    assert_null(failed);
  }
  turn_collect(&turn);
  turn_free(&turn);
}

/* Products one behind the other on one stream, each with the y of the one before as its x: what a kernel may do before
 * the one ahead has ended must not show. */
static void test_chained(void **state) {
  static const int kinds[] = {1, 4, 6, 9};
  for (int i = 0; i < COUNT(kinds); i++) {
    struct gemm_weight shape = kind_shape(kinds[i], 512, 512);
    struct lent lent;
    struct oracle_x x;
    lend(&lent, &shape, 7, 0);
    enum gemm_type type = shape.format == GEMM_FORMAT_F16 ? GEMM_F16 : GEMM_BF16;
    oracle_x_make(&x, 4, shape.k, type, 1, 8);
    struct device_request request = {.weight = lent.handle, .shape = &shape, .x = &x, .m = x.m, .y_type = type};
    struct backend_job job = lanes_stage(&lanes, 0, &request), back = job;
    lanes_enqueue(&lanes, 0, &job);
    void *apart = lanes_collect(&lanes, 0, &request, &job);
    /* x of the second is y of the first */
    back.x = job.y;
    back.x_stride = job.y_stride;
    back.y = lanes.memory[1] + 4096;
    for (int round = 0; round < 50; round++) {
      lanes_poison(&lanes, 0, &job);
      lanes_enqueue(&lanes, 0, &job);
      lanes_enqueue(&lanes, 0, &back);
    }
    struct oracle_x second = {.m = x.m, .k = shape.n, .type = type, .data = apart};
    struct device_request expected = {.weight = lent.handle, .shape = &shape, .x = &second, .m = x.m, .y_type = type};
    void *right = lanes_run(&lanes, 2, &expected);
    uint64_t bytes = (uint64_t)(x.m * shape.n) * gemm_type_bytes(type);
    void *y = lanes_read(&lanes, 0, back.y, bytes);
    assert_memory_equal(y, right, bytes);
    free(y);
    free(right);
    free(apart);
    oracle_x_free(&x);
    take_back(&lent);
  }
}

/* ---- captured by a graph, and replayed */

/* The driver drops what a graph has held on a thread of its own. */
static void await_unheld(const struct backend_weight *weight) {
  for (int i = 0; i < 600000 && ops->weight_held(lanes.device.backend, weight); i++)
    nap_shortly();
  assert_false(ops->weight_held(lanes.device.backend, weight));
}

static void test_captured(void **state) {
  struct turn turns[LANES];
  void *graphs[LANES];
  for (int i = 0; i < LANES; i++) {
    turn_make(&turns[i], i);
    assert_false(ops->weight_held(lanes.device.backend, turns[i].lent.handle));
    assert_true(gpu_capture_begin(lanes.streams[i]));
    lanes_enqueue(&lanes, i, &turns[i].job);
    graphs[i] = gpu_capture_end(lanes.streams[i]);
    assert_non_null(graphs[i]);
    assert_true(ops->weight_held(lanes.device.backend, turns[i].lent.handle));
  }
  for (int round = 0; round < 20; round++) {
    for (int i = 0; i < LANES; i++) {
      lanes_poison(&lanes, i, &turns[i].job);
      assert_true(gpu_graph_launch(graphs[i], lanes.streams[i]));
    }
    for (int i = 0; i < LANES; i++)
      turn_collect(&turns[i]);
  }
  for (int i = 0; i < LANES; i++)
    gpu_graph_drop(graphs[i]);
  for (int i = 0; i < LANES; i++) {
    await_unheld(turns[i].lent.handle);
    turn_free(&turns[i]);
  }
}

/* ---- what is refused */

static enum status refused(struct backend *backend, int lane, const struct backend_job *job, const char *text) {
  struct error error = {0};
  enum status status = ops->enqueue(backend, lane, job, lanes.streams[0], &error);
  if (status == STATUS_OK || strstr(error.text, text) == NULL)
    fail_msg("%d: '%s', expected '%s'", (int)status, error.text, text);
  return status;
}

static void test_refusals(void **state) {
  struct turn turn;
  turn_make(&turn, 0);
  struct backend *backend = lanes.device.backend;
  struct backend_job job = turn.job;
  assert_int_equal(refused(backend, -1, &job, "lane"), STATUS_INVALID);
  assert_int_equal(refused(backend, LANES, &job, "lane"), STATUS_INVALID);
  job.m = ROWS_MOST + 1;
  assert_int_equal(refused(backend, 0, &job, "M must be 1..160, got 161"), STATUS_INVALID);
  job.m = 0;
  assert_int_equal(refused(backend, 0, &job, "M must be 1..160, got 0"), STATUS_INVALID);
  job = turn.job;
  job.x_type = GEMM_E4M3;
  assert_int_equal(refused(backend, 0, &job, "x type"), STATUS_UNSUPPORTED);
  job = turn.job;
  job.y_type = GEMM_S32;
  assert_int_equal(refused(backend, 0, &job, "y type"), STATUS_UNSUPPORTED);
  job = turn.job;
  job.weight = turn.lent.kept;
  assert_int_equal(refused(owner.backend, 0, &job, "serves"), STATUS_WRONG_STATE);
  /* none of these has touched y, and what is asked for next is computed */
  lanes_enqueue(&lanes, 0, &turn.job);
  turn_collect(&turn);
  turn_free(&turn);
}

static int group_open(void **state) {
  device_open(&owner, ops, 1, SLAB_BYTES);
  if (!lanes_open(&lanes, &owner, LANES, ROWS_MOST))
    fail_msg("this process cannot use the GPU");
  return 0;
}

static int group_close(void **state) {
  lanes_close(&lanes);
  device_close(&owner);
  return close(owner.slab_fd);
}

static int group(const struct backend_ops *of) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_types),
                                     cmocka_unit_test(test_rows),
                                     cmocka_unit_test(test_moved),
                                     cmocka_unit_test(test_variants),
                                     cmocka_unit_test(test_plans),
                                     cmocka_unit_test(test_chained),
                                     cmocka_unit_test(test_lanes_by_threads),
                                     cmocka_unit_test(test_one_lane_by_threads),
                                     cmocka_unit_test(test_refusals)};
  const struct CMUnitTest graphs[] = {cmocka_unit_test(test_captured)};
  char name[64];
  ops = of;
  snprintf(name, sizeof name, "enqueue %s", ops->name);
  int failed = cmocka_run_group_tests_name(name, tests, group_open, group_close);
  if (!ops->on_cores) {
    snprintf(name, sizeof name, "enqueue captured %s", ops->name);
    failed += cmocka_run_group_tests_name(name, graphs, group_open, group_close);
  }
  return failed;
}

int main(int count, char **arguments) {
  int failed = device_groups(count, arguments, group);
  suite_table();
  return failed;
}
