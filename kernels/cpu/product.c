#include "product.h"

#include "epilogue.h"

#include <string.h>

/* Multiply-adds below which waking other threads costs more than it saves. */
#define WORTH_SHARING ((int64_t)1 << 16)

struct tile_task {
  struct product_engine *engine;
  const struct product_way *way;
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
  if (part >= task->way->threads) {
    return;
  }
  parts = parts < task->way->threads ? parts : task->way->threads;
  share(task->rows, 1, part, parts, &begin, &end);
  for (int64_t i = begin; i < end; i++) {
    cpu_stage_row(&task->engine->stage, task->way->micro, task->job, task->first + i, (int)i, part);
  }
}

/* Sums of `columns` rows of W with the rows of x that `tile` names, over all of K. */
static void sum_columns(const struct tile_task *task, struct micro_tile tile, int begin_row, int64_t n) {
  const struct stage *stage = &task->engine->stage;
  const struct micro_ops *micro = task->way->micro;
  const struct backend_weight *weight = task->job->weight;
  bool int8 = weight->shape.format == GEMM_FORMAT_INT8;
  _Alignas(64) union {
    float f32[MICRO_COLUMNS][MICRO_CHUNK];
    int16_t s16[MICRO_COLUMNS][MICRO_CHUNK];
  } w;
  float w_scale[MICRO_COLUMNS][MICRO_GROUPS];
  tile.w = &w;
  tile.w_scale = cpu_weight_has_group_scales(weight) ? &w_scale[0][0] : NULL;
  for (int64_t k = 0; k < stage->k_padded; k += MICRO_CHUNK) {
    int64_t place = begin_row * stage->k_padded + k, left = stage->k_padded - k;
    tile.groups = (int)((left < MICRO_CHUNK ? left : MICRO_CHUNK) / MICRO_GROUP);
    tile.x = int8 ? (const void *)((int16_t *)stage->values + place) : (const void *)((float *)stage->values + place);
    tile.x_scale = weight->shape.scale == GEMM_SCALE_BLOCK
                       ? stage->group_scales + begin_row * stage->groups + k / MICRO_GROUP
                       : NULL;
    for (int column = 0; column < tile.columns; column++) {
      void *to = int8 ? (void *)w.s16[column] : (void *)w.f32[column];
      cpu_weight_widen(weight, micro, n + column, k, tile.groups, to);
      if (tile.w_scale != NULL) {
        cpu_weight_group_scales(weight, micro, n + column, k, tile.groups, w_scale[column]);
      }
    }
    int8 ? micro->tile_s16(&tile) : micro->tile_f32(&tile);
  }
}

static double sum_f32(const float *lanes) {
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

static int32_t sum_s32(const int32_t *lanes) {
  int32_t sum = 0;
  for (int i = 0; i < MICRO_LANES; i++) {
    sum += lanes[i];
  }
  return sum;
}

static void finish_f32(const struct tile_task *task, int begin_row, int rows, int64_t n,
                       const float (*lanes)[MICRO_LANES]) {
  double sums[MICRO_ROWS];
  for (int row = 0; row < rows; row++) {
    sums[row] = sum_f32(lanes[row]);
  }
  cpu_epilogue_column(task->job, task->first + begin_row, rows, n, sums, task->engine->stage.factors + begin_row,
                      cpu_weight_scale(task->job->weight, n));
}

static void finish_s32(const struct tile_task *task, int begin_row, int rows, int64_t n,
                       const int32_t (*lanes)[MICRO_LANES]) {
  int32_t exact[MICRO_ROWS];
  double sums[MICRO_ROWS];
  for (int row = 0; row < rows; row++) {
    exact[row] = sum_s32(lanes[row]);
    sums[row] = exact[row];
  }
  if (task->job->y_type == GEMM_S32) {
    cpu_epilogue_raw(task->job, task->first + begin_row, rows, n, exact);
  } else {
    cpu_epilogue_column(task->job, task->first + begin_row, rows, n, sums, task->engine->stage.factors + begin_row,
                        cpu_weight_scale(task->job->weight, n));
  }
}

/* Rows [begin_row, end_row) of the tile for columns [begin, end) of y. */
static void compute(const struct tile_task *task, int begin_row, int end_row, int64_t begin, int64_t end) {
  _Alignas(64) union {
    float f32[MICRO_COLUMNS][MICRO_ROWS][MICRO_LANES];
    int32_t s32[MICRO_COLUMNS][MICRO_ROWS][MICRO_LANES];
  } sums;
  bool int8 = task->job->weight->shape.format == GEMM_FORMAT_INT8;
  struct micro_tile tile = {.x_stride = task->engine->stage.k_padded,
                            .x_scale_stride = task->engine->stage.groups,
                            .rows = end_row - begin_row,
                            .sums = &sums};
  for (int64_t n = begin; n < end; n += MICRO_COLUMNS) {
    tile.columns = end - n < MICRO_COLUMNS ? (int)(end - n) : MICRO_COLUMNS;
    for (int column = 0; column < tile.columns; column++) {
      memset(sums.f32[column], 0, (size_t)tile.rows * sizeof(sums.f32[column][0]));
    }
    sum_columns(task, tile, begin_row, n);
    for (int column = 0; column < tile.columns; column++) {
      if (int8) {
        finish_s32(task, begin_row, tile.rows, n + column, (const int32_t(*)[MICRO_LANES])sums.s32[column]);
      } else {
        finish_f32(task, begin_row, tile.rows, n + column, (const float(*)[MICRO_LANES])sums.f32[column]);
      }
    }
  }
}

/* Columns are shared out, so that each row of W is read by one thread; rows of x where there are few columns. */
static void compute_part(void *context, int part, int parts) {
  const struct tile_task *task = context;
  int64_t n = task->job->weight->shape.n, begin, end;
  if (part >= task->way->threads) {
    return;
  }
  parts = parts < task->way->threads ? parts : task->way->threads;
  bool many = n >= MICRO_COLUMNS * parts;
  if (many || task->rows < parts) {
    share(n, many ? MICRO_COLUMNS : 1, part, parts, &begin, &end);
    compute(task, 0, task->rows, begin, end);
  } else {
    share(task->rows, 1, part, parts, &begin, &end);
    compute(task, (int)begin, (int)end, 0, n);
  }
}

struct product_way cpu_product_way(const struct product_engine *engine, const struct gemm_weight *shape, int64_t m) {
  int64_t rows = m < MICRO_ROWS ? m : MICRO_ROWS;
  bool alone = shape->n * shape->k < WORTH_SHARING / rows;
  return (struct product_way){
      .micro = engine->micro, .threads = alone ? 1 : cpu_pool_threads(engine->pool), .rows = MICRO_ROWS};
}

enum status cpu_product_run(struct product_engine *engine, const struct product_way *way, const struct backend_job *job,
                            struct error *error) {
  int64_t most = job->m < way->rows ? job->m : way->rows;
  enum status status =
      cpu_stage_prepare(&engine->stage, &job->weight->shape, most, cpu_pool_threads(engine->pool), error);
  if (status != STATUS_OK) {
    return status;
  }
  for (int64_t first = 0; first < job->m; first += engine->stage.rows) {
    int64_t left = job->m - first;
    struct tile_task task = {.engine = engine, .way = way, .job = job, .first = first};
    task.rows = left < engine->stage.rows ? (int)left : engine->stage.rows;
    if (way->threads == 1) {
      stage_part(&task, 0, 1);
      compute_part(&task, 0, 1);
    } else {
      cpu_pool_run(engine->pool, stage_part, &task);
      cpu_pool_run(engine->pool, compute_part, &task);
    }
  }
  return STATUS_OK;
}
