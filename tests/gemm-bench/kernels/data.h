/* Operands of the bench: random, with elements of x that stand out, and what a product of them must be. */
#pragma once

#include "proto/gemm.h"

#include <stdbool.h>
#include <stdint.h>

struct data_weight {
  struct gemm_weight shape;
  struct gemm_layout layout;
  uint8_t *canonical; /* owned */
  bool biased;        /* products with it have a bias, f32, data_bias of the column */
};

float data_bias(int64_t column);

/* Rows of x. There are at most DATA_ROWS different ones, which repeat. */
enum { DATA_ROWS = 64 };

struct data_x {
  int64_t m, k;
  enum gemm_type type;
  int64_t rows;          /* different ones */
  uint8_t *elements;     /* owned; [rows, k] of `type` */
  uint8_t *codes;        /* owned; the same quantized for the weight's format, or NULL where it takes x as it is */
  float *scales;         /* owned; [rows, scale_columns] */
  int64_t scale_columns; /* 1, or one a block of 128 of K */
};

MUST_CHECK enum status data_weight_make(struct data_weight *out, const struct gemm_weight *shape, struct error *error);
void data_weight_free(struct data_weight *weight);
MUST_CHECK enum status data_x_make(struct data_x *out, const struct gemm_weight *shape, int64_t m, enum gemm_type type,
                                   struct error *error);
void data_x_free(struct data_x *x);

/* The rows of y that are looked at; some may be the same. */
enum { DATA_SAMPLES = 3 };
int64_t data_sample(int64_t m, int i);
/* ‖y - reference‖ / ‖reference‖ of the worst of the sampled rows, each over some hundred columns, the reference in
 * float64 of what the product reads (quantized x, dequantized W). y[i]: row data_sample(m, i).
 * `bare`: sums of codes, without any scale or bias. NaN where an element is not written or NaN. */
double data_error(const struct data_weight *weight, const struct data_x *x, const void *const y[DATA_SAMPLES],
                  enum gemm_type y_type, bool bare);
/* What it may be: the contract's bounds. */
double data_error_most(enum gemm_format format, enum gemm_type y_type);
