/* Symmetric matrices [k][k] of doubles, row-major, of which the lower triangle counts. Results do not depend on the
 * number of threads. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum {
  MATRIX_ROWS = 8,     /* of a left operand at a time */
  MATRIX_COLUMNS = 128 /* of a right one */
};

/* A tile of sums; stays in a core's first cache. */
typedef double matrix_tile[MATRIX_ROWS][MATRIX_COLUMNS];

/* Elements of a left operand: (row, i) is at values[row * row_step + i * step]. */
struct matrix_left {
  const double *values;
  size_t rows, row_step, step; /* rows: at most MATRIX_ROWS */
};

/* tile[row][column] += sum over i < count of left(row, i) * right[i * right_step + column], for `columns` columns. */
void matrix_accumulate(matrix_tile tile, const struct matrix_left *left, const double *right, size_t right_step,
                       size_t columns, size_t count);

/* h += x^T x for x [rows][k]. */
void matrix_add_gram(double *h, size_t k, const double *x, size_t rows, unsigned threads);

/* The lower triangle L of h = L L^T in place. False where h is not positive definite; h is spoilt then. Needs
 * MATRIX_COLUMNS * k doubles of `scratch`. */
bool matrix_cholesky(double *h, size_t k, double *scratch, unsigned threads);

/* sums[row] = v h v^T for each of up to MATRIX_ROWS rows v of `left`, whose step is 1. */
void matrix_quadratic(const double *h, size_t k, const struct matrix_left *left, double *sums);
