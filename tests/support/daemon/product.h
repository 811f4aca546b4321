/* One product through libgemmclient against the float64 oracle. For client processes: reports on stderr, returns false.
 */
#pragma once

#include "client/gemmclient.h"
#include "tests/support/reference/oracle.h"

struct product_request {
  const struct oracle_weight *weight;
  int64_t m;
  enum gemm_type x_type, y_type, bias_type; /* bias_type NONE: no bias */
  int64_t x_extra, y_extra;                 /* elements between rows */
  uint64_t seed;
};

/* A product laid out in a session's arena, y poisoned, with what must come out. */
struct product {
  struct product_request request;
  gemmd_product product;
  struct oracle_x x;
  double *reference; /* [m, n] */
  void *bias, *x_scale;
  uint64_t ticket; /* of who submits it */
};

bool product_make(struct product *out, gemmd_session *session, const struct product_request *request);
/* Every element of y is right, and nothing between its rows was written. */
bool product_right(const struct product *product);
void product_free(struct product *product, gemmd_session *session);

/* Makes, computes, checks, frees. */
bool product_run(gemmd_session *session, gemmd_weight *weight, const struct product_request *request);
