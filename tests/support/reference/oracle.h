/* What a product must be, computed in float64 by plain loops, and the data to ask it of.
 *
 * Shares no code with the backends but proto/number.h and rotate.h, whose rules are the contract. Whatever `*_make`
 * fills is owned by the struct and given back by `*_free`; running out of memory ends the test program. */
#pragma once

#include "proto/gemm.h"

#include <stdbool.h>
#include <stdint.h>

/* A weight in canonical form, and what it stands for. */
struct oracle_weight {
  struct gemm_weight shape;
  struct gemm_layout layout;
  uint8_t *canonical; /* layout.total_bytes */
  double *values;     /* [n, k], dequantized */
};

/* Rows of activations as a client would hand them in. */
struct oracle_x {
  int64_t m, k;
  enum gemm_type type;
  void *data;            /* [m, k] dense */
  float *scales;         /* [m, scale_columns] where type is INT8 or E4M3, else NULL */
  int64_t scale_columns; /* 1, or ceil(k / 128) */
};

/* What the rows of oracle_x_make hold: row r is of kind r % ORACLE_ROW_KINDS. */
enum oracle_row {
  ORACLE_ROW_NORMAL,
  ORACLE_ROW_OUTLIERS, /* one element in 64 is 1000 times larger */
  ORACLE_ROW_PLAIN,    /* uniform */
  ORACLE_ROW_ZERO,
  ORACLE_ROW_TINY, /* 1e-30; f16: 1e-7 */
  ORACLE_ROW_HUGE, /* 1e30; f16: 6e4 */
  ORACLE_ROW_KINDS
};

/* Every format with every scale mode that it has; of 4 bits, which have many, some. */
extern const struct oracle_kind {
  enum gemm_format format;
  enum gemm_scale scale;
} oracle_kinds[];
extern const int oracle_kinds_count;

/* splitmix64. Each call moves *state on. */
uint64_t oracle_random(uint64_t *state);
double oracle_uniform(uint64_t *state); /* [-1, 1) */
double oracle_normal(uint64_t *state);  /* mean 0, variance 1, within +-6 */

/* What a tensor is filled with: the element at [row, k], rounded to its type, and the scale at [row, column] of the
 * scales. */
struct oracle_filler {
  double (*element)(const void *context, int64_t row, int64_t k);
  double (*scale)(const void *context, int64_t row, int64_t column);
  const void *context;
};

/* x is brought into a random order where the shape wants one, and quantized with a scale that cuts off what is beyond 3
 * where it wants that. */
void oracle_weight_make(struct oracle_weight *out, const struct gemm_weight *shape, uint64_t seed);
/* Elements are codes, but for F16 and BF16, which have no scales. */
void oracle_weight_fill(struct oracle_weight *out, const struct gemm_weight *shape, const struct oracle_filler *filler);
/* INT8 with every scale 1 and the codes given, [n, k] dense. */
void oracle_weight_from_codes(struct oracle_weight *out, int64_t n, int64_t k, const int8_t *codes);
/* Multiplies every scale; the products are rounded to the scales' type. */
void oracle_weight_multiply(struct oracle_weight *weight, double factor);
/* 1 at the first min(n, k) places of the diagonal, scales 1. Any format. */
void oracle_weight_identity(struct oracle_weight *out, const struct gemm_weight *shape);
void oracle_weight_free(struct oracle_weight *weight);

void oracle_x_make(struct oracle_x *out, int64_t m, int64_t k, enum gemm_type type, int64_t scale_columns,
                   uint64_t seed);
void oracle_x_fill(struct oracle_x *out, int64_t m, int64_t k, enum gemm_type type, int64_t scale_columns,
                   const struct oracle_filler *filler);
/* Replaces one element; `value` is rounded to the type. */
void oracle_x_set(struct oracle_x *x, int64_t row, int64_t column, float value);
void oracle_x_free(struct oracle_x *x);
/* `n` small numbers, the same in the type, to `to`, as in float64, to be freed; NULL: no memory. */
double *oracle_bias_make(int64_t n, enum gemm_type type, void *to, uint64_t seed);

/* x as a product with a weight of this shape sees it: quantized and dequantized where the format says so, [m, k].
 * A row that is quantized and not finite becomes NaN throughout. `raw`: codes without scales. */
double *oracle_x_values(const struct oracle_x *x, const struct gemm_weight *shape, bool raw);
/* The same with a weight that may change x (gemm_weight.input). */
double *oracle_x_seen(const struct oracle_x *x, const struct oracle_weight *weight, bool raw);

/* [m, n]: x_values * W^T + bias, for the first m rows of x_values. bias, [n], may be NULL. The caller frees. */
double *oracle_product(const double *x_values, int64_t m, const struct oracle_weight *weight, const double *bias);
/* The same with the codes of an INT8 weight instead of its values. */
double *oracle_product_raw(const double *x_values, int64_t m, const struct oracle_weight *weight);

/* One element of a tensor as float64. */
double oracle_element(const void *data, int64_t index, enum gemm_type type);

/* ||y - reference|| / ||reference|| of one row. Where the reference is finite but beyond y's type, y must be infinite
 * with its sign; where it is not finite, so must y be; half a quantum of y's subnormals is no error. Infinite where y
 * breaks a rule or is not zero although the reference is. In a row that leaves y's type, elements that cancel to less
 * than the gate of the format's sums may have either sign. */
double oracle_row_error(enum gemm_format format, const double *reference, const void *y, enum gemm_type y_type,
                        int64_t n);

/* The numerics contract: what a row's error may be. */
double oracle_gate(enum gemm_format format, enum gemm_type y_type);
/* The same for one row of `shape->n` elements. Rounding to bf16 alone can exceed the gate, by up to 2^-8, where few
 * elements make the norm; the sums must then be as good as with f32. */
double oracle_row_gate(const struct gemm_weight *shape, enum gemm_type y_type, const double *reference);
