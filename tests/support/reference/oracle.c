#include "oracle.h"

#include "proto/number.h"
#include "proto/rotate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Instrumented, the reference would take most of a sanitizer run; its bounds are those of the loops around it. */
#define PLAIN __attribute__((no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined")))

const struct oracle_kind oracle_kinds[] = {
    {GEMM_FORMAT_INT8, GEMM_SCALE_ONE},
    {GEMM_FORMAT_INT8, GEMM_SCALE_ROW},
    {GEMM_FORMAT_FP8, GEMM_SCALE_ONE},
    {GEMM_FORMAT_FP8, GEMM_SCALE_ROW},
    {GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK},
    {GEMM_FORMAT_INT2, GEMM_SCALE_ROW},
    {GEMM_FORMAT_INT2, GEMM_SCALE_GROUP},
    {GEMM_FORMAT_F16, GEMM_SCALE_NONE},
    {GEMM_FORMAT_BF16, GEMM_SCALE_NONE},
    {GEMM_FORMAT_INT2A8, GEMM_SCALE_ROW},
    {GEMM_FORMAT_INT2A8, GEMM_SCALE_GROUP},
    {GEMM_FORMAT_INT4, GEMM_SCALE_GROUP64},
    {GEMM_FORMAT_INT4, GEMM_SCALE_GROUP_BF16_ZEROS},
    {GEMM_FORMAT_INT4A8, GEMM_SCALE_GROUP32},
    {GEMM_FORMAT_INT4A8, GEMM_SCALE_ROW_ZEROS},
    {GEMM_FORMAT_INT4, GEMM_SCALE_GROUP32_ZEROS_F16},
    {GEMM_FORMAT_INT4A8, GEMM_SCALE_GROUP_BF16_ZEROS_F16},
    {GEMM_FORMAT_MXFP4, GEMM_SCALE_GROUP32},
    {GEMM_FORMAT_NVFP4, GEMM_SCALE_GROUP16_FACTORS},
};
const int oracle_kinds_count = sizeof oracle_kinds / sizeof *oracle_kinds;

static void *allocate(uint64_t bytes) {
  void *memory = calloc(1, bytes ? bytes : 1);
  if (memory == NULL) {
    fprintf(stderr, "oracle: out of memory for %llu bytes\n", (unsigned long long)bytes);
    exit(1);
  }
  return memory;
}

uint64_t oracle_random(uint64_t *state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double oracle_uniform(uint64_t *state) {
  return (double)(int64_t)oracle_random(state) * 0x1p-63;
}

/* Sum of twelve uniforms of 10 bits each: near enough to normal, and cheap. */
double oracle_normal(uint64_t *state) {
  uint64_t a = oracle_random(state), b = oracle_random(state);
  int64_t sum = 0;
  for (int i = 0; i < 6; i++) {
    sum += (int64_t)(a >> (10 * i) & 1023) + (int64_t)(b >> (10 * i) & 1023);
  }
  return ((double)sum - 6.0 * 1023) / 1024;
}

double oracle_element(const void *data, int64_t index, enum gemm_type type) {
  switch (type) {
  case GEMM_F32:
    return ((const float *)data)[index];
  case GEMM_F16:
    return number_from_f16(((const uint16_t *)data)[index]);
  case GEMM_BF16:
    return number_from_bf16(((const uint16_t *)data)[index]);
  case GEMM_INT8:
    return ((const int8_t *)data)[index];
  case GEMM_E4M3:
    return number_from_e4m3(((const uint8_t *)data)[index]);
  case GEMM_E8M0:
    return number_from_e8m0(((const uint8_t *)data)[index]);
  case GEMM_S32:
    return ((const int32_t *)data)[index];
  default:
    return NAN;
  }
}

static void element_set(void *data, int64_t index, enum gemm_type type, float value) {
  switch (type) {
  case GEMM_F32:
    ((float *)data)[index] = value;
    break;
  case GEMM_F16:
    ((uint16_t *)data)[index] = number_to_f16(value);
    break;
  case GEMM_BF16:
    ((uint16_t *)data)[index] = number_to_bf16(value);
    break;
  case GEMM_E4M3:
    ((uint8_t *)data)[index] = number_to_e4m3(value);
    break;
  case GEMM_E8M0:
    ((uint8_t *)data)[index] = number_to_e8m0(value);
    break;
  case GEMM_INT8:
    ((int8_t *)data)[index] = (int8_t)value;
    break;
  default:
    break;
  }
}

/* ---- weights */

static enum gemm_type code_type(enum gemm_format format) {
  switch (format) {
  case GEMM_FORMAT_INT8:
    return GEMM_INT8;
  case GEMM_FORMAT_FP8:
    return GEMM_E4M3;
  case GEMM_FORMAT_F16:
    return GEMM_F16;
  default:
    return GEMM_BF16;
  }
}

static bool is_e2m1(enum gemm_format format) {
  return gemm_format_facts(format)->element == GEMM_E2M1;
}

static int code_mask(enum gemm_format format) {
  return (1 << gemm_format_facts(format)->bits) - 1;
}

static uint64_t scale_index(const struct oracle_weight *weight, int64_t n, int64_t k) {
  const struct gemm_scale_facts *facts = gemm_scale_facts(weight->shape.scale);
  int64_t row = facts->n > 0 ? n / facts->n : 0, column = facts->k > 0 ? k / facts->k : 0;
  return (uint64_t)row * weight->layout.scale_columns + (uint64_t)column;
}

/* Of codes below 8 bits: which one stands for 0. */
static float zero_of(const struct oracle_weight *weight, int64_t n, int64_t k) {
  int middle = gemm_format_facts(weight->shape.format)->padding & code_mask(weight->shape.format);
  const uint8_t *zeros = weight->canonical + weight->layout.zeros_offset;
  return weight->layout.zeros_bytes > 0 ? gemm_zero_get(weight->shape.scale, zeros, scale_index(weight, n, k))
                                        : (float)middle;
}

static void zeros_set(struct oracle_weight *weight, float (*zero)(uint64_t i)) {
  for (uint64_t i = 0; weight->layout.zeros_bytes > 0 && i < weight->layout.scale_count; i++) {
    gemm_zero_put(weight->shape.scale, weight->canonical + weight->layout.zeros_offset, i, zero(i));
  }
}

static float integer_zero(uint64_t i) {
  return (float)(i % 5 == 0 ? 8 : i * 7 % 16);
}

/* Between codes, codes, and beyond them. */
static float real_zero(uint64_t i) {
  return i % 11 == 0 ? 21.375f : i % 7 == 0 ? -3.40625f : i % 5 == 0 ? 8 : (float)(i * 37 % 256) / 17;
}

static float middle_zero(uint64_t i) {
  return 8;
}

/* So that scales of e4m3 keep their bits where `unit` is small. */
static float factor(uint64_t row) {
  return row % 3 == 0 ? 0x1.8p-7f : 0x1.2345p-7f;
}

static void weight_start(struct oracle_weight *out, const struct gemm_weight *shape) {
  struct error error;
  out->shape = *shape;
  if (gemm_layout_compute(shape, &out->layout, &error) != STATUS_OK) {
    fprintf(stderr, "oracle: %s\n", error.text);
    exit(1);
  }
  out->canonical = allocate(out->layout.total_bytes);
  out->values = allocate((uint64_t)(shape->n * shape->k) * sizeof(double));
  memset(out->canonical, gemm_format_facts(shape->format)->padding, out->layout.codes_bytes);
  zeros_set(out, gemm_scale_facts(shape->scale)->zeros_f16 ? real_zero : integer_zero);
  for (uint64_t i = 0; i < out->layout.factors_bytes / sizeof(float); i++) {
    element_set(out->canonical + out->layout.factors_offset, (int64_t)i, GEMM_F32, factor(i));
  }
}

static void code_set(struct oracle_weight *weight, int64_t n, int64_t k, float value) {
  uint8_t *row = weight->canonical + (uint64_t)n * weight->layout.row_bytes;
  if (!gemm_is_packed(weight->shape.format)) {
    element_set(row, k, code_type(weight->shape.format), value);
    return;
  }
  int bits = gemm_format_facts(weight->shape.format)->bits, mask = code_mask(weight->shape.format);
  int shift = (int)(k * bits % 8), code = (int)lrintf(truncf(value) + zero_of(weight, n, k));
  code = is_e2m1(weight->shape.format) ? number_to_e2m1(value) : code < 0 ? 0 : code > mask ? mask : code;
  row[k * bits / 8] = (uint8_t)((row[k * bits / 8] & ~(mask << shift)) | code << shift);
}

static double code_get(const struct oracle_weight *weight, int64_t n, int64_t k) {
  const uint8_t *row = weight->canonical + (uint64_t)n * weight->layout.row_bytes;
  if (!gemm_is_packed(weight->shape.format)) {
    return oracle_element(row, k, code_type(weight->shape.format));
  }
  int bits = gemm_format_facts(weight->shape.format)->bits;
  int code = row[k * bits / 8] >> (k * bits % 8) & code_mask(weight->shape.format);
  return is_e2m1(weight->shape.format) ? number_from_e2m1((uint8_t)code) : code - zero_of(weight, n, k);
}

static void scale_set(struct oracle_weight *weight, uint64_t index, float value) {
  element_set(weight->canonical + weight->layout.scales_offset, (int64_t)index, gemm_scale_type(&weight->shape), value);
}

static double factor_of(const struct oracle_weight *weight, int64_t n) {
  return weight->layout.factors_bytes > 0
             ? oracle_element(weight->canonical + weight->layout.factors_offset, n, GEMM_F32)
             : 1;
}

static double scale_get(const struct oracle_weight *weight, int64_t n, int64_t k) {
  return weight->shape.scale == GEMM_SCALE_NONE
             ? 1
             : oracle_element(weight->canonical + weight->layout.scales_offset, (int64_t)scale_index(weight, n, k),
                              gemm_scale_type(&weight->shape));
}

static void weight_finish(struct oracle_weight *weight) {
  for (int64_t n = 0; n < weight->shape.n; n++) {
    for (int64_t k = 0; k < weight->shape.k; k++) {
      weight->values[n * weight->shape.k + k] = code_get(weight, n, k) * scale_get(weight, n, k) * factor_of(weight, n);
    }
  }
}

static uint32_t *order_of(const struct oracle_weight *weight) {
  return (uint32_t *)(void *)(weight->canonical + weight->layout.order_offset);
}

static void input_make(struct oracle_weight *out, uint64_t *state) {
  uint32_t *order = order_of(out), k = (uint32_t)out->shape.k;
  if (out->shape.input & GEMM_INPUT_SCALE) {
    element_set(out->canonical + out->layout.input_offset, 0, GEMM_F32,
                3.0f / (out->shape.format == GEMM_FORMAT_FP8 ? 448 : 127));
  }
  for (uint32_t i = 0; (out->shape.input & GEMM_INPUT_ORDER) && i < k; i++) {
    uint32_t at = (uint32_t)(oracle_random(state) % (i + 1));
    order[i] = order[at];
    order[at] = i;
  }
}

/* Codes use the whole range of their format, scales make W's columns about 1 / sqrt(K) large. */
void oracle_weight_make(struct oracle_weight *out, const struct gemm_weight *shape, uint64_t seed) {
  uint64_t state = seed;
  double unit = 1 / sqrt((double)shape->k);
  const struct gemm_format_facts *facts = gemm_format_facts(shape->format);
  uint64_t mask = (1u << facts->bits) - 1;
  weight_start(out, shape);
  for (int64_t n = 0; n < shape->n; n++) {
    for (int64_t k = 0; k < shape->k; k++) {
      double value;
      switch (facts->element) {
      case GEMM_INT8:
        value = (int8_t)oracle_random(&state);
        break;
      case GEMM_E4M3:
        value = 90 * oracle_normal(&state);
        break;
      case GEMM_E2M1:
        value = 3 * oracle_normal(&state);
        break;
      case GEMM_TYPE_NONE: /* bytes behind K are codes of zero */
        value = (int)(oracle_random(&state) & mask) - (int)(facts->padding & mask);
        break;
      default:
        value = oracle_normal(&state) * unit;
      }
      code_set(out, n, k, (float)value);
    }
  }
  double typical = facts->element == GEMM_INT8 ? 74 : facts->element == GEMM_E4M3 ? 90 : facts->bits == 4 ? 4 : 1;
  for (uint64_t i = 0; i < out->layout.scale_count; i++) {
    /* INT2's codes reach further up than down, so that a negative scale is often the better one. */
    double sign = shape->format == GEMM_FORMAT_INT2 && oracle_random(&state) % 2 == 0 ? -1 : 1;
    double beside = out->layout.factors_bytes > 0 ? 0x1p-7 : 1;
    scale_set(out, i, (float)(sign * exp2(oracle_uniform(&state)) * unit / typical / beside));
  }
  weight_finish(out);
  input_make(out, &state);
}

void oracle_weight_fill(struct oracle_weight *out, const struct gemm_weight *shape,
                        const struct oracle_filler *filler) {
  weight_start(out, shape);
  for (int64_t n = 0; n < shape->n; n++) {
    for (int64_t k = 0; k < shape->k; k++) {
      code_set(out, n, k, (float)filler->element(filler->context, n, k));
    }
  }
  for (uint64_t i = 0; i < out->layout.scale_count; i++) {
    uint64_t columns = out->layout.scale_columns;
    scale_set(out, i, (float)filler->scale(filler->context, (int64_t)(i / columns), (int64_t)(i % columns)));
  }
  weight_finish(out);
}

void oracle_weight_from_codes(struct oracle_weight *out, int64_t n, int64_t k, const int8_t *codes) {
  struct gemm_weight shape = {.n = n, .k = k, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ONE};
  weight_start(out, &shape);
  for (int64_t i = 0; i < n; i++) {
    memcpy(out->canonical + (uint64_t)i * out->layout.row_bytes, codes + i * k, (size_t)k);
  }
  scale_set(out, 0, 1);
  weight_finish(out);
}

void oracle_weight_multiply(struct oracle_weight *weight, double factor) {
  const uint8_t *scales = weight->canonical + weight->layout.scales_offset;
  enum gemm_type type = gemm_scale_type(&weight->shape);
  for (uint64_t i = 0; i < weight->layout.scale_count; i++) {
    scale_set(weight, i, (float)(oracle_element(scales, (int64_t)i, type) * factor));
  }
  weight_finish(weight);
}

void oracle_weight_identity(struct oracle_weight *out, const struct gemm_weight *shape) {
  weight_start(out, shape);
  zeros_set(out, middle_zero);
  for (uint64_t i = 0; i < out->layout.factors_bytes / sizeof(float); i++) {
    element_set(out->canonical + out->layout.factors_offset, (int64_t)i, GEMM_F32, 1);
  }
  for (int64_t i = 0; i < shape->n && i < shape->k; i++) {
    code_set(out, i, i, 1);
  }
  for (uint64_t i = 0; i < out->layout.scale_count; i++) {
    scale_set(out, i, 1);
  }
  weight_finish(out);
}

void oracle_weight_free(struct oracle_weight *weight) {
  free(weight->canonical);
  free(weight->values);
}

/* ---- activations */

static double row_value(enum oracle_row kind, bool narrow, uint64_t *state) {
  switch (kind) {
  case ORACLE_ROW_OUTLIERS:
    return oracle_normal(state) * (oracle_random(state) % 64 == 0 ? 1000 : 1);
  case ORACLE_ROW_PLAIN:
    return oracle_uniform(state);
  case ORACLE_ROW_ZERO:
    return 0;
  case ORACLE_ROW_TINY:
    return oracle_normal(state) * (narrow ? 1e-7 : 1e-30);
  case ORACLE_ROW_HUGE:
    return oracle_uniform(state) * (narrow ? 6e4 : 1e30);
  default:
    return oracle_normal(state);
  }
}

static double row_scale(enum oracle_row kind, uint64_t *state) {
  double scale = exp2(oracle_uniform(state)) / 64;
  return kind == ORACLE_ROW_TINY ? scale * 1e-30 : kind == ORACLE_ROW_HUGE ? scale * 1e28 : scale;
}

void oracle_x_make(struct oracle_x *out, int64_t m, int64_t k, enum gemm_type type, int64_t scale_columns,
                   uint64_t seed) {
  uint64_t state = seed;
  bool codes = type == GEMM_INT8 || type == GEMM_E4M3;
  *out = (struct oracle_x){.m = m, .k = k, .type = type, .scale_columns = codes ? scale_columns : 0};
  out->data = allocate((uint64_t)(m * k) * gemm_type_bytes(type));
  out->scales = codes ? allocate((uint64_t)(m * scale_columns) * sizeof(float)) : NULL;
  for (int64_t row = 0; row < m; row++) {
    enum oracle_row kind = (enum oracle_row)(row % ORACLE_ROW_KINDS);
    for (int64_t i = row * k; i < (row + 1) * k; i++) {
      double value = type == GEMM_INT8   ? (double)(int8_t)oracle_random(&state)
                     : type == GEMM_E4M3 ? 90 * oracle_normal(&state)
                                         : row_value(kind, type == GEMM_F16, &state);
      element_set(out->data, i, type, codes && kind == ORACLE_ROW_ZERO ? 0 : (float)value);
    }
    for (int64_t i = row * out->scale_columns; i < (row + 1) * out->scale_columns; i++) {
      out->scales[i] = (float)row_scale(kind, &state);
    }
  }
}

void oracle_x_fill(struct oracle_x *out, int64_t m, int64_t k, enum gemm_type type, int64_t scale_columns,
                   const struct oracle_filler *filler) {
  bool codes = type == GEMM_INT8 || type == GEMM_E4M3;
  *out = (struct oracle_x){.m = m, .k = k, .type = type, .scale_columns = codes ? scale_columns : 0};
  out->data = allocate((uint64_t)(m * k) * gemm_type_bytes(type));
  out->scales = codes ? allocate((uint64_t)(m * scale_columns) * sizeof(float)) : NULL;
  for (int64_t row = 0; row < m; row++) {
    for (int64_t i = 0; i < k; i++) {
      element_set(out->data, row * k + i, type, (float)filler->element(filler->context, row, i));
    }
    for (int64_t i = 0; i < out->scale_columns; i++) {
      out->scales[row * out->scale_columns + i] = (float)filler->scale(filler->context, row, i);
    }
  }
}

void oracle_x_set(struct oracle_x *x, int64_t row, int64_t column, float value) {
  element_set(x->data, row * x->k + column, x->type, value);
}

void oracle_x_free(struct oracle_x *x) {
  free(x->data);
  free(x->scales);
}

double *oracle_bias_make(int64_t n, enum gemm_type type, void *to, uint64_t seed) {
  double *bias = malloc((size_t)n * sizeof *bias);
  for (int64_t i = 0; bias != NULL && i < n; i++) {
    float value = (float)((int)(oracle_random(&seed) % 65) - 32) / 16;
    bias[i] = (double)value;
    if (type == GEMM_F32)
      ((float *)to)[i] = value;
    else
      ((uint16_t *)to)[i] = type == GEMM_F16 ? number_to_f16(value) : number_to_bf16(value);
  }
  return bias;
}

/* Quantizes and dequantizes `count` values in place, `fixed` being a scale or NULL; false where one is not finite. */
static bool round_trip(double *values, int64_t count, bool int8, const float *fixed) {
  float largest = 0;
  for (int64_t i = 0; i < count; i++) {
    if (!isfinite(values[i])) {
      return false;
    }
    largest = fmaxf(largest, fabsf((float)values[i]));
  }
  float scale = fixed != NULL ? *fixed : int8 ? number_scale_int8(largest) : number_scale_e4m3(largest);
  for (int64_t i = 0; i < count; i++) {
    double code = int8 ? number_quantize_int8((float)values[i], scale)
                       : number_from_e4m3(number_quantize_e4m3((float)values[i], scale));
    values[i] = code * scale;
  }
  return true;
}

/* A row of x as the weight reads it; *fixed is its scale, or NULL. */
static void change(const struct oracle_weight *weight, double *row, const float **fixed) {
  uint32_t input = weight->shape.input, *order = order_of(weight);
  int64_t k = weight->shape.k;
  float *copy = allocate((uint64_t)k * sizeof *copy);
  for (int64_t i = 0; i < k; i++) {
    copy[i] = (float)row[input & GEMM_INPUT_ORDER ? order[i] : i];
  }
  rotate_groups(copy, k, gemm_rotation(input));
  for (int64_t i = 0; i < k; i++) {
    row[i] = (double)copy[i];
  }
  free(copy);
  *fixed =
      input & GEMM_INPUT_SCALE ? (const float *)(const void *)(weight->canonical + weight->layout.input_offset) : NULL;
}

static double *x_values(const struct oracle_x *x, const struct gemm_weight *shape, const struct oracle_weight *weight,
                        bool raw) {
  const float *fixed = NULL;
  bool quantized = gemm_quantizes_x(shape->format);
  int64_t block = shape->scale == GEMM_SCALE_BLOCK ? 128 : x->k;
  double *values = allocate((uint64_t)(x->m * x->k) * sizeof(double));
  for (int64_t row = 0; row < x->m; row++) {
    double *out = values + row * x->k;
    bool finite = true;
    for (int64_t k = 0; k < x->k; k++) {
      out[k] = oracle_element(x->data, row * x->k + k, x->type);
      if (x->scales != NULL && !raw) {
        out[k] *= x->scales[row * x->scale_columns + (x->scale_columns > 1 ? k / 128 : 0)];
      }
    }
    if (shape->input != 0) {
      change(weight, out, &fixed);
    }
    for (int64_t begin = 0; quantized && x->scales == NULL && begin < x->k; begin += block) {
      int64_t count = x->k - begin < block ? x->k - begin : block;
      finite = round_trip(out + begin, count, shape->format != GEMM_FORMAT_FP8, fixed) && finite;
    }
    for (int64_t k = 0; !finite && k < x->k; k++) {
      out[k] = NAN;
    }
  }
  return values;
}

double *oracle_x_values(const struct oracle_x *x, const struct gemm_weight *shape, bool raw) {
  return x_values(x, shape, NULL, raw);
}

double *oracle_x_seen(const struct oracle_x *x, const struct oracle_weight *weight, bool raw) {
  return x_values(x, &weight->shape, weight, raw);
}

/* ---- the product */

PLAIN static double dot(const double *a, const double *b, int64_t count) {
  double sum[8] = {0};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int lane = 0; lane < 8; lane++) {
      sum[lane] += a[i + lane] * b[i + lane];
    }
  }
  for (; i < count; i++) {
    sum[0] += a[i] * b[i];
  }
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

static double *product(const double *x_values, int64_t m, const double *w_values, int64_t n, int64_t k,
                       const double *bias) {
  double *out = allocate((uint64_t)(m * n) * sizeof(double));
  for (int64_t row = 0; row < m; row++) {
    for (int64_t column = 0; column < n; column++) {
      double sum = dot(x_values + row * k, w_values + column * k, k);
      out[row * n + column] = bias != NULL ? sum + bias[column] : sum;
    }
  }
  return out;
}

double *oracle_product(const double *x_values, int64_t m, const struct oracle_weight *weight, const double *bias) {
  return product(x_values, m, weight->values, weight->shape.n, weight->shape.k, bias);
}

double *oracle_product_raw(const double *x_values, int64_t m, const struct oracle_weight *weight) {
  int64_t n = weight->shape.n, k = weight->shape.k;
  double *codes = allocate((uint64_t)(n * k) * sizeof(double));
  for (int64_t i = 0; i < n * k; i++) {
    codes[i] = code_get(weight, i / k, i % k);
  }
  double *out = product(x_values, m, codes, n, k, NULL);
  free(codes);
  return out;
}

/* ---- the measure */

/* The first magnitude that rounds to infinity, and half of the smallest subnormal. */
static void type_range(enum gemm_type type, double *overflow, double *half_quantum) {
  *overflow = type == GEMM_F16 ? 65520 : type == GEMM_BF16 ? 0x1.ffp127 : 0x1.ffffffp127;
  *half_quantum = type == GEMM_F16 ? 0x1p-25 : type == GEMM_BF16 ? 0x1p-134 : 0x1p-150;
}

/* In a row that leaves y's range, what a sum that nearly cancels is off by may itself be beyond that range: such an
 * element may be anything but NaN. 0 for other rows. */
static double cancelled(const double *reference, int64_t n, double overflow, double sums_gate) {
  double largest = 0;
  for (int64_t i = 0; i < n; i++) {
    largest = fmax(largest, isfinite(reference[i]) ? fabs(reference[i]) : 0);
  }
  return largest > overflow ? sums_gate * largest : 0;
}

/* Whether an infinite y is right where the reference is finite. A sum that is right within the gates may round either
 * way just below the end of the range. */
static bool overflows(double reference, double value, double overflow) {
  return !isnan(value) && fabs(reference) > 0.99 * overflow && (value > 0) == (reference > 0);
}

double oracle_row_error(enum gemm_format format, const double *reference, const void *y, enum gemm_type y_type,
                        int64_t n) {
  double overflow, half_quantum, error = 0, norm = 0;
  type_range(y_type, &overflow, &half_quantum);
  double noise = cancelled(reference, n, overflow, oracle_gate(format, GEMM_F32));
  for (int64_t i = 0; i < n; i++) {
    double value = oracle_element(y, i, y_type);
    if (!isfinite(reference[i])) {
      if (isfinite(value)) {
        return INFINITY;
      }
    } else if (fabs(reference[i]) < noise && !isnan(value)) {
      continue;
    } else if (!isfinite(value)) {
      if (!overflows(reference[i], value, overflow)) {
        return INFINITY;
      }
    } else if (fabs(reference[i]) > 1.01 * overflow) {
      return INFINITY;
    } else {
      double difference = fmax(0, fabs(value - reference[i]) - half_quantum);
      error += difference * difference;
      norm += reference[i] * reference[i];
    }
  }
  return error == 0 ? 0 : norm == 0 ? INFINITY : sqrt(error / norm);
}

/* The same measure of the reference itself, rounded to y's type: no y can be better. In a row of few elements it may
 * exceed what a long row averages to. */
static double row_rounding(enum gemm_format format, const double *reference, enum gemm_type y_type, int64_t n) {
  uint8_t *rounded = allocate((uint64_t)n * sizeof(float));
  for (int64_t i = 0; i < n; i++) {
    element_set(rounded, i, y_type, (float)reference[i]);
  }
  double error = oracle_row_error(format, reference, rounded, y_type, n);
  free(rounded);
  return error;
}

double oracle_gate(enum gemm_format format, enum gemm_type y_type) {
  switch (y_type) {
  case GEMM_S32:
    return 0;
  case GEMM_F32:
    return format == GEMM_FORMAT_INT8 ? 1e-6 : 3e-4;
  case GEMM_F16:
    return 5e-4;
  default:
    return 2.5e-3;
  }
}

double oracle_row_gate(const struct gemm_weight *shape, enum gemm_type y_type, const double *reference) {
  double limit = oracle_gate(shape->format, y_type);
  if (y_type != GEMM_BF16) {
    return limit;
  }
  return fmax(limit,
              hypot(row_rounding(shape->format, reference, y_type, shape->n), oracle_gate(shape->format, GEMM_F32)));
}
