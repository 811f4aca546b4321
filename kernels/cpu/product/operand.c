#include "operand.h"

#include "../../../proto/number.h"
#include "cost.h"
#include "turned.h"

#include <stdlib.h>

enum { K_AT_ONCE = 1 << 16, PACKED_AT_ONCE = 1 << 20 /* elements, between two pauses */ };

static bool make_room(void **memory, uint64_t *have, uint64_t bytes) {
  if (bytes <= *have) {
    return true;
  }
  free(*memory);
  *memory = aligned_alloc(GEMM_SECTION, gemm_round_up(bytes, GEMM_SECTION));
  *have = *memory != NULL ? bytes : 0;
  return *memory != NULL;
}

/* Rows [row, row + rows) of an operand, elements [k, k + k_count), row-major at *to, from where it lies by columns. */
static enum status turn(uint16_t **to, uint64_t *have, const struct operand_device *device, struct turned *turned,
                        struct error *error) {
  if (!make_room((void **)to, have, (uint64_t)(turned->rows * turned->k_count) * 2)) {
    return error_set(error, STATUS_NOMEM, "no memory to turn %lld rows", (long long)turned->rows);
  }
  turned->to = *to;
  return turned_run(turned, device->engine->pool, device->engine->pause, error);
}

/* A part of W: columns [n, n + weight.shape.n) of y, elements [k, k + weight.shape.k) of x. */
struct piece {
  int64_t n, k;
  struct backend_weight weight;
  const uint8_t *from; /* its first element; rows are layout.canonical.row_bytes apart */
  uint8_t *to;
  int64_t begin, end; /* panels to be packed */
};

static void pack_part(void *context, int part, int parts) {
  const struct piece *piece = context;
  const struct cpu_layout *layout = &piece->weight.layout;
  int64_t count = piece->end - piece->begin;
  for (int64_t i = piece->begin + count * part / parts; i < piece->begin + count * (part + 1) / parts; i++) {
    cpu_layout_pack(&piece->weight.shape, layout, piece->from, i,
                    piece->to + (uint64_t)i * (uint64_t)layout->width * layout->column_bytes);
  }
}

static enum status pack(struct operand *operand, const struct operand_device *device,
                        const struct backend_operand *from, struct piece *piece, struct error *error) {
  struct cpu_layout *layout = &piece->weight.layout;
  enum status status = cpu_layout_compute(&piece->weight.shape, layout, error);
  if (status != STATUS_OK) {
    return status;
  }
  if (!make_room((void **)&operand->panels, &operand->panel_bytes, layout->total_bytes)) {
    return error_set(error, STATUS_NOMEM, "no memory for %llu bytes of W", (unsigned long long)layout->total_bytes);
  }
  layout->canonical.row_bytes = from->stride;
  piece->from = (const uint8_t *)from->w + (uint64_t)piece->n * from->stride + (uint64_t)piece->k * 2;
  if (from->form.w_turned) {
    struct turned turned = {.from = from->w,
                            .stride = from->stride,
                            .row = piece->n,
                            .rows = piece->weight.shape.n,
                            .k = piece->k,
                            .k_count = piece->weight.shape.k};
    status = turn(&operand->w_turned, &operand->w_turned_bytes, device, &turned, error);
    if (status != STATUS_OK) {
      return status;
    }
    layout->canonical.row_bytes = (uint64_t)turned.k_count * 2;
    piece->from = (const uint8_t *)operand->w_turned;
  }
  piece->to = operand->panels;
  piece->weight.panels = operand->panels;
  struct cpu_pool *pool = device->engine->pool;
  int threads = cpu_pool_threads(pool);
  int64_t at_once = PACKED_AT_ONCE / (layout->width * layout->k);
  at_once = at_once > threads ? at_once : threads;
  for (piece->begin = 0; status == STATUS_OK && piece->begin < layout->panels; piece->begin = piece->end) {
    piece->end = layout->panels - piece->begin < at_once ? layout->panels : piece->begin + at_once;
    int64_t panels = piece->end - piece->begin;
    cpu_pool_run(pool, layout->k * panels < 1024 ? 1 : threads, pack_part, piece);
    status = cpu_pause_here(device->engine->pause, cost_stage_ns(panels * layout->width, layout->k), error);
  }
  cpu_weight_inspect(&piece->weight);
  return status;
}

/* The job with a part of W and of x. */
static struct backend_job job_of(const struct backend_job *job, struct piece *piece) {
  struct backend_job part = *job;
  part.operand = NULL;
  part.weight = &piece->weight;
  part.x = (const uint8_t *)job->x + (uint64_t)piece->k * gemm_type_bytes(job->x_type);
  part.y = (uint8_t *)job->y + (uint64_t)piece->n * gemm_type_bytes(job->y_type);
  if (job->bias != NULL) {
    part.bias = (const uint8_t *)job->bias + (uint64_t)piece->n * gemm_type_bytes(job->bias_type);
  }
  return part;
}

static struct piece piece_of(const struct backend_job *job, int64_t n, int64_t columns, int64_t k, int64_t k_count) {
  struct piece piece = {.n = n, .k = k, .weight.shape = job->operand->shape};
  piece.weight.shape.n = columns;
  piece.weight.shape.k = k_count;
  return piece;
}

/* Columns of W at a time: whole panels, as many as there is memory for. */
static int64_t columns_at_once(int64_t k) {
  int64_t columns = (int64_t)(OPERAND_PANEL_BYTES / 2) / (k + 4) / MICRO_WIDTH * MICRO_WIDTH;
  return columns > MICRO_WIDTH ? columns : MICRO_WIDTH;
}

/* ---- K in one go */

static enum status run_columns(struct operand *operand, const struct operand_device *device,
                               const struct backend_job *job, struct error *error) {
  const struct gemm_weight *shape = &job->operand->shape;
  int64_t most = columns_at_once(shape->k);
  enum status status = STATUS_OK;
  for (int64_t n = 0; status == STATUS_OK && n < shape->n; n += most) {
    struct piece piece = piece_of(job, n, shape->n - n < most ? shape->n - n : most, 0, shape->k);
    status = pack(operand, device, job->operand, &piece, error);
    struct backend_job part = job_of(job, &piece);
    if (status == STATUS_OK) {
      status = device->run(device->context, &part, error);
    }
  }
  return status;
}

/* ---- K in several: sums in f32, and y from them when all are there */

struct sums {
  const struct backend_job *job;
  const float *more; /* [rows][columns] */
  float *all;        /* the same */
  int64_t row, n, rows, columns;
  bool add; /* to y */
};

static void add_part(void *context, int part, int parts) {
  const struct sums *sums = context;
  int64_t count = sums->rows * sums->columns;
  for (int64_t i = count * part / parts; i < count * (part + 1) / parts; i++) {
    sums->all[i] += sums->more[i];
  }
}

static double bias_of(const struct backend_job *job, int64_t n) {
  switch (job->bias_type) {
  case GEMM_F32:
    return ((const float *)job->bias)[n];
  case GEMM_F16:
    return number_from_f16(((const uint16_t *)job->bias)[n]);
  case GEMM_BF16:
    return number_from_bf16(((const uint16_t *)job->bias)[n]);
  default:
    return 0;
  }
}

static float y_of(const struct backend_job *job, const uint8_t *y, int64_t n) {
  switch (job->y_type) {
  case GEMM_F16:
    return number_from_f16(((const uint16_t *)y)[n]);
  case GEMM_BF16:
    return number_from_bf16(((const uint16_t *)y)[n]);
  default:
    return ((const float *)y)[n];
  }
}

static void store_part(void *context, int part, int parts) {
  const struct sums *sums = context;
  const struct backend_job *job = sums->job;
  for (int64_t row = sums->rows * part / parts; row < sums->rows * (part + 1) / parts; row++) {
    uint8_t *y = (uint8_t *)job->y + (uint64_t)(sums->row + row) * job->y_stride;
    for (int64_t i = 0; i < sums->columns; i++) {
      float sum = sums->all[row * sums->columns + i];
      float value = job->bias_type != GEMM_TYPE_NONE ? (float)((double)sum + bias_of(job, sums->n + i)) : sum;
      value = sums->add ? value + y_of(job, y, sums->n + i) : value;
      if (job->y_type == GEMM_F32) {
        ((float *)y)[sums->n + i] = value;
      } else {
        ((uint16_t *)y)[sums->n + i] = job->y_type == GEMM_F16 ? number_to_f16(value) : number_to_bf16(value);
      }
    }
  }
}

/* Some rows and columns of y: the sums of one stretch of K after the other. The first go to `all` at once. */
static enum status run_block(struct operand *operand, const struct operand_device *device, struct sums *sums,
                             struct error *error) {
  const struct backend_job *job = sums->job;
  struct cpu_pool *pool = device->engine->pool;
  uint64_t half = (uint64_t)(sums->rows * sums->columns);
  sums->all = operand->sums;
  sums->more = operand->sums + half;
  int threads = half < 4096 ? 1 : cpu_pool_threads(pool);
  enum status status = STATUS_OK;
  for (int64_t k = 0; status == STATUS_OK && k < job->operand->shape.k; k += K_AT_ONCE) {
    int64_t left = job->operand->shape.k - k;
    struct piece piece = piece_of(job, sums->n, sums->columns, k, left < K_AT_ONCE ? left : K_AT_ONCE);
    status = pack(operand, device, job->operand, &piece, error);
    struct backend_job part = job_of(job, &piece);
    part.m = sums->rows;
    part.x = (const uint8_t *)part.x + (uint64_t)sums->row * job->x_stride;
    if (status == STATUS_OK && job->operand->form.x_turned) {
      struct turned turned = {.from = job->x,
                              .stride = job->x_stride,
                              .row = sums->row,
                              .rows = sums->rows,
                              .k = k,
                              .k_count = piece.weight.shape.k};
      status = turn(&operand->x_turned, &operand->x_turned_bytes, device, &turned, error);
      part.x = operand->x_turned;
      part.x_stride = (uint64_t)turned.k_count * 2;
    }
    part.y = operand->sums + (k == 0 ? 0 : half);
    part.y_stride = (uint64_t)sums->columns * sizeof(float);
    part.y_type = GEMM_F32;
    part.bias = NULL;
    part.bias_type = GEMM_TYPE_NONE;
    if (status == STATUS_OK) {
      status = device->run(device->context, &part, error);
    }
    if (status == STATUS_OK && k > 0) {
      cpu_pool_run(pool, threads, add_part, sums);
    }
  }
  if (status == STATUS_OK) {
    cpu_pool_run(pool, threads, store_part, sums);
  }
  return status;
}

static enum status run_blocks(struct operand *operand, const struct operand_device *device,
                              const struct backend_job *job, struct error *error) {
  int64_t n = job->operand->shape.n, columns = columns_at_once(K_AT_ONCE);
  columns = columns < n ? columns : n;
  int64_t room = (int64_t)(OPERAND_SUM_BYTES / (2 * sizeof(float))) / columns, rows = job->m < room ? job->m : room;
  int64_t k = job->operand->shape.k, stretch = k < K_AT_ONCE ? k : K_AT_ONCE;
  int64_t turned = (int64_t)(OPERAND_PANEL_BYTES / 2 / sizeof(uint16_t)) / stretch;
  if (job->operand->form.x_turned && rows > turned) {
    rows = turned > 1 ? turned : 1;
  }
  if (!make_room((void **)&operand->sums, &operand->sum_bytes, 2 * (uint64_t)(rows * columns) * sizeof(float))) {
    return error_set(error, STATUS_NOMEM, "no memory for sums of %lld rows", (long long)rows);
  }
  enum status status = STATUS_OK;
  for (int64_t row = 0; status == STATUS_OK && row < job->m; row += rows) {
    for (int64_t first = 0; status == STATUS_OK && first < n; first += columns) {
      struct sums sums = {.job = job, .row = row, .n = first, .add = job->operand->form.add};
      sums.rows = job->m - row < rows ? job->m - row : rows;
      sums.columns = n - first < columns ? n - first : columns;
      status = run_block(operand, device, &sums, error);
    }
  }
  return status;
}

/* One of the batch. */
static enum status run_one(struct operand *operand, const struct operand_device *device, const struct backend_job *job,
                           struct error *error) {
  const struct tensors_form *form = &job->operand->form;
  bool plain = !form->x_turned && !form->w_turned && !form->add;
  return plain && job->operand->shape.k <= K_AT_ONCE ? run_columns(operand, device, job, error)
                                                     : run_blocks(operand, device, job, error);
}

enum status cpu_operand_run(struct operand *operand, const struct operand_device *device, const struct backend_job *job,
                            struct error *error) {
  const struct backend_operand *all = job->operand;
  enum status status = STATUS_OK;
  if (!gemm_is_wide(all->shape.format)) {
    return error_field(error, STATUS_UNSUPPORTED, FIELD_FORMAT, all->shape.format, 1, 0);
  }
  int64_t batch = all->form.batch > 1 ? all->form.batch : 1;
  for (int64_t i = 0; status == STATUS_OK && i < batch; i++) {
    struct backend_operand one = *all;
    struct backend_job part = *job;
    one.w = (const uint8_t *)all->w + (uint64_t)i * all->form.w_step;
    part.operand = &one;
    part.x = (const uint8_t *)job->x + (uint64_t)i * all->form.x_step;
    part.y = (uint8_t *)job->y + (uint64_t)i * all->form.y_step;
    status = run_one(operand, device, &part, error);
  }
  return status;
}

void cpu_operand_free(struct operand *operand) {
  free(operand->panels);
  free(operand->sums);
  free(operand->x_turned);
  free(operand->w_turned);
  *operand = (struct operand){0};
}
