#include "product.h"

#include "epilogue.h"

#include <string.h>

/* Multiply-adds below which waking other threads costs more than it saves. */
#define WORTH_SHARING ((int64_t)1 << 16)

struct tile_task {
  struct product_engine *engine;
  const struct backend_job *job;
  int64_t first; /* row of x and y */
  int rows;
};

/* An even share of [0, count) in multiples of `unit`. */
static void share(int64_t count, int64_t unit, int part, int parts, int64_t *begin, int64_t *end) {
  int64_t units = (count + unit - 1) / unit;
  *begin = units * part / parts * unit;
  *end = units * (part + 1) / parts * unit;
  *end = *end < count ? *end : count;
}

static void stage_part(void *context, int part, int parts) {
  const struct tile_task *task = context;
  int64_t begin, end;
  share(task->rows, 1, part, parts, &begin, &end);
  for (int64_t i = begin; i < end; i++) {
    cpu_stage_row(&task->engine->stage, task->engine->micro, task->job, task->first + i, (int)i, part);
  }
}

/* Sums of `columns` rows of W with the rows of x that `tile` names, over all of K. */
static void sum_columns(const struct tile_task *task, struct micro_tile *tile, int begin_row, int64_t n) {
  const struct stage *stage = &task->engine->stage;
  const struct micro_ops *micro = task->engine->micro;
  const struct backend_weight *weight = task->job->weight;
  bool int8 = weight->shape.format == GEMM_FORMAT_INT8;
  _Alignas(64) float w[MICRO_COLUMNS][MICRO_CHUNK];
  float w_scale[MICRO_COLUMNS][MICRO_GROUPS];
  tile->w = w;
  tile->w_scale = cpu_weight_has_group_scales(weight) ? &w_scale[0][0] : NULL;
  for (int64_t k = 0; k < stage->k_padded; k += MICRO_CHUNK) {
    int64_t place = begin_row * stage->k_padded + k, left = stage->k_padded - k;
    tile->groups = (int)((left < MICRO_CHUNK ? left : MICRO_CHUNK) / MICRO_GROUP);
    tile->x = int8 ? (const void *)((int16_t *)stage->values + place) : (const void *)((float *)stage->values + place);
    tile->x_scale = weight->shape.scale == GEMM_SCALE_BLOCK
                        ? stage->group_scales + begin_row * stage->groups + k / MICRO_GROUP
                        : NULL;
    for (int column = 0; column < tile->columns; column++) {
      void *to = int8 ? (void *)((int16_t *)w + column * MICRO_CHUNK) : (void *)w[column];
      cpu_weight_widen(weight, micro, n + column, k, tile->groups, to);
      if (tile->w_scale != NULL) {
        cpu_weight_group_scales(weight, micro, n + column, k, tile->groups, w_scale[column]);
      }
    }
    int8 ? micro->tile_s16(tile) : micro->tile_f32(tile);
  }
}

static double sum_lanes(const float *lanes) {
  double sum[MICRO_LANES];
  for (int i = 0; i < MICRO_LANES; i++) {
    sum[i] = lanes[i];
  }
  for (int half = MICRO_LANES / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; i++) {
      sum[i] += sum[i + half];
    }
  }
  return sum[0];
}

static void finish_column(const struct tile_task *task, int begin_row, int rows, int64_t n, const void *column_sums) {
  const struct backend_job *job = task->job;
  const int32_t *exact = column_sums;
  double sums[MICRO_ROWS];
  if (job->y_type == GEMM_S32) {
    cpu_epilogue_raw(job, task->first + begin_row, rows, n, exact);
    return;
  }
  for (int row = 0; row < rows; row++) {
    sums[row] = job->weight->shape.format == GEMM_FORMAT_INT8
                    ? exact[row]
                    : sum_lanes((const float *)column_sums + row * MICRO_LANES);
  }
  cpu_epilogue_column(job, task->first + begin_row, rows, n, sums, task->engine->stage.factors + begin_row,
                      cpu_weight_scale(job->weight, n));
}

/* Rows [begin_row, end_row) of the tile for columns [begin, end) of y. */
static void compute(const struct tile_task *task, int begin_row, int end_row, int64_t begin, int64_t end) {
  _Alignas(64) float sums[MICRO_COLUMNS][MICRO_ROWS][MICRO_LANES];
  _Alignas(64) int32_t exact[MICRO_COLUMNS][MICRO_ROWS];
  bool int8 = task->job->weight->shape.format == GEMM_FORMAT_INT8;
  struct micro_tile tile = {.x_stride = task->engine->stage.k_padded,
                            .x_scale_stride = task->engine->stage.groups,
                            .rows = end_row - begin_row,
                            .sums = int8 ? (void *)exact : (void *)sums};
  for (int64_t n = begin; n < end; n += MICRO_COLUMNS) {
    tile.columns = end - n < MICRO_COLUMNS ? (int)(end - n) : MICRO_COLUMNS;
    for (int column = 0; column < tile.columns; column++) {
      memset(sums[column], 0, (size_t)tile.rows * sizeof(sums[column][0]));
      memset(exact[column], 0, (size_t)tile.rows * sizeof(exact[column][0]));
    }
    sum_columns(task, &tile, begin_row, n);
    for (int column = 0; column < tile.columns; column++) {
      finish_column(task, begin_row, tile.rows, n + column,
                    int8 ? (const void *)exact[column] : (const void *)sums[column]);
    }
  }
}

/* Columns are shared out, so that each row of W is read by one thread; rows of x where there are few columns. */
static void compute_part(void *context, int part, int parts) {
  const struct tile_task *task = context;
  int64_t n = task->job->weight->shape.n, begin, end;
  if (n >= 4 * MICRO_COLUMNS * parts || task->rows < parts) {
    share(n, MICRO_COLUMNS, part, parts, &begin, &end);
    compute(task, 0, task->rows, begin, end);
  } else {
    share(task->rows, 1, part, parts, &begin, &end);
    compute(task, (int)begin, (int)end, 0, n);
  }
}

enum status cpu_product_run(struct product_engine *engine, const struct backend_job *job, struct error *error) {
  const struct gemm_weight *shape = &job->weight->shape;
  int threads = cpu_pool_threads(engine->pool);
  enum status status = cpu_stage_prepare(&engine->stage, shape, job->m, threads, error);
  if (status != STATUS_OK) {
    return status;
  }
  for (int64_t first = 0; first < job->m; first += engine->stage.rows) {
    int64_t left = job->m - first;
    struct tile_task task = {.engine = engine, .job = job, .first = first};
    task.rows = left < engine->stage.rows ? (int)left : engine->stage.rows;
    if (shape->n * shape->k < WORTH_SHARING / task.rows) {
      stage_part(&task, 0, 1);
      compute_part(&task, 0, 1);
    } else {
      cpu_pool_run(engine->pool, stage_part, &task);
      cpu_pool_run(engine->pool, compute_part, &task);
    }
  }
  return STATUS_OK;
}
