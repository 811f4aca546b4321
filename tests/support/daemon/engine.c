#include "engine.h"

#include "tests/support/system/gpu.h"
#include "tests/support/system/nap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool engine_report(int status) {
  if (status != GEMMD_OK)
    fprintf(stderr, "%s: %s\n", gemmd_status_name(status), gemmd_direct_error());
  return status == GEMMD_OK;
}

/* Room for products over experts, T up to this. */
enum { PAIRS_A_ROW = 4 };

bool engine_open(struct engine *engine, const struct daemon *daemon, int lanes, int64_t rows_most) {
  *engine = (struct engine){.gpu = daemon_on_cuda()};
  if (engine->gpu && !gpu_open())
    return false;
  engine->stream = engine->gpu ? gpu_stream() : NULL;
  if (gemmd_connect(&engine->session, daemon->socket, NULL) != GEMMD_OK) {
    fprintf(stderr, "%s\n", gemmd_error(engine->session));
    return false;
  }
  const gemmd_direct_options options = {.bytes = sizeof options,
                                        .ordinal = -1,
                                        .lanes = lanes,
                                        .rows_most = rows_most,
                                        .threads = 2,
                                        .pairs_most = rows_most * PAIRS_A_ROW};
  return engine_report(gemmd_direct_open(engine->session, &options, &engine->direct));
}

void engine_close(struct engine *engine) {
  int status;
  while ((status = gemmd_direct_close(engine->direct)) == GEMMD_BUSY)
    nap_shortly(); /* the driver lets go of graphs on a thread of its own */
  (void)engine_report(status);
  gemmd_disconnect(engine->session);
}

void *engine_alloc(const struct engine *engine, size_t bytes) {
  return engine->gpu ? gpu_alloc(bytes) : aligned_alloc(256, (bytes + 255) / 256 * 256);
}

void engine_free(const struct engine *engine, void *memory) {
  if (memory == NULL)
    return;
  if (engine->gpu)
    gpu_free(memory);
  else
    free(memory);
}

bool engine_put(const struct engine *engine, void *to, const void *from, size_t bytes) {
  if (engine->gpu)
    return gpu_copy_in(to, from, bytes);
  memcpy(to, from, bytes);
  return true;
}

bool engine_get(const struct engine *engine, void *to, const void *from, size_t bytes) {
  if (engine->gpu)
    return gpu_stream_wait(engine->stream) && gpu_copy_out(to, from, bytes);
  memcpy(to, from, bytes);
  return true;
}

static void *copy_of(const struct engine *engine, const void *data, size_t bytes) {
  void *made = engine_alloc(engine, bytes);
  return made != NULL && engine_put(engine, made, data, bytes) ? made : NULL;
}

bool engine_product_make(const struct engine *engine, struct engine_product *out, gemmd_direct_weight *weight,
                         const struct oracle_weight *values, int64_t m, enum gemm_type x_type, enum gemm_type y_type,
                         uint64_t seed) {
  const struct gemm_weight *shape = &values->shape;
  bool block = shape->scale == GEMM_SCALE_BLOCK, raw = y_type == GEMM_S32;
  struct oracle_x x;
  oracle_x_make(&x, m, shape->k, x_type, block ? (shape->k + GEMM_GROUP - 1) / GEMM_GROUP : 1, seed);
  double *wide = oracle_x_values(&x, shape, raw);
  *out = (struct engine_product){
      .weight = weight, .shape = *shape, .y_bytes = (size_t)(m * shape->n) * gemm_type_bytes(y_type)};
  out->reference = raw ? oracle_product_raw(wide, m, values) : oracle_product(wide, m, values, NULL);
  out->x = copy_of(engine, x.data, (size_t)(m * shape->k) * gemm_type_bytes(x_type));
  out->y = engine_alloc(engine, out->y_bytes);
  if (x.scales != NULL)
    out->x_scale = copy_of(engine, x.scales, (size_t)(m * x.scale_columns) * sizeof(float));
  out->product = (gemmd_direct_product){.bytes = sizeof out->product,
                                        .m = m,
                                        .x = out->x,
                                        .y = out->y,
                                        .x_scale = out->x_scale,
                                        .x_type = (enum gemmd_type)x_type,
                                        .y_type = (enum gemmd_type)y_type};
  bool made = out->x != NULL && out->y != NULL && (x.scales == NULL || out->x_scale != NULL);
  free(wide);
  oracle_x_free(&x);
  return made;
}

void engine_product_free(const struct engine *engine, struct engine_product *product) {
  if (product->graph != NULL)
    gpu_graph_drop(product->graph);
  engine_free(engine, product->x);
  engine_free(engine, product->y);
  engine_free(engine, product->x_scale);
  engine_free(engine, product->bias);
  free(product->reference);
  free(product->gates);
}

static bool enqueue(const struct engine *engine, const struct engine_product *product) {
  return engine_report(product->plan != NULL ? gemmd_direct_run(product->plan, &product->product, engine->stream)
                                             : gemmd_direct_matmul(product->weight, &product->product, engine->stream));
}

bool engine_product_record(const struct engine *engine, struct engine_product *product) {
  bool recorded = gpu_capture_begin(engine->stream) && enqueue(engine, product);
  product->graph = gpu_capture_end(engine->stream);
  return recorded && product->graph != NULL;
}

static bool right(const struct engine_product *product, const uint8_t *y) {
  enum gemm_type type = (enum gemm_type)product->product.y_type;
  int64_t n = product->shape.n;
  for (int64_t row = 0; row < product->product.m; row++) {
    const double *reference = product->reference + row * n;
    double error =
        oracle_row_error(product->shape.format, reference, y + (uint64_t)(row * n) * gemm_type_bytes(type), type, n);
    double gate = product->gates != NULL ? product->gates[row] : oracle_row_gate(&product->shape, type, reference);
    bool tiny = product->gates != NULL && row % ORACLE_ROW_KINDS == ORACLE_ROW_TINY;
    if (error <= gate || tiny)
      continue;
    fprintf(stderr, "row %lld is off by %g, allowed %g\n", (long long)row, error, gate);
    return false;
  }
  return true;
}

bool engine_product_run(const struct engine *engine, struct engine_product *product) {
  uint8_t *y = malloc(product->y_bytes);
  if (y == NULL)
    return false;
  memset(y, 0xfd, product->y_bytes);
  bool good = engine_put(engine, product->y, y, product->y_bytes) &&
              (product->graph != NULL ? gpu_graph_launch(product->graph, engine->stream) : enqueue(engine, product)) &&
              engine_get(engine, y, product->y, product->y_bytes) && right(product, y);
  free(y);
  return good;
}

bool engine_product_check(const struct engine *engine, gemmd_direct_weight *weight, const struct oracle_weight *values,
                          int lane, int64_t m, enum gemm_type x_type, enum gemm_type y_type) {
  struct engine_product product;
  bool good = engine_product_make(engine, &product, weight, values, m, x_type, y_type, 5);
  product.product.lane = lane;
  good = good && engine_product_run(engine, &product);
  if (good && engine->gpu)
    good = engine_product_record(engine, &product) && engine_product_run(engine, &product) &&
           engine_product_run(engine, &product);
  engine_product_free(engine, &product);
  return good;
}
