#include "gptq.h"

#include "../number.h"
#include "matrix.h"
#include "parallel.h"
#include "quantize.h"
#include "quantize4.h"

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

/* ---- scales */

size_t gptq_scales(const struct gptq_grid *grid, size_t k) {
  return grid->row ? 1 : (k + GPTQ_GROUP - 1) / GPTQ_GROUP;
}

/* Multiples of a scale that are tried, 1 first. Fitted scales of 2 and 4 bits may be too small or too large once errors
 * move on; that of the largest of 8 bits can only be too large. */
static const double searched_int2[] = {1.0, 0.7, 0.8, 0.9, 1.1, 1.2, 1.35};
static const double searched_int4[] = {1.0, 0.85, 0.9, 0.95, 1.05, 1.1, 1.15};
static const double searched_int8[] = {1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6};
enum { SEARCHED = sizeof searched_int2 / sizeof *searched_int2 };
_Static_assert(sizeof searched_int2 == sizeof searched_int8 && sizeof searched_int2 == sizeof searched_int4,
               "as many of each");

static size_t multiples(const struct gptq_grid *grid) {
  return grid->search ? SEARCHED : 1;
}

static double multiple(const struct gptq_grid *grid, double scale, size_t which) {
  double wanted = scale * (grid->int8 ? searched_int8 : grid->int4 ? searched_int4 : searched_int2)[which];
  return grid->int8 ? (double)(float)wanted : (double)number_from_f16(number_to_f16((float)wanted));
}

static double code_of(const struct gptq_grid *grid, double value, double scale) {
  double least_code = grid->int8 ? -127.0 : grid->int4 ? -8.0 : -1.0;
  double most_code = grid->int8 ? 127.0 : grid->int4 ? 7.0 : 2.0;
  return scale != 0.0 ? fmin(fmax(rint(value / scale), least_code), most_code) : 0.0;
}

/* ---- rows of W, MATRIX_ROWS at a time */

/* What a thread has for itself. */
struct scratch {
  double *errors;   /* [MATRIX_ROWS][k]: w - q by places, right of the block */
  int8_t *codes;    /* [MATRIX_ROWS][k]: of a multiple that is tried */
  uint32_t *sorted; /* [2 * k] */
  uint8_t *fitted;  /* [k] */
};

struct pass {
  const struct gptq *gptq;
  const struct gptq_grid *grid;
  const struct gptq_weight *weight;
  struct scratch *scratch; /* one for each thread */
};

static void pass_end(struct pass *pass, unsigned threads) {
  for (unsigned i = 0; i < threads && pass->scratch != NULL; i++) {
    free(pass->scratch[i].errors);
    free(pass->scratch[i].codes);
    free(pass->scratch[i].sorted);
    free(pass->scratch[i].fitted);
  }
  free(pass->scratch);
}

static enum status pass_begin(struct pass *pass, unsigned threads, struct error *error) {
  size_t k = pass->weight->k;
  pass->scratch = calloc(threads, sizeof *pass->scratch);
  bool ready = pass->scratch != NULL;
  for (unsigned i = 0; i < threads && ready; i++) {
    struct scratch *scratch = &pass->scratch[i];
    scratch->errors = malloc(MATRIX_ROWS * k * sizeof *scratch->errors);
    scratch->codes = malloc(MATRIX_ROWS * k);
    scratch->sorted = malloc(2 * k * sizeof *scratch->sorted);
    scratch->fitted = malloc(k);
    ready = scratch->errors != NULL && scratch->codes != NULL && scratch->sorted != NULL && scratch->fitted != NULL;
  }
  return ready ? STATUS_OK : no_memory(error, pass->weight->n, k);
}

/* One group of one row. */
struct block {
  const struct gptq_grid *grid;
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

/* Codes by a scale; what they add to the squared error of the output. */
static double block_codes(const struct block *block, const float *w, double scale, int8_t *codes) {
  double loss = 0.0;
  for (size_t r = block->count; r-- > 0;) {
    size_t column = block->column[r];
    double value = (double)w[column], target = value + feedback(block, r);
    double code = code_of(block->grid, target, scale);
    double added = (target - code * scale) / block->within[r * GPTQ_GROUP + r];
    codes[column] = (int8_t)code;
    block->errors[r] = value - code * scale;
    loss += added * added;
  }
  return loss;
}

/* The scale with the least squared error of the weights, and their codes, 0 the least of them, in scratch->fitted. */
static float fit(const struct gptq_grid *grid, const float *values, size_t count, struct scratch *scratch) {
  const struct quantize4 four = {.search = true};
  uint8_t zero;
  return grid->int4 ? quantize_int4(&four, values, count, scratch->fitted, &zero)
                    : number_from_f16(quantize_least_squares(values, count, scratch->sorted, scratch->fitted));
}

/* Of 2 and 4 bits, fitted to the weights that would leave no error here, given those before; then searched. `codes`:
 * any. */
static double block_scale(const struct block *block, const float *w, struct scratch *scratch, int8_t *codes) {
  float target[GPTQ_GROUP];
  for (size_t r = block->count; r-- > 0;) {
    block->errors[r] = -feedback(block, r);
    double value = (double)w[block->column[r]] - block->errors[r];
    target[r] = (float)fmin(fmax(value, (double)-QUANTIZE_INT2_MOST), (double)QUANTIZE_INT2_MOST);
  }
  double fitted = (double)fit(block->grid, target, block->count, scratch);
  double best = fitted, least_loss = INFINITY;
  for (size_t i = 0; i < multiples(block->grid) && block->grid->search; i++) {
    double scale = multiple(block->grid, fitted, i), loss = block_codes(block, w, scale, codes);
    if (isfinite(scale) && loss < least_loss) {
      least_loss = loss;
      best = scale;
    }
  }
  return best;
}

/* `rows` rows from `first`, right to left. scales: of the rows where each has one, else NULL: found a group at a time,
 * and written to the weight. Codes go to codes[row * k]; losses[row]: their error. */
static void walk(const struct pass *pass, size_t first, size_t rows, const double *scales, struct scratch *scratch,
                 int8_t *codes, double *losses) {
  const struct gptq *gptq = pass->gptq;
  size_t k = gptq->k, end = k;
  memset(losses, 0, MATRIX_ROWS * sizeof *losses);
  for (size_t g = gptq->groups; g-- > 0;) {
    size_t count = group_columns(k, gptq->group[g]), begin = end - count;
    struct matrix_left left = {.values = scratch->errors + end, .rows = rows, .row_step = k, .step = 1};
    matrix_tile sums;
    memset(sums, 0, sizeof sums);
    matrix_accumulate(sums, &left, gptq->factor + end * k + begin, k, count, k - end);
    for (size_t row = 0; row < rows; row++) {
      const float *w = pass->weight->w + (first + row) * k;
      struct block block = {.grid = pass->grid,
                            .column = gptq->column + begin,
                            .within = gptq->within + g * GPTQ_GROUP * GPTQ_GROUP,
                            .count = count,
                            .sums = sums[row],
                            .errors = scratch->errors + row * k + begin};
      double scale = scales != NULL ? scales[row] : block_scale(&block, w, scratch, codes + row * k);
      if (scales == NULL)
        pass->weight->scales[(first + row) * gptq->groups + gptq->group[g]] = (float)scale;
      losses[row] += block_codes(&block, w, scale, codes + row * k);
    }
    end = begin;
  }
}

static double row_scale(const struct gptq_grid *grid, const float *w, size_t k, struct scratch *scratch) {
  if (grid->int8)
    return (double)number_scale_int8(quantize_absmax(w, k));
  return (double)fit(grid, w, k, scratch);
}

/* A scale a row: each multiple takes a walk of its own. */
static void quantize_whole_rows(const struct pass *pass, size_t first, size_t rows, struct scratch *scratch) {
  size_t k = pass->weight->k;
  double begun[MATRIX_ROWS], scales[MATRIX_ROWS], losses[MATRIX_ROWS], least_loss[MATRIX_ROWS];
  for (size_t row = 0; row < rows; row++) {
    begun[row] = row_scale(pass->grid, pass->weight->w + (first + row) * k, k, scratch);
    least_loss[row] = INFINITY;
  }
  for (size_t i = 0; i < multiples(pass->grid); i++) {
    for (size_t row = 0; row < rows; row++)
      scales[row] = i == 0 ? begun[row] : multiple(pass->grid, begun[row], i);
    walk(pass, first, rows, scales, scratch, scratch->codes, losses);
    for (size_t row = 0; row < rows; row++)
      if (i == 0 || (isfinite(scales[row]) && losses[row] < least_loss[row])) {
        least_loss[row] = losses[row];
        pass->weight->scales[first + row] = (float)scales[row];
        memcpy(pass->weight->codes + (first + row) * k, scratch->codes + row * k, k);
      }
  }
}

static void quantize_rows(void *context, size_t index, unsigned thread) {
  const struct pass *pass = context;
  size_t first = index * MATRIX_ROWS, rows = least(pass->weight->n - first, MATRIX_ROWS);
  struct scratch *scratch = &pass->scratch[thread];
  double losses[MATRIX_ROWS];
  if (pass->grid->row)
    quantize_whole_rows(pass, first, rows, scratch);
  else
    walk(pass, first, rows, NULL, scratch, pass->weight->codes + first * pass->weight->k, losses);
}

enum status gptq_quantize(const struct gptq *gptq, const struct gptq_grid *grid, const struct gptq_weight *weight,
                          unsigned threads, struct error *error) {
  struct pass pass = {.gptq = gptq, .grid = grid, .weight = weight};
  enum status status = pass_begin(&pass, threads, error);
  if (status == STATUS_OK)
    parallel_run(threads, (weight->n + MATRIX_ROWS - 1) / MATRIX_ROWS, quantize_rows, &pass);
  pass_end(&pass, threads);
  return status;
}

static void round_row(const struct pass *pass, size_t row, struct scratch *scratch) {
  const struct gptq_weight *weight = pass->weight;
  size_t k = weight->k, count = gptq_scales(pass->grid, k), width = pass->grid->row ? k : GPTQ_GROUP;
  for (size_t g = 0; g < count; g++) {
    size_t at = row * k + g * width, columns = least(k - g * width, width);
    if (pass->grid->int8) {
      weight->scales[row] = number_scale_int8(quantize_absmax(weight->w + at, k));
      quantize_int8(weight->w + at, k, weight->scales[row], weight->codes + at);
      continue;
    }
    weight->scales[row * count + g] = fit(pass->grid, weight->w + at, columns, scratch);
    for (size_t i = 0; i < columns; i++)
      weight->codes[at + i] = (int8_t)(scratch->fitted[i] - (pass->grid->int4 ? 8 : 1));
  }
}

static void round_rows(void *context, size_t index, unsigned thread) {
  const struct pass *pass = context;
  for (size_t row = index * MATRIX_ROWS; row < least((index + 1) * MATRIX_ROWS, pass->weight->n); row++)
    round_row(pass, row, &pass->scratch[thread]);
}

enum status gptq_round(const struct gptq_grid *grid, const struct gptq_weight *weight, unsigned threads,
                       struct error *error) {
  struct pass pass = {.grid = grid, .weight = weight};
  enum status status = pass_begin(&pass, threads, error);
  if (status == STATUS_OK)
    parallel_run(threads, (weight->n + MATRIX_ROWS - 1) / MATRIX_ROWS, round_rows, &pass);
  pass_end(&pass, threads);
  return status;
}

/* ---- the error of the output */

struct measure {
  const double *h;
  const struct gptq_weight *weight;
  size_t scales;   /* of a row */
  double *scratch; /* for each thread [MATRIX_ROWS][k] */
  double *sums;    /* [n][2]: of W - Q, of W */
};

static void measure_rows(void *context, size_t index, unsigned thread) {
  const struct measure *measure = context;
  const struct gptq_weight *weight = measure->weight;
  size_t k = weight->k, first = index * MATRIX_ROWS;
  double *values = measure->scratch + thread * MATRIX_ROWS * k, sums[MATRIX_ROWS];
  struct matrix_left left = {.values = values, .rows = least(weight->n - first, MATRIX_ROWS), .row_step = k, .step = 1};
  for (int whole = 0; whole < 2; whole++) {
    for (size_t row = 0; row < left.rows; row++)
      for (size_t i = 0; i < k; i++) {
        size_t at = (first + row) * k + i, group = measure->scales > 1 ? i / GPTQ_GROUP : 0;
        double scale = (double)weight->scales[(first + row) * measure->scales + group];
        values[row * k + i] = (double)weight->w[at] - (whole ? 0.0 : scale * weight->codes[at]);
      }
    matrix_quadratic(measure->h, k, &left, sums);
    for (size_t row = 0; row < left.rows; row++)
      measure->sums[2 * (first + row) + (size_t)whole] = sums[row];
  }
}

enum status gptq_error(const double *h, const struct gptq_grid *grid, const struct gptq_weight *weight,
                       unsigned threads, double *out, struct error *error) {
  struct measure measure = {.h = h, .weight = weight, .scales = gptq_scales(grid, weight->k)};
  double wrong = 0.0, whole = 0.0;
  measure.scratch = malloc(threads * MATRIX_ROWS * weight->k * sizeof *measure.scratch);
  measure.sums = malloc(2 * weight->n * sizeof *measure.sums);
  if (measure.scratch == NULL || measure.sums == NULL) {
    free(measure.scratch);
    free(measure.sums);
    return no_memory(error, weight->n, weight->k);
  }
  parallel_run(threads, (weight->n + MATRIX_ROWS - 1) / MATRIX_ROWS, measure_rows, &measure);
  for (size_t row = 0; row < weight->n; row++) {
    wrong += measure.sums[2 * row];
    whole += measure.sums[2 * row + 1];
  }
  free(measure.scratch);
  free(measure.sums);
  *out = whole > 0.0 ? sqrt(fmax(wrong, 0.0) / whole) : 0.0;
  return STATUS_OK;
}
