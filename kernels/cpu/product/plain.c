#include "plain.h"

#include "../../../proto/number.h"
#include "../../../proto/rotate.h"
#include "../weight/weight.h"
#include "input.h"

#include <math.h>
#include <stdlib.h>

/* Multiply-adds between two pauses. */
#define PIECE_TERMS ((int64_t)1 << 19)
#define COST_PLAIN_NS 3 /* one of them */

/* One row of x as the product sees it: values as they are multiplied, and a scale for each group of K. */
struct row {
  float *turned;           /* [k]; of weights that rotate x */
  double *values, *scales; /* [k], [groups] */
  double factor;           /* of the whole sum */
};

struct plain_task {
  const struct backend_job *job;
  const struct row *row;
  int64_t m;            /* the row's place */
  int64_t first, count; /* columns of y */
};

static double element(const void *data, int64_t i, enum gemm_type type) {
  switch (type) {
  case GEMM_F16:
    return number_from_f16(((const uint16_t *)data)[i]);
  case GEMM_BF16:
    return number_from_bf16(((const uint16_t *)data)[i]);
  case GEMM_INT8:
    return ((const int8_t *)data)[i];
  case GEMM_E4M3:
    return number_from_e4m3(((const uint8_t *)data)[i]);
  default:
    return ((const float *)data)[i];
  }
}

/* Codes of values[0 .. count), and their scale. */
static double quantize(const struct backend_weight *weight, double *values, int64_t count) {
  bool int8 = weight->shape.format != GEMM_FORMAT_FP8;
  float largest = 0;
  for (int64_t i = 0; i < count; i++)
    largest = isnan(largest) || fabs(values[i]) <= largest ? largest : (float)fabs(values[i]);
  float scale = cpu_input_scale(weight, largest);
  for (int64_t i = 0; i < count; i++)
    values[i] = int8 ? number_quantize_int8((float)values[i], scale)
                     : number_from_e4m3(number_quantize_e4m3((float)values[i], scale));
  return scale;
}

/* Of element i of x as the weight reads it; see reorder in input.c. */
static int64_t place_of(const struct backend_weight *weight, int64_t i) {
  int64_t at = weight->order != NULL ? weight->order[i] : i;
  return at < weight->shape.k ? at : 0;
}

static void turn(struct row *row, int64_t k, uint32_t stages) {
  for (int64_t i = 0; i < k; i++)
    row->turned[i] = (float)row->values[i];
  rotate_groups(row->turned, k, stages);
  for (int64_t i = 0; i < k; i++)
    row->values[i] = (double)row->turned[i];
}

static void read_row(const struct backend_job *job, int64_t m, struct row *row) {
  const struct gemm_weight *shape = &job->weight->shape;
  const void *x = (const uint8_t *)job->x + (uint64_t)m * job->x_stride;
  int64_t k = shape->k, groups = (k + GEMM_GROUP - 1) / GEMM_GROUP;
  bool coded = job->x_type == GEMM_INT8 || job->x_type == GEMM_E4M3;
  bool block = shape->scale == GEMM_SCALE_BLOCK;
  const float *given = job->y_type == GEMM_S32 ? NULL : job->x_scale;
  for (int64_t i = 0; i < k; i++)
    row->values[i] = element(x, place_of(job->weight, i), job->x_type);
  if (row->turned != NULL)
    turn(row, k, gemm_rotation(shape->input));
  row->factor = 1;
  for (int64_t group = 0; group < groups; group++)
    row->scales[group] = block && given != NULL ? given[m * groups + group] : 1;
  if (block && !coded) {
    for (int64_t first = 0; first < k; first += GEMM_GROUP)
      row->scales[first / GEMM_GROUP] =
          quantize(job->weight, row->values + first, k - first < GEMM_GROUP ? k - first : GEMM_GROUP);
  } else if (!block && gemm_quantizes_x(shape->format)) {
    row->factor = !coded ? quantize(job->weight, row->values, k) : given != NULL ? given[m] : 1;
  }
}

static double sum_column(const struct backend_weight *weight, const struct row *row, int64_t n) {
  bool grouped = gemm_is_packed(weight->shape.format) || weight->shape.scale == GEMM_SCALE_BLOCK;
  int64_t group = weight->layout.group;
  double sum = 0;
  for (int64_t first = 0; first < weight->shape.k; first += group) {
    int64_t left = weight->shape.k - first;
    double part = 0;
    for (int64_t i = first; i < first + (left < group ? left : group); i++)
      part += row->values[i] * cpu_weight_code(weight, n, i);
    sum += part * row->scales[first / GEMM_GROUP] * (grouped ? cpu_weight_scale(weight, n, first) : 1);
  }
  return sum;
}

static double column_scale(const struct backend_weight *weight, int64_t n) {
  return cpu_weight_scales(weight, n / weight->layout.width)[n % weight->layout.width];
}

static void store(const struct backend_job *job, int64_t m, int64_t n, double value) {
  uint8_t *row = (uint8_t *)job->y + (uint64_t)m * job->y_stride;
  switch (job->y_type) {
  case GEMM_S32:
    ((int32_t *)row)[n] = (int32_t)value; /* f64 holds every s32 */
    break;
  case GEMM_F16:
    ((uint16_t *)row)[n] = number_to_f16((float)value);
    break;
  case GEMM_BF16:
    ((uint16_t *)row)[n] = number_to_bf16((float)value);
    break;
  default:
    ((float *)row)[n] = (float)value;
  }
}

static void columns_part(void *context, int part, int parts) {
  const struct plain_task *task = context;
  const struct backend_weight *weight = task->job->weight;
  int64_t begin = task->first + task->count * part / parts, end = task->first + task->count * (part + 1) / parts;
  for (int64_t n = begin; n < end; n++) {
    double sum = sum_column(weight, task->row, n);
    double bias = task->job->bias_type != GEMM_TYPE_NONE ? element(task->job->bias, n, task->job->bias_type) : 0;
    bool raw = task->job->y_type == GEMM_S32;
    store(task->job, task->m, n, raw ? sum : sum * (task->row->factor * column_scale(weight, n)) + bias);
  }
}

enum status cpu_plain_run(struct cpu_pool *pool, int threads, struct cpu_pause *pause, const struct backend_job *job,
                          int64_t first, int64_t count, struct error *error) {
  int64_t k = job->weight->shape.k, groups = (k + GEMM_GROUP - 1) / GEMM_GROUP;
  int64_t at_once = pause == NULL ? count : PIECE_TERMS / k > threads ? PIECE_TERMS / k : threads;
  bool turns = gemm_rotation(job->weight->shape.input) > 0;
  struct row row = {.values = malloc((size_t)(k + groups) * sizeof(double) + (turns ? (size_t)k * sizeof(float) : 0))};
  if (row.values == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for a row of x");
  row.scales = row.values + k;
  row.turned = turns ? (float *)(row.scales + groups) : NULL;
  enum status status = STATUS_OK;
  for (int64_t m = 0; status == STATUS_OK && m < job->m; m++) {
    read_row(job, m, &row);
    for (int64_t done = 0; status == STATUS_OK && done < count; done += at_once) {
      struct plain_task task = {.job = job, .row = &row, .m = m, .first = first + done};
      task.count = count - done < at_once ? count - done : at_once;
      cpu_pool_run(pool, threads, columns_part, &task);
      status = cpu_pause_here(pause, (uint64_t)(task.count * k) * COST_PLAIN_NS, error);
    }
  }
  free(row.values);
  return status;
}
