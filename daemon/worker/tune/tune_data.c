#include "tune_data.h"

#include <string.h>

uint8_t *trial_x_row(const struct trial *trial, int64_t row) {
  bool turned = trial->problem.tensors.x_turned;
  return (uint8_t *)(uintptr_t)trial->job.x + (uint64_t)row * (turned ? sizeof(uint16_t) : trial->job.x_stride);
}

/* Element i of a row that lies by columns. */
static void put_turned(uint8_t *row, uint64_t stride, int64_t i, enum gemm_type type, float value) {
  operands_put(row + (uint64_t)i * stride, 0, type, value);
}

/* A piece of distinct row `place / k`, and its scales. */
static void make_kinds(struct trial *trial, int64_t most) {
  int64_t k = trial->problem.weight.k, row = trial->place / k, first = trial->place % k;
  int64_t count = k - first < most ? k - first : most;
  bool turned = trial->problem.tensors.x_turned;
  for (int64_t i = first; i < first + count; i++) {
    float value = operands_value((int)row, (uint64_t)(row * k + i));
    if (turned)
      put_turned(trial_x_row(trial, row), trial->job.x_stride, i, trial->problem.x_type, value);
    else
      operands_put(trial_x_row(trial, row), i, trial->problem.x_type, value);
  }
  trial->place += count;
  int64_t kinds = trial->problem.m < OPERANDS_KINDS ? trial->problem.m : OPERANDS_KINDS;
  if (trial->place == kinds * k) {
    trial->stage = STAGE_ROWS;
    trial->place = kinds;
  }
}

/* A piece of the rows of x that lies by columns: of each element of K those of all rows. */
static void copy_turned(struct trial *trial, int64_t most) {
  int64_t m = trial->problem.m, k = trial->problem.weight.k, kinds = m < OPERANDS_KINDS ? m : OPERANDS_KINDS;
  int64_t at = trial->place - kinds, end = at + most / m + 1;
  for (end = end < k ? end : k; at < end; at++) {
    uint16_t *line = (uint16_t *)(void *)(trial_x_row(trial, 0) + (uint64_t)at * trial->job.x_stride);
    for (int64_t row = kinds; row < m; row++)
      line[row] = line[row % kinds];
  }
  trial->place = at + kinds;
  trial->stage = at == k ? STAGE_W : STAGE_ROWS;
  trial->place = at == k ? 0 : trial->place;
}

/* A piece of W. */
static void make_w(struct trial *trial, int64_t most) {
  const struct backend_operand *operand = &trial->operand;
  int64_t k = trial->problem.weight.k, all = trial->problem.weight.n * k, end = trial->place + most;
  for (end = end < all ? end : all; trial->place < end; trial->place++) {
    uint64_t row = (uint64_t)(trial->place / k), i = (uint64_t)(trial->place % k);
    uint64_t at = operand->form.w_turned ? i * operand->stride + row * 2 : row * operand->stride + i * 2;
    operands_put((uint8_t *)(uintptr_t)operand->w + at, 0, trial->problem.x_type,
                 operands_uniform((uint64_t)trial->place));
  }
  if (trial->place < all)
    return;
  trial->stage = STAGE_BIAS;
  trial->place = 0;
}

static void copy_rows(struct trial *trial, uint64_t most) {
  for (uint64_t bytes = 0; bytes < most && trial->place < trial->problem.m; bytes += trial->job.x_stride) {
    memcpy(trial_x_row(trial, trial->place), trial_x_row(trial, trial->place % OPERANDS_KINDS), trial->job.x_stride);
    trial->place++;
  }
  if (trial->place < trial->problem.m)
    return;
  uint64_t columns = gemm_x_scale_columns(&trial->problem.weight);
  float *scales = (float *)(uintptr_t)trial->job.x_scale;
  for (uint64_t i = 0; scales != NULL && i < (uint64_t)trial->problem.m * columns; i++)
    scales[i] = 0.03125f * (float)(1 + (i / columns % OPERANDS_KINDS + i % columns) % 3);
  trial->stage = trial->problem.tensors.given ? STAGE_W : STAGE_BIAS;
  trial->place = 0;
}

static void make_bias(struct trial *trial, int64_t most) {
  int64_t n = trial->problem.weight.n;
  void *bias = (void *)(uintptr_t)trial->job.bias;
  if (bias == NULL)
    trial->place = n;
  for (int64_t i = 0; i < most && trial->place < n; i++, trial->place++)
    operands_put(bias, trial->place, trial->problem.bias_type, operands_uniform((uint64_t)trial->place));
  if (trial->place < n)
    return;
  trial->stage = STAGE_POISON;
  trial->place = 0;
}

void trial_data_next(struct trial *trial, int64_t elements, uint64_t bytes) {
  switch (trial->stage) {
  case STAGE_KINDS:
    make_kinds(trial, elements);
    break;
  case STAGE_ROWS:
    if (trial->problem.tensors.x_turned)
      copy_turned(trial, elements);
    else
      copy_rows(trial, bytes);
    break;
  case STAGE_W:
    make_w(trial, elements);
    break;
  default:
    make_bias(trial, elements);
    break;
  }
}
