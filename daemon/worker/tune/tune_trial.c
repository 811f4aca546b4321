#include "tune_trial.h"

#include "../../../proto/clock.h"
#include "tune_data.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
  PIECE_NS = 100000,         /* a request that comes meanwhile waits for it; */
  PIECE_ON_CORES_NS = 40000, /* where products themselves are that short and keep the engine busy */
  BLOCK = 256,               /* elements that are compared at a time */
  PLAIN_COLUMNS_FIRST = 8,
  GUARD_BYTES = 64,
  POISON = 0xff, /* NaN in every floating type */
};

/* ---- pieces, and what one core makes of their time, about */

uint64_t trial_piece_ns(const struct trial *trial) {
  return trial->ops->on_cores ? PIECE_ON_CORES_NS : PIECE_NS;
}

static int64_t piece_elements(const struct trial *trial) {
  return (int64_t)trial_piece_ns(trial) / 6;
}

static uint64_t piece_bytes(const struct trial *trial) {
  return trial_piece_ns(trial) * 5;
}

/* ---- where things lie */

static uint64_t cut(uint64_t *used, uint64_t bytes) {
  uint64_t begin = *used;
  *used = gemm_round_up(begin + bytes, GEMM_SECTION);
  return begin;
}

/* As far as the alignment allows the dense stride of lines of so many elements. */
static uint64_t line_stride(const struct variant_problem *problem, int64_t elements) {
  uint64_t dense = (uint64_t)elements * 2, align = (uint64_t)problem->tensors.align;
  uint64_t stride = gemm_round_up(dense, align);
  return align < 16 && stride % (2 * align) == 0 ? stride + align : stride; /* aligned to no more */
}

void trial_end(struct trial *trial) {
  if (trial->made)
    trial->ops->tensors_drop(trial->backend);
  trial->made = false;
}

/* x and W of a product of two tensors: the backend's, or behind what the arena holds. */
static enum status place_tensors(struct trial *trial, uint64_t *used, struct error *error) {
  const struct variant_problem *problem = &trial->problem;
  const struct variant_tensors *tensors = &problem->tensors;
  struct backend_job *job = &trial->job;
  int64_t m = problem->m, n = problem->weight.n, k = problem->weight.k;
  trial->operand = (struct backend_operand){
      .shape = problem->weight, .form = {.x_turned = tensors->x_turned, .w_turned = tensors->w_turned, .batch = 1}};
  trial->copies = 1;
  job->operand = &trial->operand;
  if (trial->ops->tensors_make != NULL) {
    enum status status = trial->ops->tensors_make(trial->backend, problem, job, &trial->operand, &trial->copies, error);
    trial->made = status == STATUS_OK;
    return status;
  }
  job->x_stride = line_stride(problem, tensors->x_turned ? m : k);
  trial->operand.stride = line_stride(problem, tensors->w_turned ? n : k);
  uint64_t x = cut(used, job->x_stride * (uint64_t)(tensors->x_turned ? k : m) + 16);
  uint64_t w = cut(used, trial->operand.stride * (uint64_t)(tensors->w_turned ? k : n) + 16);
  if (*used > trial->bytes)
    return error_set(error, STATUS_TOO_LARGE, "x, W and y take %llu MiB, tune_bytes allows %llu",
                     (unsigned long long)(*used >> 20), (unsigned long long)(trial->bytes >> 20));
  job->x = trial->base + x + tensors->align % 16;
  trial->operand.w = trial->base + w + tensors->align % 16;
  return STATUS_OK;
}

enum status trial_start(struct trial *trial, const struct variant_problem *problem, struct backend_weight *weight,
                        struct error *error) {
  uint64_t m = (uint64_t)problem->m, n = (uint64_t)problem->weight.n, k = (uint64_t)problem->weight.k;
  trial_end(trial);
  bool tensors = problem->tensors.given;
  uint64_t x_row = k * gemm_type_bytes(problem->x_type), y_row = n * gemm_type_bytes(problem->y_type), used = 0;
  uint64_t y_stride = gemm_round_up(y_row, GEMM_ALIGN) + GUARD_BYTES;
  bool coded = (problem->x_type == GEMM_INT8 || problem->x_type == GEMM_E4M3) && problem->y_type != GEMM_S32;
  uint64_t scale_columns = gemm_x_scale_columns(&problem->weight), x = cut(&used, tensors ? 0 : m * x_row),
           y = cut(&used, m * y_stride);
  uint64_t reference = cut(&used, OPERANDS_KINDS * y_stride), bias = cut(&used, n * 4);
  uint64_t scales = cut(&used, coded ? m * scale_columns * sizeof(float) : 0);
  if (used > trial->bytes)
    return error_set(error, STATUS_TOO_LARGE, "x and y take %llu MiB, tune_bytes allows %llu",
                     (unsigned long long)(used >> 20), (unsigned long long)(trial->bytes >> 20));
  trial->problem = *problem;
  trial->reference = reference;
  trial->used = used;
  trial->stage = STAGE_KINDS;
  trial->place = 0;
  trial->columns = PLAIN_COLUMNS_FIRST;
  trial->own_known = false;
  bool biased = problem->bias_type != GEMM_TYPE_NONE;
  trial->job = (struct backend_job){.weight = weight,
                                    .arena = trial->arena,
                                    .m = problem->m,
                                    .awake = 1, /* as when it serves: whoever asks looks out for it */
                                    .x_type = problem->x_type,
                                    .y_type = problem->y_type,
                                    .bias_type = problem->bias_type,
                                    .x = trial->base + x,
                                    .y = trial->base + y,
                                    .bias = biased ? trial->base + bias : NULL,
                                    .x_scale = coded ? trial->base + scales : NULL,
                                    .x_stride = x_row,
                                    .y_stride = y_stride};
  if (!tensors)
    return STATUS_OK;
  trial->job.x_scale = NULL;
  enum status status = place_tensors(trial, &trial->used, error);
  if (status == STATUS_OK && trial->made)
    trial->stage = STAGE_BIAS; /* the numbers are there */
  return status;
}

/* ---- poison and the reference */

/* y, the reference and their guards. */
static void poison(struct trial *trial) {
  uint64_t begin = (uint64_t)((uint8_t *)trial->job.y - trial->base);
  uint64_t end = trial->reference + OPERANDS_KINDS * trial->job.y_stride, at = begin + (uint64_t)trial->place;
  uint64_t bytes = end - at < piece_bytes(trial) ? end - at : piece_bytes(trial);
  memset(trial->base + at, POISON, bytes);
  trial->place += (int64_t)bytes;
  if (at + bytes == end) {
    trial->stage = STAGE_REFERENCE;
    trial->place = 0;
  }
}

static enum status launch(struct trial *trial, const struct backend_job *job, struct error *error) {
  struct backend_done done = {.status = STATUS_OK};
  enum status status = trial->ops->submit(trial->backend, job, error);
  if (status != STATUS_OK)
    return status;
  while (trial->ops->poll(trial->backend, &done, 1) == 0)
    ;
  if (done.status != STATUS_OK)
    return error_set(error, done.status, "a product on trial ended with %s", status_name(done.status));
  return STATUS_OK;
}

/* True where the element has been written: a backend may compute more columns than it is asked for. */
static bool written(const struct trial *trial, const uint8_t *row, int64_t column) {
  uint32_t bytes = gemm_type_bytes(trial->problem.y_type);
  const uint8_t *element = row + (uint64_t)column * bytes;
  for (uint32_t i = 0; i < bytes; i++)
    if (element[i] != POISON)
      return true;
  return false;
}

/* Some columns of one distinct row by the plain kernel; how many is learned from how long the last ones took. */
static enum status make_reference(struct trial *trial, struct error *error) {
  int64_t n = trial->problem.weight.n, row = trial->place / n, first = trial->place % n;
  struct variant plain = variant_default(trial->ops->families[0]);
  struct backend_job job = trial->job;
  int64_t count = n - first < trial->columns ? n - first : trial->columns;
  if (trial->problem.tensors.given)
    count = n; /* a W that is no stored one is laid out anew for every product */
  plain.values[0] = (int32_t)first;
  plain.values[1] = (int32_t)count;
  job.variant = &plain;
  job.m = 1;
  job.x = trial_x_row(trial, row);
  if (job.x_scale != NULL)
    job.x_scale = (const float *)job.x_scale + (uint64_t)row * gemm_x_scale_columns(&trial->problem.weight);
  job.y = trial->base + trial->reference + (uint64_t)row * trial->job.y_stride;
  uint64_t begin = clock_ns();
  enum status status = launch(trial, &job, error);
  if (status != STATUS_OK)
    return status;
  uint64_t took = clock_ns() - begin, piece_ns = trial_piece_ns(trial);
  if (count == trial->columns)
    trial->columns = took < piece_ns / 2 ? count * 2 : took > piece_ns && count > 1 ? count / 2 : count;
  trial->place += written(trial, job.y, n - 1) ? n - first : count;
  int64_t kinds = trial->problem.m < OPERANDS_KINDS ? trial->problem.m : OPERANDS_KINDS;
  if (trial->place == kinds * n)
    trial->stage = STAGE_READY;
  return STATUS_OK;
}

enum status trial_prepare(struct trial *trial, bool *ready, struct error *error) {
  enum status status = STATUS_OK;
  switch (trial->stage) {
  case STAGE_KINDS:
  case STAGE_ROWS:
  case STAGE_W:
  case STAGE_BIAS:
    trial_data_next(trial, piece_elements(trial), piece_bytes(trial));
    break;
  case STAGE_POISON:
    poison(trial);
    break;
  case STAGE_REFERENCE:
    status = make_reference(trial, error);
    break;
  default:
    break;
  }
  *ready = trial->stage == STAGE_READY;
  return status;
}

/* ---- comparison */

static void start_pass(struct trial *trial, int64_t m) {
  trial->m = m;
  trial->launched = false;
  trial->place = trial->column = 0;
  trial->difference = trial->norm = 0;
}

void trial_compare(struct trial *trial, const struct variant *variant) {
  trial->variant = *variant;
  trial->ragged = trial->failed = false;
  memset(trial->error, 0, sizeof trial->error);
  start_pass(trial, trial->problem.m);
}

bool trial_launches_next(const struct trial *trial) {
  return !trial->launched;
}

/* What a row's relative error may be: the contract's bound on the sums, and the rounding to y's type. A backend's own
 * choice, which comes first and serves anyway, may be beyond it on rows that cancel (the sums of tensor cores); then no
 * other needs to be better. */
static double allowed(const struct trial *trial, int kind) {
  if (!trial->own_known)
    return trial->problem.y_type == GEMM_S32 ? 0 : INFINITY;
  /* Of a long K partial sums are rounded many times: the contract's bound for ordinary operands. */
  static const double long_sums = 3e-4;
  double sums = trial->problem.tensors.given ? long_sums : gemm_format_facts(trial->problem.weight.format)->sums_error;
  double rounding = trial->problem.y_type == GEMM_BF16 ? 3.9e-3 : trial->problem.y_type == GEMM_F16 ? 5e-4 : 0;
  double limit = trial->problem.y_type == GEMM_S32 ? 0 : sums + rounding;
  if (trial->own_error[kind] > limit && trial->own_error[kind] < 30 * limit)
    limit = 1.5 * trial->own_error[kind];
  return limit;
}

static bool guard_whole(const uint8_t *guard, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; i++)
    if (guard[i] != POISON)
      return false;
  return true;
}

static uint8_t *y_row(const struct trial *trial, int64_t row) {
  return (uint8_t *)trial->job.y + (uint64_t)row * trial->job.y_stride;
}

/* Most rows have the bits of the first one of their kind, which has been compared. */
static bool known_row(const struct trial *trial) {
  return trial->place >= OPERANDS_KINDS &&
         memcmp(y_row(trial, trial->place), y_row(trial, trial->place % OPERANDS_KINDS), trial->job.y_stride) == 0;
}

/* The first rows stay for known_row until the pass is over. */
static void poison_row(struct trial *trial, int64_t row) {
  if (row >= OPERANDS_KINDS)
    memset(y_row(trial, row), POISON, trial->job.y_stride);
}

static void poison_first_rows(struct trial *trial) {
  int64_t rows = trial->m < OPERANDS_KINDS ? trial->m : OPERANDS_KINDS;
  memset(trial->job.y, POISON, (uint64_t)rows * trial->job.y_stride);
}

/* Sums of squares: of what is off, and of what should be. */
static void add_squares(const double *is, const double *should, int count, double *difference, double *norm) {
  *difference = *norm = 0;
  for (int i = 0; i < count; i++) {
    *difference += (is[i] - should[i]) * (is[i] - should[i]);
    *norm += should[i] * should[i];
  }
}

/* Takes infinities out that are where they should be. Returns the place of any other element that is not finite, as one
 * that was not written; -1: there is none. */
static int drop_infinities(double *is, double *should, int count) {
  for (int i = 0; i < count; i++) {
    if (isfinite(is[i]) && isfinite(should[i]))
      continue;
    if (!(is[i] == should[i]))
      return i;
    is[i] = should[i] = 0;
  }
  return -1;
}

/* Compares `count` columns from trial->column on and goes on behind them; or returns which of them is neither finite
 * nor what it should be. -1: none is. */
static int compare_block(struct trial *trial, const uint8_t *row, const uint8_t *right, int count) {
  double is[BLOCK], should[BLOCK], difference, norm;
  operands_widen(row, trial->column, count, trial->problem.y_type, is);
  operands_widen(right, trial->column, count, trial->problem.y_type, should);
  add_squares(is, should, count, &difference, &norm);
  if (!isfinite(difference + norm)) {
    int wrong = drop_infinities(is, should, count);
    if (wrong >= 0)
      return wrong;
    add_squares(is, should, count, &difference, &norm);
  }
  trial->difference += difference;
  trial->norm += norm;
  trial->column += count;
  return -1;
}

/* Up to a piece of columns of the row at `place`. Returns false with *why where the row is wrong. */
static bool compare_columns(struct trial *trial, char *why, size_t why_bytes) {
  const struct variant_problem *problem = &trial->problem;
  int64_t n = problem->weight.n, last = trial->column + piece_elements(trial);
  int kind = (int)(trial->place % OPERANDS_KINDS);
  const uint8_t *row = y_row(trial, trial->place);
  const uint8_t *right = trial->base + trial->reference + (uint64_t)kind * trial->job.y_stride;
  if (trial->column == 0 && known_row(trial)) {
    poison_row(trial, trial->place++);
    return true;
  }
  while (trial->column < n && trial->column < last) {
    int count = (int)(n - trial->column < BLOCK ? n - trial->column : BLOCK);
    int wrong = compare_block(trial, row, right, count);
    if (wrong < 0)
      continue;
    double is, should;
    operands_widen(row, trial->column + wrong, 1, problem->y_type, &is);
    operands_widen(right, trial->column + wrong, 1, problem->y_type, &should);
    snprintf(why, why_bytes, "row %lld column %lld of %lld rows is %g, should be %g", (long long)trial->place,
             (long long)trial->column + wrong, (long long)trial->m, is, should);
    return false;
  }
  if (trial->column < n)
    return true;
  uint64_t y_bytes = (uint64_t)n * gemm_type_bytes(problem->y_type);
  double error = trial->norm > 0 ? sqrt(trial->difference / trial->norm) : trial->difference > 0 ? INFINITY : 0;
  bool whole = guard_whole(row + y_bytes, trial->job.y_stride - y_bytes);
  poison_row(trial, trial->place);
  trial->error[kind] = fmax(trial->error[kind], error);
  trial->column = 0;
  trial->difference = trial->norm = 0;
  trial->place++;
  if (!whole)
    snprintf(why, why_bytes, "wrote behind row %lld of y", (long long)trial->place - 1);
  else if (error > allowed(trial, kind))
    snprintf(why, why_bytes, "row %lld of %lld is off by %.2g, allowed %.2g", (long long)trial->place - 1,
             (long long)trial->m, error, allowed(trial, kind));
  else
    return true;
  return false;
}

/* Rows that a pass did not ask for must be as they were. */
static bool rest_untouched(const struct trial *trial) {
  const uint8_t *rest = (const uint8_t *)trial->job.y + (uint64_t)trial->m * trial->job.y_stride;
  uint64_t bytes = (uint64_t)(trial->problem.m - trial->m) * trial->job.y_stride;
  return guard_whole(rest, bytes < piece_bytes(trial) ? bytes : piece_bytes(trial));
}

static void poison_again(struct trial *trial) {
  memset(trial->job.y, POISON, (uint64_t)trial->problem.m * trial->job.y_stride);
}

static enum status launch_compared(struct trial *trial, bool *right, char *why, size_t why_bytes, struct error *error) {
  struct backend_job job = trial->job;
  job.variant = &trial->variant;
  job.m = trial->m;
  enum status status = launch(trial, &job, error);
  trial->launched = true;
  if (status == STATUS_OK || status == STATUS_DEVICE_LOST)
    return status;
  *right = false;
  trial->failed = true;
  snprintf(why, why_bytes, "%s", error->text);
  return STATUS_OK;
}

enum status trial_compare_next(struct trial *trial, bool *done, bool *right, char *why, size_t why_bytes,
                               struct error *error) {
  *done = false;
  *right = true;
  if (!trial->launched) {
    enum status status = launch_compared(trial, right, why, why_bytes, error);
    *done = status == STATUS_OK && !*right;
    return status;
  }
  for (int64_t elements = 0; *right && trial->place < trial->m && elements < piece_elements(trial);
       elements += trial->problem.weight.n)
    *right = compare_columns(trial, why, why_bytes);
  if (*right && trial->place < trial->m)
    return STATUS_OK;
  if (*right && !rest_untouched(trial)) {
    *right = false;
    snprintf(why, why_bytes, "wrote rows beyond the last one of y");
  }
  poison_first_rows(trial);
  if (*right && !trial->ragged && trial->problem.m > 2) {
    trial->ragged = true;
    start_pass(trial, trial->problem.m - trial->problem.m / 8 - 1);
    return STATUS_OK;
  }
  if (!*right)
    poison_again(trial);
  if (!trial->own_known) {
    memcpy(trial->own_error, trial->error, sizeof trial->own_error);
    trial->own_known = true;
  }
  *done = true;
  return STATUS_OK;
}
