#include "stage.h"

#include "../../proto/number.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A tile of x this large stays in the cache that the cores share while W streams past. */
#define TILE_BYTES ((uint64_t)4 << 20)
#define CACHE_LINE 64

/* Cuts `bytes` from *used and returns where they begin. */
static uint64_t cut(uint64_t *used, uint64_t bytes) {
  uint64_t begin = *used;
  *used = gemm_round_up(begin + bytes, CACHE_LINE);
  return begin;
}

enum status cpu_stage_prepare(struct stage *stage, const struct gemm_weight *shape, int64_t m, int threads,
                              struct error *error) {
  uint64_t k = gemm_round_up((uint64_t)shape->k, MICRO_GROUP), row_bytes = k * sizeof(float), used = 0;
  uint64_t rows = TILE_BYTES / row_bytes;
  rows = rows < 1 ? 1 : rows > MICRO_ROWS ? MICRO_ROWS : rows;
  rows = rows > (uint64_t)m ? (uint64_t)m : rows;
  uint64_t values = cut(&used, rows * row_bytes);
  uint64_t group_scales = cut(&used, rows * (k / MICRO_GROUP) * sizeof(float));
  uint64_t factors = cut(&used, rows * sizeof(double));
  uint64_t scratch =
      cut(&used,
          shape->format == GEMM_FORMAT_INT8 || shape->format == GEMM_FORMAT_INT2A8 ? (uint64_t)threads * row_bytes : 0);
  if (used > stage->memory_bytes) {
    void *memory = aligned_alloc(CACHE_LINE, used);
    if (memory == NULL) {
      return error_set(error, STATUS_NOMEM, "no memory for %" PRIu64 " bytes of x", used);
    }
    free(stage->memory);
    stage->memory = memory;
    stage->memory_bytes = used;
  }
  uint8_t *base = stage->memory;
  stage->rows = (int)rows;
  stage->k_padded = (int64_t)k;
  stage->groups = (int64_t)(k / MICRO_GROUP);
  stage->values = base + values;
  stage->group_scales = (float *)(base + group_scales);
  stage->factors = (double *)(base + factors);
  stage->scratch = (float *)(base + scratch);
  return STATUS_OK;
}

void cpu_stage_free(struct stage *stage) {
  free(stage->memory);
  *stage = (struct stage){0};
}

static void widen(const struct micro_ops *micro, enum gemm_type type, const void *from, float *to, int64_t count) {
  switch (type) {
  case GEMM_F16:
    micro->widen_f16(from, to, count);
    break;
  case GEMM_BF16:
    micro->widen_bf16(from, to, count);
    break;
  case GEMM_E4M3:
    micro->widen_e4m3(from, to, count);
    break;
  default:
    memcpy(to, from, (size_t)count * sizeof(float));
  }
}

/* A power of two that brings values of this magnitude to where neither a sum of 2^24 products with 2 and an f16
 * scale overflows nor a product with the smallest f16 scale is lost. 1 for what is not finite. */
static float normalizer(float magnitude) {
  return magnitude < 0x1p-60f ? 0x1p64f : magnitude > 0x1p60f && magnitude <= 0x1.fffffep127f ? 0x1p-64f : 1;
}

static void multiply(float *values, int64_t count, float by) {
  for (int64_t i = 0; i < count && by != 1; i++) {
    values[i] *= by;
  }
}

/* INT8 codes of a row, and its scale. `scratch` has room for k. */
static double stage_codes(const struct micro_ops *micro, const struct backend_job *job, const void *x, int64_t row,
                          float *scratch, int16_t *to) {
  int64_t k = job->weight->shape.k;
  if (job->x_type == GEMM_INT8) {
    micro->widen_int8(x, to, k);
    return job->y_type == GEMM_S32 ? 1 : ((const float *)job->x_scale)[row];
  }
  widen(micro, job->x_type, x, scratch, k);
  float scale = number_scale_int8(micro->largest(scratch, k));
  if (scale > 0) {
    micro->quantize_int8(scratch, scale, to, k);
  } else {
    memset(to, 0, (size_t)k * sizeof(*to));
  }
  return scale;
}

static double stage_int8(const struct stage *stage, const struct micro_ops *micro, const struct backend_job *job,
                         const void *x, int64_t row, int16_t *to, float *scratch) {
  int64_t k = job->weight->shape.k;
  memset(to + k, 0, (size_t)(stage->k_padded - k) * sizeof(*to));
  return stage_codes(micro, job, x, row, scratch, to);
}

/* Quantizes in place and returns the scale. */
static float quantize_e4m3(const struct micro_ops *micro, float *values, int64_t count) {
  float scale = number_scale_e4m3(micro->largest(values, count));
  if (scale > 0) {
    micro->quantize_e4m3(values, scale, count);
  } else {
    memset(values, 0, (size_t)count * sizeof(*values));
  }
  return scale;
}

/* Scales of 1x128 blocks go into the sums of their groups, normalized so that those stay within f32. */
static double stage_fp8_blocks(struct stage *stage, const struct micro_ops *micro, const struct backend_job *job,
                               int64_t row, float *values, float *scales) {
  if (job->x_type == GEMM_E4M3) {
    memcpy(scales, (const float *)job->x_scale + row * stage->groups, (size_t)stage->groups * sizeof(*scales));
  } else {
    for (int64_t group = 0; group < stage->groups; group++) {
      scales[group] = quantize_e4m3(micro, values + group * MICRO_GROUP, MICRO_GROUP);
    }
  }
  float by = normalizer(micro->largest(scales, stage->groups));
  multiply(scales, stage->groups, by);
  return 1 / (double)by;
}

static double stage_fp8(const struct micro_ops *micro, const struct backend_job *job, int64_t row, float *values) {
  return job->x_type == GEMM_E4M3 ? ((const float *)job->x_scale)[row]
                                  : quantize_e4m3(micro, values, job->weight->shape.k);
}

/* To the order of widen_int2. */
static void order_int2(const struct stage *stage, float *values) {
  float group[MICRO_GROUP];
  for (int64_t first = 0; first < stage->k_padded; first += MICRO_GROUP) {
    memcpy(group, values + first, sizeof(group));
    for (int i = 0; i < MICRO_GROUP; i++) {
      values[first + i % 4 * 32 + i / 4] = group[i];
    }
  }
}

static double stage_int2(const struct stage *stage, const struct micro_ops *micro, float *values) {
  float by = normalizer(micro->largest(values, stage->k_padded));
  multiply(values, stage->k_padded, by);
  order_int2(stage, values);
  return 1 / (double)by;
}

/* f32 holds the sum of a group of integers exactly. */
static double stage_int2a8(const struct stage *stage, const struct micro_ops *micro, const struct backend_job *job,
                           const void *x, int64_t row, float *values, int16_t *codes) {
  int64_t k = job->weight->shape.k;
  double scale = stage_codes(micro, job, x, row, values, codes);
  for (int64_t i = 0; i < k; i++) {
    values[i] = codes[i];
  }
  memset(values + k, 0, (size_t)(stage->k_padded - k) * sizeof(*values));
  order_int2(stage, values);
  return scale;
}

void cpu_stage_row(struct stage *stage, const struct micro_ops *micro, const struct backend_job *job, int64_t row,
                   int place, int thread) {
  const struct gemm_weight *shape = &job->weight->shape;
  const void *x = (const uint8_t *)job->x + (uint64_t)row * job->x_stride;
  if (shape->format == GEMM_FORMAT_INT8) {
    stage->factors[place] = stage_int8(stage, micro, job, x, row, (int16_t *)stage->values + place * stage->k_padded,
                                       stage->scratch + thread * stage->k_padded);
    return;
  }
  float *values = (float *)stage->values + place * stage->k_padded;
  if (shape->format == GEMM_FORMAT_INT2A8) {
    int16_t *codes = (int16_t *)(stage->scratch + thread * stage->k_padded);
    stage->factors[place] = stage_int2a8(stage, micro, job, x, row, values, codes);
    return;
  }
  widen(micro, job->x_type, x, values, shape->k);
  memset(values + shape->k, 0, (size_t)(stage->k_padded - shape->k) * sizeof(*values));
  if (shape->scale == GEMM_SCALE_BLOCK) {
    stage->factors[place] =
        stage_fp8_blocks(stage, micro, job, row, values, stage->group_scales + place * stage->groups);
  } else if (shape->format == GEMM_FORMAT_FP8) {
    stage->factors[place] = stage_fp8(micro, job, row, values);
  } else {
    stage->factors[place] = shape->format == GEMM_FORMAT_INT2 ? stage_int2(stage, micro, values) : 1;
  }
}
