#include "experts.h"

#include "../../../../proto/number.h"
#include "../cost.h"
#include "../sequence.h"
#include "fused.h"
#include "pairs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
  BYTES_AT_ONCE = 64 << 20, /* of gathered rows of x and y, but for one row of x */
  COPIED_AT_ONCE = 1 << 20, /* bytes, between two pauses */
  WORTH_SHARING = 1 << 18,  /* bytes below which waking other threads costs more than it saves */
  PAIRS_AT_ONCE = 1 << 18,  /* a millisecond of sorting */
};

/* Some rows of a job's x with their pairs. */
struct run {
  const struct backend_job *job;
  struct pairs pairs;
  uint64_t x_row_bytes, y_row_bytes;
  int64_t columns; /* of y */
  uint8_t *x, *y;  /* rows of the sorted pairs */
  void *fused;     /* see fused.h; NULL: an expert at a time */
  int64_t first;   /* row of the job */
};

/* Of one pass over rows by all threads. */
struct pass {
  const struct run *run;
  int64_t begin, end;
};

static void share(const struct pass *pass, int part, int parts, int64_t *begin, int64_t *end) {
  int64_t count = pass->end - pass->begin;
  *begin = pass->begin + count * part / parts;
  *end = pass->begin + count * (part + 1) / parts;
}

/* ---- x in the order of experts */

static void gather_part(void *context, int part, int parts) {
  const struct pass *pass = context;
  const struct run *run = pass->run;
  const struct backend_experts *experts = run->job->experts;
  int64_t begin, end;
  share(pass, part, parts, &begin, &end);
  for (int64_t i = begin; i < end; i++) {
    int64_t pair = run->first * experts->top + run->pairs.sorted[i],
            row = experts->x_pairs ? pair : pair / experts->top;
    memcpy(run->x + (uint64_t)i * run->x_row_bytes, (const uint8_t *)run->job->x + (uint64_t)row * run->job->x_stride,
           run->x_row_bytes);
  }
}

/* ---- y of the pairs */

static void put_pair(const struct run *run, int64_t pair) {
  uint8_t *to = (uint8_t *)run->job->y + (uint64_t)(run->first * run->job->experts->top + pair) * run->job->y_stride;
  int32_t place = run->pairs.places[pair];
  if (place < 0) {
    memset(to, 0, run->y_row_bytes);
  } else {
    memcpy(to, run->y + (uint64_t)place * run->y_row_bytes, run->y_row_bytes);
  }
}

static void scatter_part(void *context, int part, int parts) {
  const struct pass *pass = context;
  int64_t begin, end, top = pass->run->job->experts->top;
  share(pass, part, parts, &begin, &end);
  for (int64_t pair = begin * top; pair < end * top; pair++) {
    put_pair(pass->run, pair);
  }
}

enum { SUM_COLUMNS = 512 };

static void add_row(float *sums, const uint8_t *y, enum gemm_type type, float by, int64_t columns) {
  const float *whole = (const float *)(const void *)y;
  const uint16_t *half = (const uint16_t *)(const void *)y;
  switch (type) {
  case GEMM_F32:
    for (int64_t n = 0; n < columns; n++) {
      sums[n] += by * whole[n];
    }
    break;
  case GEMM_F16:
    for (int64_t n = 0; n < columns; n++) {
      sums[n] += by * number_from_f16(half[n]);
    }
    break;
  default:
    for (int64_t n = 0; n < columns; n++) {
      sums[n] += by * number_from_bf16(half[n]);
    }
    break;
  }
}

static void store_row(uint8_t *y, const float *sums, enum gemm_type type, int64_t columns) {
  uint16_t *half = (uint16_t *)(void *)y;
  if (type == GEMM_F32) {
    memcpy(y, sums, (size_t)columns * sizeof(*sums));
    return;
  }
  for (int64_t n = 0; n < columns; n++) {
    half[n] = type == GEMM_F16 ? number_to_f16(sums[n]) : number_to_bf16(sums[n]);
  }
}

static void sum_columns(const struct run *run, int64_t row, int64_t first, int64_t columns) {
  const struct backend_job *job = run->job;
  const struct backend_experts *experts = job->experts;
  uint32_t element = gemm_type_bytes(job->y_type);
  float sums[SUM_COLUMNS] = {0};
  for (int64_t t = 0; t < experts->top; t++) {
    int64_t pair = row * experts->top + t;
    int32_t place = run->pairs.places[pair];
    if (place >= 0) {
      float by = experts->routing != NULL ? experts->routing[run->first * experts->top + pair] : 1.0f;
      add_row(sums, run->y + (uint64_t)place * run->y_row_bytes + (uint64_t)first * element, job->y_type, by, columns);
    }
  }
  store_row((uint8_t *)job->y + (uint64_t)(run->first + row) * job->y_stride + (uint64_t)first * element, sums,
            job->y_type, columns);
}

/* In pieces of columns, so that few rows are shared out, too. */
static void sum_part(void *context, int part, int parts) {
  const struct pass *pass = context;
  const struct run *run = pass->run;
  int64_t pieces = (run->columns + SUM_COLUMNS - 1) / SUM_COLUMNS, all = (pass->end - pass->begin) * pieces;
  for (int64_t i = all * part / parts; i < all * (part + 1) / parts; i++) {
    int64_t first = i % pieces * SUM_COLUMNS, left = run->columns - first;
    sum_columns(run, pass->begin + i / pieces, first, left < SUM_COLUMNS ? left : SUM_COLUMNS);
  }
}

/* `rows` of `row_bytes` each, a piece at a time. */
static enum status run_pass(const struct experts_device *device, const struct run *run, cpu_task task, int64_t rows,
                            uint64_t row_bytes, struct error *error) {
  struct cpu_pause *pause = device->engine->pause;
  int64_t at_once = pause == NULL ? rows : COPIED_AT_ONCE / (int64_t)row_bytes;
  at_once = at_once > 0 ? at_once : 1;
  enum status status = STATUS_OK;
  for (int64_t row = 0; status == STATUS_OK && row < rows; row += at_once) {
    struct pass pass = {.run = run, .begin = row, .end = rows - row < at_once ? rows : row + at_once};
    uint64_t bytes = (uint64_t)(pass.end - row) * row_bytes;
    cpu_pool_run(device->engine->pool, bytes < WORTH_SHARING ? 1 : cpu_pool_threads(device->engine->pool), task, &pass);
    status = cpu_pause_here(pause, bytes / COST_STAGED, error);
  }
  return status;
}

/* ---- the rows of one expert */

static const void *expert_bias(const void *bias, enum gemm_type type, int64_t n, int64_t expert) {
  return bias == NULL ? NULL : (const uint8_t *)bias + (uint64_t)(expert * n) * gemm_type_bytes(type);
}

static enum status run_expert(const struct run *run, const struct experts_device *device, int64_t expert,
                              struct error *error) {
  struct backend_step steps[GEMM_STEPS_MOST];
  struct backend_job one = *run->job;
  int64_t begin = run->pairs.begins[expert];
  one.experts = NULL;
  one.m = run->pairs.begins[expert + 1] - begin;
  if (one.m == 0) {
    return STATUS_OK;
  }
  one.bias = expert_bias(one.bias, one.bias_type, one.weight->shape.n, expert);
  one.weight = &one.weight->experts[expert];
  for (uint32_t i = 0; one.steps != NULL && i < one.step_count; i++) {
    steps[i] = one.steps[i];
    steps[i].bias = expert_bias(steps[i].bias, steps[i].bias_type, steps[i].weight->shape.n, expert);
    steps[i].weight = &steps[i].weight->experts[expert];
  }
  one.steps = one.steps != NULL ? steps : NULL;
  one.x = run->x + (uint64_t)begin * run->x_row_bytes;
  one.x_stride = run->x_row_bytes;
  one.y = run->y + (uint64_t)begin * run->y_row_bytes;
  one.y_stride = run->y_row_bytes;
  return device->run(device->context, &one, error);
}

static enum status run_rows(struct run *run, const struct experts_device *device, struct error *error) {
  int64_t rows = run->pairs.rows, top = run->pairs.top;
  const struct backend_experts *experts = run->job->experts;
  enum status status =
      run->fused != NULL
          ? cpu_fused_run(device->engine, run->job, &run->pairs, run->first, run->y, run->fused, error)
          : run_pass(device, run, gather_part, run->pairs.begins[run->pairs.experts], run->x_row_bytes, error);
  for (int64_t e = 0; status == STATUS_OK && run->fused == NULL && e < run->pairs.experts; e++) {
    status = run_expert(run, device, e, error);
  }
  return status != STATUS_OK ? status
                             : run_pass(device, run, experts->sum ? sum_part : scatter_part, rows,
                                        (uint64_t)top * run->y_row_bytes, error);
}

/* ---- all of it */

static int64_t rows_at_once(const struct run *run) {
  const struct backend_experts *experts = run->job->experts;
  int64_t rows = BYTES_AT_ONCE / ((int64_t)(run->x_row_bytes + run->y_row_bytes) * experts->top);
  rows = rows < PAIRS_AT_ONCE / experts->top ? rows : PAIRS_AT_ONCE / experts->top;
  rows = rows < 1 ? 1 : rows;
  return rows < run->job->m ? rows : run->job->m;
}

static enum status reserve(struct experts *experts, const struct experts_device *device, struct run *run, int64_t rows,
                           struct error *error) {
  bool fused = cpu_fused_takes(device->engine, run->job, rows * run->pairs.top);
  uint64_t fused_bytes = fused ? cpu_fused_bytes(run->job, rows * run->pairs.top) : 0;
  uint64_t pairs = (uint64_t)(rows * run->pairs.top);
  uint64_t x_bytes = fused ? 0 : gemm_round_up(pairs * run->x_row_bytes, GEMM_SECTION);
  uint64_t y_bytes = gemm_round_up(pairs * run->y_row_bytes, GEMM_SECTION);
  uint64_t bytes = x_bytes + y_bytes + fused_bytes + gemm_round_up(pairs_bytes(&run->pairs, rows), GEMM_SECTION);
  if (bytes > experts->bytes) {
    void *memory = aligned_alloc(GEMM_SECTION, bytes);
    if (memory == NULL) {
      return error_set(error, STATUS_NOMEM, "no memory for %" PRIu64 " bytes of rows of experts", bytes);
    }
    free(experts->memory);
    experts->memory = memory;
    experts->bytes = bytes;
  }
  run->x = experts->memory;
  run->y = run->x + x_bytes;
  run->fused = fused ? run->y + y_bytes : NULL;
  pairs_place(&run->pairs, rows, run->y + y_bytes + fused_bytes);
  return STATUS_OK;
}

static enum status check(const struct backend_job *job, struct error *error) {
  int64_t count = job->weight->shape.experts;
  if (count == 0) {
    return error_field(error, STATUS_INVALID, FIELD_EXPERTS, 0, 1, INT64_MAX);
  }
  if (job->experts->top < 1 || job->experts->top > count) {
    return error_field(error, STATUS_INVALID, FIELD_TOP, job->experts->top, 1, count);
  }
  for (uint32_t i = 0; job->steps != NULL && i < job->step_count; i++) {
    if (job->steps[i].weight->shape.experts != count) {
      return error_field(error, STATUS_INVALID, FIELD_EXPERTS, job->steps[i].weight->shape.experts, count, count);
    }
  }
  return STATUS_OK;
}

enum status cpu_experts_run(struct experts *experts, const struct experts_device *device, const struct backend_job *job,
                            struct error *error) {
  experts->skipped = 0;
  enum status status = check(job, error);
  if (status != STATUS_OK) {
    return status;
  }
  struct run run = {.job = job,
                    .pairs = {.top = job->experts->top, .experts = job->weight->shape.experts},
                    .x_row_bytes = (uint64_t)job->weight->shape.k * gemm_type_bytes(job->x_type),
                    .columns = cpu_job_columns(job)};
  run.y_row_bytes = (uint64_t)run.columns * gemm_type_bytes(job->y_type);
  int64_t at_once = rows_at_once(&run);
  uint64_t skipped = 0;
  status = reserve(experts, device, &run, at_once, error);
  for (; status == STATUS_OK && run.first < job->m; run.first += at_once) {
    int64_t left = job->m - run.first;
    pairs_sort(&run.pairs, job->experts->ids + run.first * run.pairs.top, left < at_once ? left : at_once);
    skipped += (uint64_t)(run.pairs.rows * run.pairs.top - run.pairs.begins[run.pairs.experts]);
    status = run_rows(&run, device, error);
  }
  experts->skipped = skipped > UINT32_MAX ? UINT32_MAX : (uint32_t)skipped;
  return status;
}

void cpu_experts_free(struct experts *experts) {
  free(experts->memory);
  *experts = (struct experts){0};
}
