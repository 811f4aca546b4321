/* Products and sequences over weights with experts, on every backend that has a device here, against float64 and
 * against dense products by the weights of single experts.
 *
 * Arguments and environment as for test_conformance. */
#include "kernels/backend.h"
#include "proto/number.h"
#include "tests/support/reference/experts.h"
#include "tests/support/worker/device.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define SLAB_BYTES ((uint64_t)32 << 20)

enum { STEPS_MOST = 2, VARIANTS_MOST = 64, WEIGHT_BYTES = 16 << 20 };

static struct device device;
static double worst; /* error over what is allowed */

/* One step as a test asks for it. */
struct step {
  struct gemm_weight shape;
  enum gemm_type y_type, bias_type;
  enum gemm_activation activation;
  bool gated;
};

/* Steps with weights and biases made for them. */
struct layer {
  int count;
  struct gemm_weight whole; /* K of x, columns of y, E */
  struct oracle_experts experts[STEPS_MOST];
  struct oracle_layer_step oracle[STEPS_MOST];
  struct backend_step steps[STEPS_MOST];
};

static void make_bias(struct layer *layer, int i, const struct step *step) {
  int64_t n = step->shape.n * step->shape.experts;
  struct oracle_x bias;
  double *values = malloc((size_t)n * sizeof *values);
  assert_non_null(values);
  oracle_x_make(&bias, 1, n, step->bias_type, 1, 77 + (uint64_t)i);
  for (int64_t j = 0; j < n; j++)
    values[j] = oracle_element(bias.data, j, step->bias_type);
  layer->oracle[i].bias = values;
  layer->steps[i].bias = device_keep(&device, bias.data, (uint64_t)n * gemm_type_bytes(step->bias_type));
  oracle_x_free(&bias);
}

static void layer_make(struct layer *out, const struct step *steps, int count) {
  const struct step *last = &steps[count - 1];
  *out = (struct layer){.count = count, .whole = steps[0].shape};
  out->whole.n = last->gated ? last->shape.n / 2 : last->shape.n;
  for (int i = 0; i < count; i++) {
    oracle_experts_make(&out->experts[i], &steps[i].shape, 3 + (uint64_t)i);
    out->oracle[i] = (struct oracle_layer_step){.experts = &out->experts[i],
                                                .y_type = steps[i].y_type,
                                                .activation = steps[i].activation,
                                                .gated = steps[i].gated};
    out->steps[i] =
        (struct backend_step){.weight = device_load(&device, &out->experts[i].whole, (uint64_t)i * WEIGHT_BYTES),
                              .y_type = steps[i].y_type,
                              .bias_type = steps[i].bias_type,
                              .activation = steps[i].activation,
                              .gated = steps[i].gated};
    if (steps[i].bias_type != GEMM_TYPE_NONE)
      make_bias(out, i, &steps[i]);
  }
}

static void layer_free(struct layer *layer) {
  for (int i = 0; i < layer->count; i++) {
    device.ops->weight_detach(device.backend, layer->steps[i].weight);
    free((void *)(uintptr_t)layer->oracle[i].bias);
    oracle_experts_free(&layer->experts[i]);
  }
  device.kept = 0;
}

/* One step without an activation is asked for as a product, all else as a sequence. */
static struct device_request request_of(const struct layer *layer, const struct oracle_x *x,
                                        const struct oracle_choice *choice) {
  const struct backend_step *last = &layer->steps[layer->count - 1];
  bool product = layer->count == 1 && !last->gated && last->activation == GEMM_ACTIVATION_NONE;
  struct device_request request = {.weight = layer->steps[0].weight,
                                   .shape = &layer->whole,
                                   .x = x,
                                   .m = choice->m,
                                   .y_type = last->y_type,
                                   .x_extra = choice->m % 3,
                                   .y_extra = choice->m % 2,
                                   .experts = {.ids = choice->ids,
                                               .routing = choice->routing,
                                               .top = choice->top,
                                               .x_pairs = choice->x_pairs,
                                               .sum = choice->sum}};
  if (product) {
    request.bias = last->bias;
    request.bias_type = last->bias_type;
  } else {
    request.steps = layer->steps;
    request.step_count = (uint32_t)layer->count;
  }
  return request;
}

/* Rows of x: ordinary ones, ones with outliers, zeros. */
static double element(const void *context, int64_t row, int64_t k) {
  uint64_t state = (uint64_t)(row * 1000003 + k) + *(const uint64_t *)context;
  double value = oracle_normal(&state);
  return row % 7 == 5 ? 0 : row % 7 == 3 && k % 64 == 9 ? 100 * value : value;
}

static void make_x(struct oracle_x *x, int64_t rows, int64_t k, enum gemm_type type, uint64_t seed) {
  const struct oracle_filler filler = {.element = element, .context = &seed};
  oracle_x_fill(x, rows, k, type, 1, &filler);
}

static void judge(const struct layer *layer, const struct device_request *request, const void *y,
                  const struct oracle_layer *right) {
  int64_t n = layer->whole.n;
  for (int64_t row = 0; row < right->rows; row++) {
    double square = 0;
    for (int64_t i = row * n; i < (row + 1) * n; i++) {
      double off = oracle_element(y, i, request->y_type) - right->y[i];
      square += off * off;
    }
    double off = sqrt(square), may = right->off[row];
    if (!(off <= may))
      fail_msg("%s %s, M %lld, T %lld, row %lld: off by %g, allowed %g", gemm_format_name(layer->whole.format),
               gemm_scale_name(layer->whole.scale), (long long)request->m, (long long)request->experts.top,
               (long long)row, off, may);
    worst = may > 0 ? fmax(worst, off / may) : worst;
  }
  assert_int_equal(device.skipped, right->skipped);
}

static uint64_t y_bytes(const struct device_request *request) {
  return (uint64_t)(device_rows(request) * request->shape->n) * gemm_type_bytes(request->y_type);
}

/* Right, and the same bits again. */
static void expect(const struct layer *layer, const struct oracle_x *x, const struct oracle_choice *choice) {
  struct device_request request = request_of(layer, x, choice);
  struct oracle_layer right = oracle_layer(x, choice, layer->oracle, layer->count);
  void *y = device_run(&device, &request);
  judge(layer, &request, y, &right);
  void *again = device_run(&device, &request);
  assert_memory_equal(y, again, y_bytes(&request));
  free(y);
  free(again);
  oracle_layer_free(&right);
}

/* ---- ids */

enum ids { IDS_UNIFORM, IDS_ONE, IDS_FEW, IDS_REPEATED, IDS_SKIP, IDS_ALL_SKIP, IDS_WILD, IDS_KINDS };

static int32_t make_id(enum ids kind, int64_t experts, int64_t row, uint64_t *state) {
  static const int32_t wild[] = {INT32_MIN, INT32_MAX, -1, -2, 1 << 16};
  int32_t id = (int32_t)(oracle_random(state) % (uint64_t)experts);
  bool skips = oracle_random(state) % 3 == 0;
  switch (kind) {
  case IDS_ONE:
    return (int32_t)experts - 1;
  case IDS_FEW:
    return id / 2 * 2;
  case IDS_REPEATED:
    return (int32_t)(row % experts);
  case IDS_SKIP:
    return skips ? -1 : id;
  case IDS_ALL_SKIP:
    return (int32_t)experts;
  case IDS_WILD:
    return skips ? wild[oracle_random(state) % COUNT(wild)] : id;
  default:
    return id;
  }
}

struct routes {
  int32_t *ids;
  float *routing;
};

static struct routes make_routes(enum ids kind, int64_t experts, int64_t m, int64_t top, uint64_t seed) {
  struct routes out = {.ids = malloc((size_t)(m * top) * sizeof *out.ids),
                       .routing = malloc((size_t)(m * top) * sizeof *out.routing)};
  assert_true(out.ids != NULL && out.routing != NULL);
  for (int64_t i = 0; i < m * top; i++) {
    out.ids[i] = make_id(kind, experts, i / top, &seed);
    out.routing[i] = (float)oracle_uniform(&seed);
  }
  return out;
}

static void routes_free(struct routes *routes) {
  free(routes->ids);
  free(routes->routing);
}

/* For some numbers of rows: x a row or a pair, y pairs, their sum, or the sum by routing. */
static void check_layer(const struct layer *layer, enum gemm_type x_type, int64_t top, const int64_t *rows, int count) {
  for (int i = 0; i < count * 4; i++) {
    struct oracle_x x;
    struct oracle_choice choice = {.m = rows[i / 4], .top = top, .x_pairs = i % 2 == 1, .sum = i % 4 >= 1};
    struct routes routes = make_routes((enum ids)(i % IDS_KINDS), layer->whole.experts, choice.m, top, (uint64_t)i);
    choice.ids = routes.ids;
    choice.routing = i % 4 >= 2 ? routes.routing : NULL;
    make_x(&x, choice.x_pairs ? choice.m * top : choice.m, layer->whole.k, x_type, 17 + (uint64_t)i);
    expect(layer, &x, &choice);
    oracle_x_free(&x);
    routes_free(&routes);
  }
}

static enum gemm_type type_for(enum gemm_format format, int i) {
  static const enum gemm_type types[] = {GEMM_BF16, GEMM_F32, GEMM_F16};
  return format == GEMM_FORMAT_F16 ? GEMM_F16 : format == GEMM_FORMAT_BF16 ? GEMM_BF16 : types[i % 3];
}

static struct step step_of(int kind, int64_t n, int64_t k, int64_t experts, enum gemm_type y_type) {
  return (struct step){.shape = {.n = n,
                                 .k = k,
                                 .format = oracle_kinds[kind].format,
                                 .scale = oracle_kinds[kind].scale,
                                 .experts = experts},
                       .y_type = y_type};
}

/* ---- tests */

/* Sizes that no tile divides, every format. */
static void test_formats(void **state) {
  static const int64_t rows[] = {1, 6, 19};
  for (int kind = 0; kind < device_kinds(device.ops); kind++) {
    struct step step = step_of(kind, 131, 260, 5, type_for(GEMM_FORMAT_INT8, kind));
    struct layer layer;
    step.bias_type = kind % 2 == 1 ? type_for(GEMM_FORMAT_INT8, kind / 2) : GEMM_TYPE_NONE;
    layer_make(&layer, &step, 1);
    check_layer(&layer, type_for(step.shape.format, kind / 3), 2, rows, COUNT(rows));
    layer_free(&layer);
  }
}

/* One expert, all of them, many of them, and sizes that tiles do divide. */
static void test_counts(void **state) {
  static const struct {
    int64_t experts, top, n, k;
  } cases[] = {{1, 1, 48, 64}, {3, 3, 128, 256}, {64, 8, 64, 128}, {33, 4, 17, 48}, {512, 2, 16, 32}, {8, 8, 256, 512}};
  static const int64_t rows[] = {1, 2, 16, 70};
  for (int i = 0; i < COUNT(cases) * 3; i++) {
    static const int kinds[] = {1, 3, 6}; /* INT8 and FP8 with a scale a row, INT2 in groups */
    struct step step = step_of(kinds[i % 3], cases[i / 3].n, cases[i / 3].k, cases[i / 3].experts, GEMM_BF16);
    struct layer layer;
    layer_make(&layer, &step, 1);
    check_layer(&layer, GEMM_BF16, cases[i / 3].top, rows, COUNT(rows));
    layer_free(&layer);
  }
}

/* Gate and up, SwiGLU, down, sum: every format before every other. */
static void test_layers(void **state) {
  static const int64_t rows[] = {1, 9};
  for (int i = 0; i < device_kinds(device.ops) * device_kinds(device.ops); i += DEVICE_EVERY) {
    int first = i / device_kinds(device.ops), second = i % device_kinds(device.ops);
    struct step steps[] = {
        step_of(first, 2 * 131, 260, 6, type_for(oracle_kinds[second].format, i)),
        step_of(second, 77, 131, 6, type_for(GEMM_FORMAT_INT8, i / 2)),
    };
    struct layer layer;
    steps[0].activation = i % 3 == 0 ? GEMM_GELU : i % 3 == 1 ? GEMM_SILU : GEMM_SWIGLU_CLAMPED;
    steps[0].gated = true;
    if (i % 3 == 2) /* as the models have biases that have this one */
      steps[0].bias_type = steps[1].bias_type = type_for(GEMM_FORMAT_INT8, i);
    layer_make(&layer, steps, 2);
    check_layer(&layer, type_for(steps[0].shape.format, i / 3), 2, rows, 1 + (i % 4 == 0));
    layer_free(&layer);
  }
}

static void test_many_rows(void **state) {
  static const int64_t rows[] = {700};
  struct step steps[] = {step_of(1, 2 * 192, 256, 8, GEMM_BF16), step_of(3, 256, 192, 8, GEMM_BF16)};
  struct layer layer;
  steps[0].activation = GEMM_SILU;
  steps[0].gated = true;
  layer_make(&layer, steps, 2);
  check_layer(&layer, GEMM_BF16, 3, rows, 1);
  layer_free(&layer);
}

/* Products of more blocks of rows of W than a GPU computes at a time, one behind the other. */
static void test_layers_of_many_blocks(void **state) {
  static const int64_t rows[] = {5};
  for (int kind = 0; kind < device_kinds(device.ops); kind += DEVICE_EVERY) {
    enum gemm_format format = oracle_kinds[kind].format;
    struct step steps[] = {step_of(kind, 1024, 256, 10, type_for(format, kind)),
                           step_of(kind, 896, 512, 10, type_for(GEMM_FORMAT_INT8, kind / 2))};
    struct layer layer;
    steps[0].activation = GEMM_SILU;
    steps[0].gated = true;
    layer_make(&layer, steps, 2);
    check_layer(&layer, type_for(format, kind / 3), 4, rows, COUNT(rows));
    layer_free(&layer);
  }
}

/* Whole blocks of 64 rows, which a GPU may keep in tiles: few and many groups of K, any type of x and y. */
static void test_whole_blocks(void **state) {
  static const int64_t rows[] = {1, 23};
  static const struct { int64_t n, k; } shapes[] = {{64, 100}, {192, 1152}, {320, 1064}};
  for (int i = 0; i < device_kinds(device.ops) * COUNT(shapes); i += 2 * DEVICE_EVERY - 1) {
    int kind = i / COUNT(shapes), shape = i % COUNT(shapes);
    enum gemm_format format = oracle_kinds[kind].format;
    if (!gemm_is_packed(format))
      continue;
    for (int type = 0; type < 3; type++) {
      struct step step = step_of(kind, shapes[shape].n, shapes[shape].k, 5, type_for(GEMM_FORMAT_INT8, type + shape));
      struct layer layer;
      step.bias_type = shape == 1 ? GEMM_F32 : GEMM_TYPE_NONE;
      layer_make(&layer, &step, 1);
      check_layer(&layer, type_for(format, type), 2, rows, COUNT(rows));
      layer_free(&layer);
    }
  }
}

/* Whatever kernel a tuning may choose, for two experts a row. */
static void check_kernels(const struct step *step, enum ids ids, int64_t m, int seed) {
  enum gemm_type x_type = type_for(step->shape.format, seed % 2 * 2);
  const struct variant_problem problem = {
      .weight = step->shape, .m = m, .top = 2, .x_type = x_type, .y_type = step->y_type};
  struct variant variants[VARIANTS_MOST];
  int count = device.ops->variants(device.backend, &problem, NULL, true, variants, VARIANTS_MOST);
  struct routes routes = make_routes(ids, step->shape.experts, m, problem.top, (uint64_t)seed);
  const struct oracle_choice choice = {.ids = routes.ids, .m = m, .top = problem.top};
  struct oracle_x x;
  struct layer layer;
  assert_in_range(count, 1, VARIANTS_MOST);
  layer_make(&layer, step, 1);
  make_x(&x, m, step->shape.k, x_type, 5 + (uint64_t)seed);
  struct device_request request = request_of(&layer, &x, &choice);
  struct oracle_layer right = oracle_layer(&x, &choice, layer.oracle, 1);
  for (int v = 0; v < count; v++) {
    struct error error;
    assert_int_equal(device.ops->variant_check(device.backend, &problem, &variants[v], NULL, &error), STATUS_OK);
    request.variant = &variants[v];
    void *y = device_run(&device, &request);
    judge(&layer, &request, y, &right);
    free(y);
  }
  oracle_layer_free(&right);
  oracle_x_free(&x);
  routes_free(&routes);
  layer_free(&layer);
}

/* Tiles that are full, ragged and empty; those of a CPU are small. */
static void test_every_kernel(void **state) {
  static const int64_t on_gpu[] = {1, 40, 530}, on_cores[] = {1, 40, 90};
  const int64_t *rows = device.ops->on_cores ? on_cores : on_gpu, n = device.ops->on_cores ? 176 : 704;
  enum { ROWS = COUNT(on_gpu) };
  for (int i = 0; i < device_kinds(device.ops) * ROWS; i += 2 * DEVICE_EVERY - 1) {
    struct step step = step_of(i / ROWS, n, 384, 4, type_for(GEMM_FORMAT_INT8, i % 2 * 2));
    check_kernels(&step, IDS_SKIP, rows[i % ROWS], i);
  }
}

/* Somewhat more pieces of 256 rows of W than a GPU computes at a time, of experts that have a tile or two. */
static void test_a_round_and_some(void **state) {
  for (int kind = 0; kind < device_kinds(device.ops) && !device.ops->on_cores; kind += DEVICE_EVERY) {
    if (gemm_quantizes_x(oracle_kinds[kind].format)) {
      struct step step = step_of(kind, 520, 128, 33, GEMM_BF16);
      check_kernels(&step, IDS_UNIFORM, 2400, 2 * kind);
    }
  }
}

/* More pairs than are sorted at once. */
static void test_a_great_many_pairs(void **state) {
  static const int64_t rows[] = {40000};
  struct step step = step_of(1, 2, 16, 9, GEMM_F32);
  struct layer layer;
  layer_make(&layer, &step, 1);
  check_layer(&layer, GEMM_BF16, 7, rows, 1);
  layer_free(&layer);
}

/* What is asked of one expert is what its weight gives as a dense one; on the CPU to the bit. */
static void test_against_dense_products(void **state) {
  enum { M = 13, E = 3 };
  for (int kind = 0; kind < device_kinds(device.ops) && device.ops->on_cores; kind++) {
    struct step step = step_of(kind, 70, 200, E, GEMM_F32);
    struct layer layer;
    struct oracle_x x;
    int32_t ids[M];
    layer_make(&layer, &step, 1);
    make_x(&x, M, 200, type_for(step.shape.format, kind), 5);
    for (int e = 0; e < E; e++) {
      for (int i = 0; i < M; i++)
        ids[i] = e;
      const struct oracle_choice choice = {.ids = ids, .m = M, .top = 1};
      struct device_request request = request_of(&layer, &x, &choice);
      void *y = device_run(&device, &request);
      struct backend_weight *weight = device_load(&device, &layer.experts[0].each[e], WEIGHT_BYTES);
      request = (struct device_request){
          .weight = weight, .shape = &layer.experts[0].each[e].shape, .x = &x, .m = M, .y_type = GEMM_F32};
      void *dense = device_run(&device, &request);
      assert_memory_equal(y, dense, y_bytes(&request));
      device.ops->weight_detach(device.backend, weight);
      free(y);
      free(dense);
    }
    oracle_x_free(&x);
    layer_free(&layer);
  }
}

/* A NaN spoils the pairs of its row, and nothing else. */
static void test_a_row_that_is_not_finite(void **state) {
  enum { M = 6, T = 2, N = 90 };
  struct step step = step_of(1, N, 200, 4, GEMM_BF16);
  struct layer layer;
  struct oracle_x x;
  struct routes routes = make_routes(IDS_UNIFORM, 4, M, T, 3);
  const struct oracle_choice choice = {.ids = routes.ids, .m = M, .top = T};
  layer_make(&layer, &step, 1);
  make_x(&x, M, 200, GEMM_F32, 8);
  struct device_request request = request_of(&layer, &x, &choice);
  uint16_t *clean = device_run(&device, &request);
  oracle_x_set(&x, 2, 17, NAN);
  uint16_t *spoilt = device_run(&device, &request);
  for (int64_t i = 0; i < M * T * N; i++) {
    if (i / N / T == 2)
      assert_true(isnan(oracle_element(spoilt, i, GEMM_BF16)));
    else if (clean[i] != spoilt[i])
      fail_msg("a NaN in row 2 has changed pair %lld", (long long)i / N);
  }
  free(clean);
  free(spoilt);
  oracle_x_free(&x);
  routes_free(&routes);
  layer_free(&layer);
}

static void test_turns(void **state) {
  enum { M = 300, T = 2 };
  struct step steps[] = {step_of(1, 2 * 192, 256, 8, GEMM_BF16), step_of(1, 256, 192, 8, GEMM_BF16)};
  struct layer layer;
  struct oracle_x x;
  struct routes routes = make_routes(IDS_SKIP, 8, M, T, 3);
  const struct oracle_choice choice = {.ids = routes.ids, .routing = routes.routing, .m = M, .top = T, .sum = true};
  if (device.ops->turns_begin == NULL)
    skip();
  steps[0].activation = GEMM_SILU;
  steps[0].gated = true;
  layer_make(&layer, steps, 2);
  make_x(&x, M, 256, GEMM_BF16, 8);
  struct device_request request = request_of(&layer, &x, &choice);
  void *whole = device_run(&device, &request);
  uint32_t skipped = device.skipped;
  struct backend_job job = device_stage(&device, &request);
  int turns = device_finish_by_turns(&device, &job, 1);
  void *y = device_collect(&device, &request, &job);
  assert_memory_equal(whole, y, y_bytes(&request));
  assert_true(skipped > 0);
  assert_int_equal(device.skipped, skipped);
  assert_true(turns > 1);
  free(y);
  free(whole);
  oracle_x_free(&x);
  routes_free(&routes);
  layer_free(&layer);
}

/* The canonical form comes back as it was stored. */
static void test_read(void **state) {
  for (int kind = 0; kind < device_kinds(device.ops); kind++) {
    struct step step = step_of(kind, 131, 260, 3, GEMM_F32);
    struct layer layer;
    struct error error;
    layer_make(&layer, &step, 1);
    const struct oracle_weight *whole = &layer.experts[0].whole;
    uint8_t *canonical = calloc(1, whole->layout.total_bytes);
    assert_non_null(canonical);
    assert_int_equal(device.ops->weight_read(device.backend, layer.steps[0].weight, canonical, &error), STATUS_OK);
    assert_memory_equal(canonical, whole->canonical, whole->layout.codes_bytes);
    assert_memory_equal(canonical + whole->layout.scales_offset, whole->canonical + whole->layout.scales_offset,
                        whole->layout.scales_bytes);
    assert_memory_equal(canonical + whole->layout.zeros_offset, whole->canonical + whole->layout.zeros_offset,
                        whole->layout.zeros_bytes);
    free(canonical);
    layer_free(&layer);
  }
}

static void expect_refused(const struct backend_job *job, enum status status, enum field field) {
  struct error error = {0};
  assert_int_equal(device.ops->submit(device.backend, job, &error), status);
  assert_int_equal(error.field, field);
  assert_true(error.text[0] != '\0');
}

static void test_refused(void **state) {
  struct step steps[] = {step_of(1, 64, 64, 4, GEMM_BF16), step_of(1, 64, 64, 3, GEMM_BF16)};
  struct layer layer;
  struct oracle_x x;
  struct routes routes = make_routes(IDS_UNIFORM, 3, 2, 2, 1);
  const struct oracle_choice choice = {.ids = routes.ids, .m = 2, .top = 2};
  layer_make(&layer, steps, 2);
  make_x(&x, 2, 64, GEMM_BF16, 8);
  struct device_request request = request_of(&layer, &x, &choice);
  struct backend_job job = device_stage(&device, &request);
  expect_refused(&job, STATUS_INVALID, FIELD_EXPERTS); /* a step has other experts than the one before */
  job.steps = NULL;
  job.step_count = 0;
  device.experts.top = 5;
  expect_refused(&job, STATUS_INVALID, FIELD_TOP);
  job.experts = NULL;
  expect_refused(&job, STATUS_INVALID, FIELD_NONE); /* a weight with experts, and no ids */
  oracle_x_free(&x);
  routes_free(&routes);
  layer_free(&layer);
}

static int run_group(const struct backend_ops *ops) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_formats),
      cmocka_unit_test(test_counts),
      cmocka_unit_test(test_layers),
      cmocka_unit_test(test_many_rows),
      cmocka_unit_test(test_layers_of_many_blocks),
      cmocka_unit_test(test_whole_blocks),
      cmocka_unit_test(test_every_kernel),
      cmocka_unit_test(test_a_round_and_some),
      cmocka_unit_test(test_a_great_many_pairs),
      cmocka_unit_test(test_against_dense_products),
      cmocka_unit_test(test_a_row_that_is_not_finite),
      cmocka_unit_test(test_turns),
      cmocka_unit_test(test_read),
      cmocka_unit_test(test_refused),
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
