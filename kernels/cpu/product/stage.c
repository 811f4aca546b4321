#include "stage.h"

#include "input.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* So much of x stays in the cache that the cores share while W streams past. */
#define MOST_BYTES ((uint64_t)8 << 20)
#define CACHE_LINE 64

enum micro_kind cpu_stage_kind(const struct gemm_weight *shape, const struct micro_ops *micro) {
  switch (shape->format) {
  case GEMM_FORMAT_INT8:
    return micro->tile[MICRO_WORDS][MICRO_DWORDS] != NULL ? MICRO_WORDS : MICRO_INTEGER;
  case GEMM_FORMAT_INT2A8:
  case GEMM_FORMAT_INT4A8:
    return MICRO_INTEGER;
  case GEMM_FORMAT_FP8:
  case GEMM_FORMAT_BF16:
    return micro->tile[MICRO_BF16][MICRO_DWORDS] != NULL ? MICRO_BF16 : MICRO_F32;
  default:
    return MICRO_F32;
  }
}

/* Cuts `bytes` from *used and returns where they begin. */
static uint64_t cut(uint64_t *used, uint64_t bytes) {
  uint64_t begin = *used;
  *used = gemm_round_up(begin + bytes, CACHE_LINE);
  return begin;
}

/* An odd number of cache lines: rows at a power of two would all fall into the same few sets of the cache. */
static uint64_t row_stride(uint64_t steps) {
  uint64_t lines = (steps * sizeof(uint32_t) + CACHE_LINE - 1) / CACHE_LINE;
  return (lines | 1) * CACHE_LINE / sizeof(uint32_t);
}

static const int per_step[MICRO_KINDS] = {[MICRO_INTEGER] = 4, [MICRO_WORDS] = 2, [MICRO_BF16] = 2, [MICRO_F32] = 1};

int64_t cpu_stage_room(const struct backend_weight *weight, const struct micro_ops *micro) {
  uint64_t steps = (uint64_t)weight->layout.k / (uint64_t)per_step[cpu_stage_kind(&weight->shape, micro)];
  uint64_t rows = MOST_BYTES / (row_stride(steps) * sizeof(uint32_t));
  return rows > STAGE_ROWS ? STAGE_ROWS : rows < 1 ? 1 : (int64_t)rows;
}

/* The order costs two or three instructions an element, which pay for themselves with some tiles. */
bool cpu_stage_interleaves(const struct micro_ops *micro, enum micro_kind kind, int64_t rows) {
  enum { TILES_LEAST = 4 };
  return micro->tile_interleaved[kind] != NULL && rows >= (int64_t)TILES_LEAST * micro->rows;
}

enum status cpu_stage_prepare(struct stage *stage, const struct backend_weight *weight, const struct micro_ops *micro,
                              int64_t m, int64_t rows_least, bool dense, int threads, struct error *error) {
  enum micro_kind kind = cpu_stage_kind(&weight->shape, micro);
  uint64_t k = (uint64_t)weight->layout.k, groups = gemm_ceil_div(k, (uint64_t)weight->layout.group), used = 0;
  uint64_t steps = k / (uint64_t)per_step[kind], stride = dense ? steps : row_stride(steps);
  uint64_t rows = MOST_BYTES / (stride * sizeof(uint32_t));
  rows = rows < (uint64_t)rows_least ? (uint64_t)rows_least : rows > STAGE_ROWS ? STAGE_ROWS : rows;
  rows = rows > (uint64_t)m ? (uint64_t)m : rows;
  bool starts = micro_is_integer(kind), block = weight->shape.scale == GEMM_SCALE_BLOCK;
  uint64_t values = cut(&used, rows * stride * sizeof(uint32_t));
  uint64_t starts_at = cut(&used, starts ? groups * rows * sizeof(int32_t) : 0);
  uint64_t scales_at = cut(&used, block ? groups * rows * sizeof(float) : 0);
  uint64_t factors = cut(&used, rows * sizeof(double));
  uint64_t ordinary = cut(&used, rows * sizeof(bool));
  bool in_place = kind == MICRO_F32 && !cpu_stage_interleaves(micro, kind, (int64_t)rows);
  uint64_t scratch_stride = in_place ? 0 : kind == MICRO_WORDS ? k + k / 4 : k;
  scratch_stride += (uint64_t)cpu_input_spare(&weight->shape);
  uint64_t scratch = cut(&used, (uint64_t)threads * scratch_stride * sizeof(float));
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
  stage->kind = kind;
  stage->rows = (int64_t)rows;
  stage->k = (int64_t)k;
  stage->steps = (int64_t)steps;
  stage->stride = (int64_t)stride;
  stage->tile_rows = micro->rows;
  stage->interleaved = 0;
  stage->groups = (int64_t)groups;
  stage->values = (uint32_t *)(base + values);
  stage->starts = (int32_t *)(base + starts_at);
  stage->group_scales = (float *)(base + scales_at);
  stage->factors = (double *)(base + factors);
  stage->ordinary = (bool *)(base + ordinary);
  stage->scratch = (float *)(base + scratch);
  stage->scratch_stride = (int64_t)scratch_stride;
  return STATUS_OK;
}

void cpu_stage_free(struct stage *stage) {
  free(stage->memory);
  *stage = (struct stage){0};
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

/* ---- INT8 and INT2A8 */

static double stage_codes(const struct micro_ops *micro, const struct backend_job *job, const void *x, int64_t row,
                          float *scratch, float *spare, int8_t *to) {
  int64_t k = job->weight->shape.k;
  if (job->x_type == GEMM_INT8) {
    memcpy(to, x, (size_t)k);
    return job->y_type == GEMM_S32 ? 1 : ((const float *)job->x_scale)[row];
  }
  const float *values = x;
  if (job->x_type != GEMM_F32 || job->weight->shape.input != 0) {
    cpu_input_row(job->weight, micro, job->x_type, x, spare, scratch);
    values = scratch;
  }
  float scale = cpu_input_scale(job->weight, micro->largest(values, k));
  if (scale > 0) {
    micro->quantize_int8(values, scale, to, k);
  } else {
    memset(to, 0, (size_t)k);
  }
  return scale;
}

/* The panels hold code + 128 (INT8), + 1 (INT2A8) or + a zero point (INT4A8). Modulo 2^32, like the sums. */
static void stage_starts(struct stage *stage, const struct micro_ops *micro, bool packed, const int8_t *codes,
                         int64_t place) {
  int64_t group = stage->k / stage->groups;
  if (!packed) {
    stage->starts[place] = (int32_t)((uint32_t)micro->sum_s8(codes, stage->k) * (uint32_t)-128);
    return;
  }
  for (int64_t i = 0; i < stage->groups; i++) {
    stage->starts[i * stage->rows + place] = -micro->sum_s8(codes + i * group, group);
  }
}

/* ---- FP8 */

/* Quantizes in place and returns the scale. */
static float quantize_e4m3(const struct backend_weight *weight, const struct micro_ops *micro, float *values,
                           int64_t count) {
  float scale = cpu_input_scale(weight, micro->largest(values, count));
  if (scale > 0) {
    micro->quantize_e4m3(values, scale, count);
  } else {
    memset(values, 0, (size_t)count * sizeof(*values));
  }
  return scale;
}

/* Scales of 1x128 blocks go into the sums of their groups, normalized so that those stay within f32. */
static double stage_blocks(struct stage *stage, const struct micro_ops *micro, const struct backend_job *job,
                           int64_t row, int64_t place, float *values) {
  float largest = 0, *scales = stage->group_scales + place;
  for (int64_t group = 0; group < stage->groups; group++) {
    float scale = job->x_type == GEMM_E4M3
                      ? ((const float *)job->x_scale)[row * stage->groups + group]
                      : quantize_e4m3(job->weight, micro, values + group * MICRO_GROUP, MICRO_GROUP);
    scales[group * stage->rows] = scale;
    largest = micro->largest((const float[]){largest, scale}, 2);
  }
  float by = normalizer(largest);
  for (int64_t group = 0; group < stage->groups; group++) {
    scales[group * stage->rows] *= by;
  }
  return 1 / (double)by;
}

static double stage_fp8(struct stage *stage, const struct micro_ops *micro, const struct backend_job *job, int64_t row,
                        int64_t place, float *values) {
  if (job->weight->shape.scale == GEMM_SCALE_BLOCK) {
    return stage_blocks(stage, micro, job, row, place, values);
  }
  return job->x_type == GEMM_E4M3 ? ((const float *)job->x_scale)[row]
                                  : quantize_e4m3(job->weight, micro, values, job->weight->shape.k);
}

/* ---- a row */

static double stage_real(struct stage *stage, const struct micro_ops *micro, const struct backend_job *job,
                         const void *x, int64_t row, int64_t place, float *spare, float *values) {
  const struct gemm_weight *shape = &job->weight->shape;
  cpu_input_row(job->weight, micro, job->x_type, x, spare, values);
  memset(values + shape->k, 0, (size_t)(stage->k - shape->k) * sizeof(*values));
  if (shape->format == GEMM_FORMAT_FP8) {
    return stage_fp8(stage, micro, job, row, place, values);
  }
  if (gemm_is_packed(shape->format)) {
    float by = normalizer(micro->largest(values, shape->k));
    multiply(values, shape->k, by);
    return 1 / (double)by;
  }
  return 1;
}

/* A row that is made elsewhere, between the others of its tile. */
static void interleave(const struct stage *stage, int64_t place, const uint32_t *from) {
  int rows = stage->tile_rows;
  uint32_t *to = stage->values + place / rows * rows * stage->stride + place % rows;
  for (int64_t step = 0; step < stage->steps; step++, to += rows) {
    memcpy(to, from + step, sizeof(*to));
  }
}

void cpu_stage_row(struct stage *stage, const struct micro_ops *micro, const struct backend_job *job, int64_t row,
                   int64_t place, int thread) {
  const struct gemm_weight *shape = &job->weight->shape;
  const void *x = (const uint8_t *)job->x + (uint64_t)row * job->x_stride;
  float *scratch = stage->scratch + thread * stage->scratch_stride;
  bool apart = place < stage->interleaved;
  uint32_t *to = apart ? (uint32_t *)scratch : stage->values + place * stage->stride;
  float *spare = scratch + stage->scratch_stride - cpu_input_spare(shape);
  if (micro_is_integer(stage->kind)) {
    int8_t *codes = stage->kind == MICRO_WORDS ? (int8_t *)(scratch + stage->k) : (int8_t *)to;
    stage->factors[place] = stage_codes(micro, job, x, row, scratch, spare, codes);
    memset(codes + shape->k, 0, (size_t)(stage->k - shape->k));
    stage_starts(stage, micro, gemm_is_packed(shape->format), codes, place);
    if (stage->kind == MICRO_WORDS) {
      micro->words_s8(codes, to, stage->k);
    }
  } else if (stage->kind == MICRO_F32) {
    stage->factors[place] = stage_real(stage, micro, job, x, row, place, spare, (float *)to);
  } else if (shape->format == GEMM_FORMAT_BF16) {
    memcpy(to, x, (size_t)shape->k * sizeof(uint16_t));
    memset((uint16_t *)to + shape->k, 0, (size_t)(stage->k - shape->k) * sizeof(uint16_t));
    stage->factors[place] = 1;
  } else {
    stage->factors[place] = stage_real(stage, micro, job, x, row, place, spare, scratch);
    micro->narrow_bf16(scratch, (uint16_t *)to, stage->k);
  }
  if (apart) {
    interleave(stage, place, to);
  }
  stage->ordinary[place] = cpu_weight_is_ordinary(stage->factors[place]);
}

void cpu_stage_copy(struct stage *stage, const struct gemm_weight *shape, int64_t from, int64_t place) {
  bool starts = micro_is_integer(stage->kind), scales = shape->scale == GEMM_SCALE_BLOCK;
  int64_t groups = shape->format == GEMM_FORMAT_INT8 ? 1 : stage->groups;
  memcpy(stage->values + place * stage->stride, stage->values + from * stage->stride,
         (size_t)stage->steps * sizeof(*stage->values));
  for (int64_t group = 0; (starts || scales) && group < groups; group++) {
    int64_t before = group * stage->rows;
    if (starts) {
      stage->starts[before + place] = stage->starts[before + from];
    } else {
      stage->group_scales[before + place] = stage->group_scales[before + from];
    }
  }
  stage->factors[place] = stage->factors[from];
  stage->ordinary[place] = stage->ordinary[from];
}
