/* What a plan must give, in float64: products by the oracle, every step's result rounded and activated as proto/plan.h
 * says. */
#pragma once

#include "oracle.h"

struct oracle_step {
  const struct oracle_weight *weight;
  enum gemm_type y_type;
  enum gemm_activation activation;
  bool gated;
  const double *bias; /* [n], or NULL */
};

struct oracle_answer {
  double *y;     /* [m, columns of the last step], its last rounding left out */
  double *gates; /* [m], what a row's error may be */
};

int64_t oracle_step_columns(const struct oracle_step *step);
/* The gates take every product for as good as the contract asks: an error goes through an activation and a gate, and
 * moves some elements to the next code on the way into the next product, in an INT8 row by a 1/127 of the largest, in
 * FP8 by an eighth of themselves. oracle_answer_free gives the result back. */
struct oracle_answer oracle_plan(const struct oracle_x *x, const struct oracle_step *steps, int count);
void oracle_answer_free(struct oracle_answer *answer);
/* The activated result of a step from its dense v in y_type, [m, n], as float64; not rounded. */
double *oracle_activate(const struct oracle_step *step, const void *v, int64_t m);
/* Rows of float64 as a client would hand them in, rounded to `type`. */
void oracle_x_from(struct oracle_x *out, const double *values, int64_t m, int64_t k, enum gemm_type type);
