/* What products over experts must give, in float64: each pair by the oracle of the expert's own weight. */
#pragma once

#include "plan.h"

/* A weight with experts: each by itself, and the canonical form of all. oracle_experts_free gives it back. */
struct oracle_experts {
  struct oracle_weight *each; /* [shape.experts] */
  struct oracle_weight whole; /* without values */
};

void oracle_experts_make(struct oracle_experts *out, const struct gemm_weight *shape, uint64_t seed);
void oracle_experts_free(struct oracle_experts *experts);

/* One step of a layer. */
struct oracle_layer_step {
  const struct oracle_experts *experts;
  enum gemm_type y_type;
  enum gemm_activation activation;
  bool gated;
  const double *bias; /* [E, n], or NULL */
};

/* Which rows go where, as struct gemm_choice says it. */
struct oracle_choice {
  const int32_t *ids;
  const float *routing; /* NULL: 1 */
  int64_t m, top;
  bool x_pairs, sum;
};

struct oracle_layer {
  int64_t rows; /* of y: m, or m * top */
  double *y;    /* [rows, columns of the last step] */
  double *off;  /* [rows]: what ||y - right|| may be */
  int64_t skipped;
};

/* x has a row for each m, or for each pair. oracle_layer_free gives it back. */
struct oracle_layer oracle_layer(const struct oracle_x *x, const struct oracle_choice *choice,
                                 const struct oracle_layer_step *steps, int count);
void oracle_layer_free(struct oracle_layer *layer);
