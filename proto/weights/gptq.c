#include "gptq.h"

#include "../number.h"
#include "matrix.h"
#include "parallel.h"
#include "quantize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)GPTQ_GROUP == (int)MATRIX_COLUMNS, "a group is a tile wide");

static size_t least(size_t a, size_t b) {
  return a < b ? a : b;
}

static size_t group_columns(size_t k, size_t group) {
  return least(k - group * GPTQ_GROUP, GPTQ_GROUP);
}

static enum status no_memory(struct error *error, size_t n, size_t k) {
  return error_set(error, STATUS_NOMEM, "no memory to quantize %zu x %zu", n, k);
}

/* ---- order and factor */

struct key {
  double weight;
  uint32_t index;
};

/* Rising, so that the heaviest stands last and goes first. */
static int by_weight(const void *left, const void *right) {
  const struct key *a = left, *b = right;
  if (a->weight != b->weight)
    return a->weight < b->weight ? -1 : 1;
  return a->index < b->index ? 1 : -1;
}

static bool order_columns(struct gptq *gptq, const double *h) {
  size_t k = gptq->k, place = 0;
  struct key *groups = calloc(gptq->groups, sizeof *groups), columns[GPTQ_GROUP];
  if (groups == NULL)
    return false;
  for (size_t i = 0; i < k; i++) {
    groups[i / GPTQ_GROUP].weight += h[i * k + i];
    groups[i / GPTQ_GROUP].index = (uint32_t)(i / GPTQ_GROUP);
  }
  qsort(groups, gptq->groups, sizeof *groups, by_weight);
  for (size_t g = 0; g < gptq->groups; g++) {
    size_t begin = (size_t)groups[g].index * GPTQ_GROUP, count = group_columns(k, groups[g].index);
    gptq->group[g] = groups[g].index;
    for (size_t i = 0; i < count; i++)
      columns[i] = (struct key){.weight = h[(begin + i) * k + begin + i], .index = (uint32_t)(begin + i)};
    qsort(columns, count, sizeof *columns, by_weight);
    for (size_t i = 0; i < count; i++)
      gptq->column[place++] = columns[i].index;
  }
  free(groups);
  return true;
}

/* The diagonal blocks of L as a row's pass reads them. */
static void turn_blocks(struct gptq *gptq) {
  size_t k = gptq->k, begin = 0;
  for (size_t g = 0; g < gptq->groups; g++) {
    size_t count = group_columns(k, gptq->group[g]);
    double *block = gptq->within + g * GPTQ_GROUP * GPTQ_GROUP;
    for (size_t r = 0; r < count; r++) {
      double diagonal = gptq->factor[(begin + r) * k + begin + r];
      block[r * GPTQ_GROUP + r] = 1.0 / diagonal;
      for (size_t i = r + 1; i < count; i++)
        block[r * GPTQ_GROUP + i] = gptq->factor[(begin + i) * k + begin + r] / diagonal;
    }
    begin += count;
  }
}

enum status gptq_prepare(struct gptq *gptq, const double *h, size_t k, double damping, unsigned threads,
                         struct error *error) {
  double trace = 0.0;
  *gptq = (struct gptq){.k = k, .groups = (k + GPTQ_GROUP - 1) / GPTQ_GROUP};
  gptq->factor = malloc(k * k * sizeof *gptq->factor);
  gptq->within = malloc(gptq->groups * GPTQ_GROUP * GPTQ_GROUP * sizeof *gptq->within);
  gptq->column = malloc(k * sizeof *gptq->column);
  gptq->group = malloc(gptq->groups * sizeof *gptq->group);
  double *scratch = malloc(k * MATRIX_COLUMNS * sizeof *scratch);
  bool ready =
      gptq->factor != NULL && gptq->within != NULL && gptq->column != NULL && gptq->group != NULL && scratch != NULL;
  if (!ready || !order_columns(gptq, h)) {
    free(scratch);
    return error_set(error, STATUS_NOMEM, "no memory for the Hessian of %zu columns", k);
  }
  for (size_t i = 0; i < k; i++)
    trace += h[i * k + i];
  for (size_t i = 0; i < k; i++) {
    for (size_t j = 0; j <= i; j++) {
      size_t a = gptq->column[i], b = gptq->column[j];
      gptq->factor[i * k + j] = a > b ? h[a * k + b] : h[b * k + a];
    }
    gptq->factor[i * k + i] += damping * trace / (double)k;
  }
  bool definite = matrix_cholesky(gptq->factor, k, scratch, threads);
  free(scratch);
  if (trace == 0.0)
    return error_set(error, STATUS_INVALID, "the calibration rows are all zero");
  if (!definite)
    return error_set(error, STATUS_INVALID, "the Hessian is not positive definite with a damping of %g", damping);
  turn_blocks(gptq);
  return STATUS_OK;
}

void gptq_free(struct gptq *gptq) {
  free(gptq->factor);
  free(gptq->within);
  free(gptq->column);
  free(gptq->group);
  *gptq = (struct gptq){0};
}

/* ---- rows of W, MATRIX_ROWS at a time */

struct pass {
  const struct gptq *gptq;
  const float *w;
  size_t n, k;
  uint8_t *codes;
  uint16_t *scales;
  double *scratch; /* for each thread [MATRIX_ROWS][k] */
};

/* One group of one row. */
struct block {
  const uint32_t *column; /* of its places */
  const double *within;   /* its part of gptq->within */
  size_t count;
  const double *sums; /* what the errors of later places add, times L_rr */
  double *errors;     /* w - q of its places; out */
};

/* What the errors of all places after `r` add to the weight in it. */
static double feedback(const struct block *block, size_t r) {
  const double *within = block->within + r * GPTQ_GROUP;
  double sum = block->sums[r] * within[r];
  for (size_t i = r + 1; i < block->count; i++)
    sum += block->errors[i] * within[i];
  return sum;
}

/* Fitted to the weights that would leave no error here, given those before. */
static uint16_t block_scale(const struct block *block, const float *w) {
  float target[GPTQ_GROUP];
  uint32_t sorted[2 * GPTQ_GROUP];
  uint8_t codes[GPTQ_GROUP];
  for (size_t r = block->count; r-- > 0;) {
    block->errors[r] = -feedback(block, r);
    double value = (double)w[block->column[r]] - block->errors[r];
    target[r] = (float)fmin(fmax(value, (double)-QUANTIZE_INT2_MOST), (double)QUANTIZE_INT2_MOST);
  }
  return quantize_least_squares(target, block->count, sorted, codes);
}

static void block_codes(const struct block *block, const float *w, double scale, uint8_t *codes) {
  for (size_t r = block->count; r-- > 0;) {
    size_t column = block->column[r];
    double value = (double)w[column], target = value + feedback(block, r);
    double code = scale != 0.0 ? fmin(fmax(rint(target / scale), -1.0), 2.0) : 0.0;
    codes[column] = (uint8_t)(code + 1.0);
    block->errors[r] = value - code * scale;
  }
}

static void quantize_rows(void *context, size_t index, unsigned thread) {
  const struct pass *pass = context;
  const struct gptq *gptq = pass->gptq;
  size_t k = pass->k, first = index * MATRIX_ROWS, rows = least(pass->n - first, MATRIX_ROWS);
  double *errors = pass->scratch + thread * MATRIX_ROWS * k; /* of weights by their places, right of the block */
  size_t end = k;
  for (size_t g = gptq->groups; g-- > 0;) {
    size_t count = group_columns(k, gptq->group[g]), begin = end - count;
    struct matrix_left left = {.values = errors + end, .rows = rows, .row_step = k, .step = 1};
    matrix_tile sums;
    memset(sums, 0, sizeof sums);
    matrix_accumulate(sums, &left, gptq->factor + end * k + begin, k, count, k - end);
    for (size_t row = 0; row < rows; row++) {
      const float *w = pass->w + (first + row) * k;
      struct block block = {.column = gptq->column + begin,
                            .within = gptq->within + g * GPTQ_GROUP * GPTQ_GROUP,
                            .count = count,
                            .sums = sums[row],
                            .errors = errors + row * k + begin};
      uint16_t scale = block_scale(&block, w);
      pass->scales[(first + row) * gptq->groups + gptq->group[g]] = scale;
      block_codes(&block, w, (double)number_from_f16(scale), pass->codes + (first + row) * k);
    }
    end = begin;
  }
}

enum status gptq_quantize(const struct gptq *gptq, const float *w, size_t n, uint8_t *codes, uint16_t *scales,
                          unsigned threads, struct error *error) {
  struct pass pass = {.gptq = gptq, .w = w, .n = n, .k = gptq->k, .codes = codes, .scales = scales};
  pass.scratch = malloc(threads * MATRIX_ROWS * pass.k * sizeof *pass.scratch);
  if (pass.scratch == NULL)
    return no_memory(error, n, pass.k);
  parallel_run(threads, (n + MATRIX_ROWS - 1) / MATRIX_ROWS, quantize_rows, &pass);
  free(pass.scratch);
  return STATUS_OK;
}

static void round_rows(void *context, size_t index, unsigned thread) {
  const struct pass *pass = context;
  size_t k = pass->k, groups = (k + GPTQ_GROUP - 1) / GPTQ_GROUP;
  uint32_t sorted[2 * GPTQ_GROUP];
  (void)thread;
  for (size_t row = index * MATRIX_ROWS; row < least((index + 1) * MATRIX_ROWS, pass->n); row++)
    for (size_t g = 0; g < groups; g++) {
      size_t at = row * k + g * GPTQ_GROUP;
      pass->scales[row * groups + g] =
          quantize_least_squares(pass->w + at, group_columns(k, g), sorted, pass->codes + at);
    }
}

void gptq_round(const float *w, size_t n, size_t k, uint8_t *codes, uint16_t *scales, unsigned threads) {
  struct pass pass = {.w = w, .n = n, .k = k, .codes = codes, .scales = scales};
  parallel_run(threads, (n + MATRIX_ROWS - 1) / MATRIX_ROWS, round_rows, &pass);
}

/* ---- the error of the output */

struct measure {
  const double *h;
  const float *w;
  size_t n, k;
  const uint8_t *codes;
  const uint16_t *scales;
  double *scratch; /* for each thread [MATRIX_ROWS][k] */
  double *sums;    /* [n][2]: of W - Q, of W */
};

static void measure_rows(void *context, size_t index, unsigned thread) {
  const struct measure *measure = context;
  size_t k = measure->k, groups = (k + GPTQ_GROUP - 1) / GPTQ_GROUP, first = index * MATRIX_ROWS;
  double *values = measure->scratch + thread * MATRIX_ROWS * k, sums[MATRIX_ROWS];
  struct matrix_left left = {
      .values = values, .rows = least(measure->n - first, MATRIX_ROWS), .row_step = k, .step = 1};
  for (int whole = 0; whole < 2; whole++) {
    for (size_t row = 0; row < left.rows; row++)
      for (size_t i = 0; i < k; i++) {
        size_t at = (first + row) * k + i;
        double scale = (double)number_from_f16(measure->scales[(first + row) * groups + i / GPTQ_GROUP]);
        values[row * k + i] = (double)measure->w[at] - (whole ? 0.0 : scale * (measure->codes[at] - 1));
      }
    matrix_quadratic(measure->h, k, &left, sums);
    for (size_t row = 0; row < left.rows; row++)
      measure->sums[2 * (first + row) + (size_t)whole] = sums[row];
  }
}

enum status gptq_error(const double *h, const float *w, size_t n, size_t k, const uint8_t *codes,
                       const uint16_t *scales, unsigned threads, double *out, struct error *error) {
  struct measure measure = {.h = h, .w = w, .n = n, .k = k, .codes = codes, .scales = scales};
  double wrong = 0.0, whole = 0.0;
  measure.scratch = malloc(threads * MATRIX_ROWS * k * sizeof *measure.scratch);
  measure.sums = malloc(2 * n * sizeof *measure.sums);
  if (measure.scratch == NULL || measure.sums == NULL) {
    free(measure.scratch);
    free(measure.sums);
    return no_memory(error, n, k);
  }
  parallel_run(threads, (n + MATRIX_ROWS - 1) / MATRIX_ROWS, measure_rows, &measure);
  for (size_t row = 0; row < n; row++) {
    wrong += measure.sums[2 * row];
    whole += measure.sums[2 * row + 1];
  }
  free(measure.scratch);
  free(measure.sums);
  *out = whole > 0.0 ? sqrt(fmax(wrong, 0.0) / whole) : 0.0;
  return STATUS_OK;
}
