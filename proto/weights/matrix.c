#include "matrix.h"

#include "parallel.h"
#include "processor.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

FOR_EACH_PROCESSOR
static void accumulate_whole(matrix_tile tile, const struct matrix_left *left, const double *right, size_t right_step,
                             size_t count) {
  for (size_t i = 0; i < count; i++) {
    const double *from = right + i * right_step;
    for (size_t row = 0; row < left->rows; row++) {
      double factor = left->values[row * left->row_step + i * left->step];
      for (size_t column = 0; column < MATRIX_COLUMNS; column++)
        tile[row][column] += factor * from[column];
    }
  }
}

void matrix_accumulate(matrix_tile tile, const struct matrix_left *left, const double *right, size_t right_step,
                       size_t columns, size_t count) {
  if (columns == MATRIX_COLUMNS) {
    accumulate_whole(tile, left, right, right_step, count);
    return;
  }
  for (size_t i = 0; i < count; i++)
    for (size_t row = 0; row < left->rows; row++)
      for (size_t column = 0; column < columns; column++)
        tile[row][column] += left->values[row * left->row_step + i * left->step] * right[i * right_step + column];
}

static size_t least(size_t a, size_t b) {
  return a < b ? a : b;
}

static size_t pieces(size_t count, size_t size) {
  return (count + size - 1) / size;
}

/* ---- x^T x */

struct gram {
  double *h;
  const double *x;
  size_t k, rows;
};

/* Rows index * MATRIX_ROWS and so on of h, up to the diagonal. */
static void gram_rows(void *context, size_t index, unsigned thread) {
  const struct gram *gram = context;
  size_t k = gram->k, first = index * MATRIX_ROWS;
  struct matrix_left left = {
      .values = gram->x + first, .rows = least(k - first, MATRIX_ROWS), .row_step = 1, .step = k};
  for (size_t begin = 0; begin < first + left.rows; begin += MATRIX_COLUMNS) {
    size_t columns = least(k - begin, MATRIX_COLUMNS);
    matrix_tile tile;
    memset(tile, 0, sizeof tile);
    matrix_accumulate(tile, &left, gram->x + begin, k, columns, gram->rows);
    for (size_t row = 0; row < left.rows; row++)
      for (size_t column = 0; column < columns && begin + column <= first + row; column++)
        gram->h[(first + row) * k + begin + column] += tile[row][column];
  }
}

void matrix_add_gram(double *h, size_t k, const double *x, size_t rows, unsigned threads) {
  struct gram gram = {.h = h, .x = x, .k = k, .rows = rows};
  parallel_run(threads, pieces(k, MATRIX_ROWS), gram_rows, &gram);
}

/* ---- Cholesky, a block of columns after the other */

struct cholesky {
  double *h;
  size_t k, begin, columns; /* of the block */
  const double *turned;     /* [begin][MATRIX_COLUMNS]: the block's own rows left of it, transposed */
};

/* Takes what stands left of the block from MATRIX_ROWS rows of it. */
static void block_update(void *context, size_t index, unsigned thread) {
  const struct cholesky *work = context;
  size_t first = work->begin + index * MATRIX_ROWS;
  double *rows = work->h + first * work->k;
  struct matrix_left left = {
      .values = rows, .rows = least(work->k - first, MATRIX_ROWS), .row_step = work->k, .step = 1};
  matrix_tile tile;
  memset(tile, 0, sizeof tile);
  matrix_accumulate(tile, &left, work->turned, MATRIX_COLUMNS, work->columns, work->begin);
  for (size_t row = 0; row < left.rows; row++)
    for (size_t column = 0; column < work->columns; column++)
      rows[row * work->k + work->begin + column] -= tile[row][column];
}

/* Solves for MATRIX_ROWS rows below the diagonal block, which is done. */
static void block_solve(void *context, size_t index, unsigned thread) {
  const struct cholesky *work = context;
  size_t first = work->begin + work->columns + index * MATRIX_ROWS, last = least(first + MATRIX_ROWS, work->k);
  const double *diagonal = work->h + work->begin * work->k + work->begin;
  for (size_t row = first; row < last; row++) {
    double *at = work->h + row * work->k + work->begin;
    for (size_t column = 0; column < work->columns; column++) {
      double sum = at[column];
      for (size_t i = 0; i < column; i++)
        sum -= at[i] * diagonal[column * work->k + i];
      at[column] = sum / diagonal[column * work->k + column];
    }
  }
}

static bool block_factor(double *block, size_t k, size_t columns) {
  for (size_t column = 0; column < columns; column++)
    for (size_t row = column; row < columns; row++) {
      double sum = block[row * k + column];
      for (size_t i = 0; i < column; i++)
        sum -= block[row * k + i] * block[column * k + i];
      if (row == column && !(sum > 0.0))
        return false;
      block[row * k + column] = row == column ? sqrt(sum) : sum / block[column * k + column];
    }
  return true;
}

bool matrix_cholesky(double *h, size_t k, double *scratch, unsigned threads) {
  for (size_t begin = 0; begin < k; begin += MATRIX_COLUMNS) {
    struct cholesky work = {
        .h = h, .k = k, .begin = begin, .columns = least(k - begin, MATRIX_COLUMNS), .turned = scratch};
    for (size_t column = 0; column < work.columns; column++)
      for (size_t i = 0; i < begin; i++)
        scratch[i * MATRIX_COLUMNS + column] = h[(begin + column) * k + i];
    parallel_run(threads, pieces(k - begin, MATRIX_ROWS), block_update, &work);
    if (!block_factor(h + begin * k + begin, k, work.columns))
      return false;
    parallel_run(threads, pieces(k - begin - work.columns, MATRIX_ROWS), block_solve, &work);
  }
  return true;
}

/* ---- v h v^T */

void matrix_quadratic(const double *h, size_t k, const struct matrix_left *left, double *sums) {
  memset(sums, 0, left->rows * sizeof *sums);
  for (size_t begin = 0; begin < k; begin += MATRIX_COLUMNS) {
    size_t columns = least(k - begin, MATRIX_COLUMNS), end = begin + columns;
    struct matrix_left below = *left;
    matrix_tile tile;
    memset(tile, 0, sizeof tile);
    below.values += end;
    matrix_accumulate(tile, &below, h + end * k + begin, k, columns, k - end);
    for (size_t row = 0; row < left->rows; row++) {
      const double *v = left->values + row * left->row_step;
      for (size_t column = begin; column < end; column++) {
        double off = tile[row][column - begin];
        for (size_t i = column + 1; i < end; i++)
          off += v[i] * h[i * k + column];
        sums[row] += v[column] * (2.0 * off + v[column] * h[column * k + column]);
      }
    }
  }
}
