/* An engine: a process with tensors of its own that computes with weights that it has borrowed. On a GPU the tensors
 * are device memory, on a CPU ordinary memory. For client processes: reports on stderr, returns false. */
#pragma once

#include "client/gemmclient_direct.h"
#include "daemon.h"
#include "tests/support/reference/oracle.h"

#include <stdio.h>

struct engine {
  gemmd_session *session;
  gemmd_direct *direct;
  bool gpu;
  void *stream; /* of lane 0; NULL on a CPU */
};

/* In a client process: assertions of cmocka are for the test's own. */
#define EXPECT(condition)                                                                                              \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, gemmd_direct_error());                       \
      return 1;                                                                                                        \
    }                                                                                                                  \
  } while (0)

bool engine_open(struct engine *engine, const struct daemon *daemon, int lanes, int64_t rows_most);
void engine_close(struct engine *engine);
/* False, with the sentence on stderr, unless the status is OK. */
bool engine_report(int status);

void *engine_alloc(const struct engine *engine, size_t bytes);
void engine_free(const struct engine *engine, void *memory);
bool engine_put(const struct engine *engine, void *to, const void *from, size_t bytes);
/* When the stream has come so far. */
bool engine_get(const struct engine *engine, void *to, const void *from, size_t bytes);

/* One product with what must come out. */
struct engine_product {
  gemmd_direct_weight *weight;
  gemmd_direct_plan *plan; /* in the weight's place where it is not NULL */
  struct gemm_weight shape;
  gemmd_direct_product product;
  void *x, *y, *x_scale, *bias, *graph;
  size_t y_bytes;
  double *reference; /* [m, n] */
  double *gates;     /* [m]; NULL: the contract's */
};

/* Lays out `m` rows for the weight. */
bool engine_product_make(const struct engine *engine, struct engine_product *out, gemmd_direct_weight *weight,
                         const struct oracle_weight *values, int64_t m, enum gemm_type x_type, enum gemm_type y_type,
                         uint64_t seed);
void engine_product_free(const struct engine *engine, struct engine_product *product);
/* y becomes poison, the product is computed (from the graph, where it has been recorded), and y is right. */
bool engine_product_run(const struct engine *engine, struct engine_product *product);
/* On a GPU: records it. */
bool engine_product_record(const struct engine *engine, struct engine_product *product);
/* All of these with a product of `m` rows by the weight, on that lane; on a GPU it is run twice from the graph. */
bool engine_product_check(const struct engine *engine, gemmd_direct_weight *weight, const struct oracle_weight *values,
                          int lane, int64_t m, enum gemm_type x_type, enum gemm_type y_type);
