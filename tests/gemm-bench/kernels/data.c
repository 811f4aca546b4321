#include "data.h"

#include "proto/number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = (8 << 20) + 24, /* random bytes that repeat: no period of a row or a cache */ COLUMNS = 192 };

static uint64_t random_next(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state * 0x9e3779b97f4a7c15u;
}

static float random_normal(uint64_t *state) {
  float sum = 0;
  for (int i = 0; i < 3; i++) {
    sum += (float)(random_next(state) >> 40) * 0x1p-23f - 1;
  }
  return sum;
}

/* Of W, about which its scales lie; y of a long K stays within what f16 has. */
static float scale_of(enum gemm_format format) {
  bool two_bits = format == GEMM_FORMAT_INT2 || format == GEMM_FORMAT_INT2A8;
  return format == GEMM_FORMAT_INT8 || format == GEMM_FORMAT_FP8 ? 0x1p-8f : two_bits ? 0x1p-2f : 0x1p-6f;
}

/* Any bytes are codes, but that e4m3 has a NaN and f16 and bf16 should be ordinary numbers. */
static void random_codes(enum gemm_format format, uint8_t *out) {
  uint64_t state = 88172645463325252u;
  for (uint64_t i = 0; i < BLOCK_BYTES; i += 8) {
    uint64_t word = random_next(&state);
    memcpy(out + i, &word, 8);
  }
  for (uint64_t i = 0; i < BLOCK_BYTES; i++) {
    bool top = i % 2 == 1;
    if (format == GEMM_FORMAT_FP8 && (out[i] & 0x7f) == 0x7f) {
      out[i] = 0;
    } else if (format == GEMM_FORMAT_F16 && top) {
      out[i] = (uint8_t)((out[i] & 0x83) | 0x34);
    } else if (format == GEMM_FORMAT_BF16 && top) {
      out[i] = (uint8_t)((out[i] & 0x80) | 0x3e);
    }
  }
}

/* What of a row of codes is not there stands for zeros. */
static void pad_row(const struct gemm_weight *shape, uint8_t *row, uint64_t row_bytes) {
  const struct gemm_format_facts *facts = gemm_format_facts(shape->format);
  uint64_t bits = (uint64_t)facts->bits, used = (uint64_t)shape->k * bits;
  for (uint64_t bit = used; bit % 8 != 0; bit += bits) {
    uint8_t mask = (uint8_t)(((1u << bits) - 1) << bit % 8);
    row[bit / 8] = (uint8_t)((row[bit / 8] & ~mask) | (facts->padding & mask));
  }
  memset(row + (used + 7) / 8, facts->padding, row_bytes - (used + 7) / 8);
}

enum status data_weight_make(struct data_weight *out, const struct gemm_weight *shape, struct error *error) {
  *out = (struct data_weight){.shape = *shape};
  enum status status = gemm_layout_compute(shape, &out->layout, error);
  if (status != STATUS_OK) {
    return status;
  }
  const struct gemm_layout *layout = &out->layout;
  uint8_t *block = malloc(BLOCK_BYTES);
  out->canonical = calloc(1, layout->total_bytes);
  if (block == NULL || out->canonical == NULL) {
    free(block);
    data_weight_free(out);
    return error_set(error, STATUS_NOMEM, "no memory for a weight");
  }
  random_codes(shape->format, block);
  for (uint64_t at = 0; at < layout->codes_bytes; at += BLOCK_BYTES) {
    uint64_t left = layout->codes_bytes - at;
    memcpy(out->canonical + at, block, left < BLOCK_BYTES ? left : BLOCK_BYTES);
  }
  free(block);
  for (int64_t n = 0; n < shape->n; n++) {
    pad_row(shape, out->canonical + (uint64_t)n * layout->row_bytes, layout->row_bytes);
  }
  for (uint64_t i = 0; i < layout->scale_count; i++) {
    float scale = scale_of(shape->format) * (1 + (float)(i % 7) / 8);
    gemm_scale_put(gemm_scale_type(shape), out->canonical + layout->scales_offset, i, scale);
  }
  memset(out->canonical + layout->zeros_offset, gemm_scale_facts(shape->scale)->zeros_f16 ? 0x47 : 7,
         layout->zeros_bytes); /* f16: 7.28 */
  for (uint64_t i = 0; i < layout->factors_bytes / sizeof(float); i++) {
    gemm_scale_put(GEMM_F32, out->canonical + layout->factors_offset, i, 1 + (float)(i % 5) / 4);
  }
  return STATUS_OK;
}

/* Of the size of elements of y; exact in 16 bits, too. */
float data_bias(int64_t column) {
  return (float)(column % 29 - 14) / 4;
}

void data_weight_free(struct data_weight *weight) {
  free(weight->canonical);
  weight->canonical = NULL;
}

static void store(enum gemm_type type, void *to, int64_t i, float value) {
  if (type == GEMM_F32) {
    ((float *)to)[i] = value;
  } else {
    ((uint16_t *)to)[i] = type == GEMM_F16 ? number_to_f16(value) : number_to_bf16(value);
  }
}

static float load(enum gemm_type type, const void *from, int64_t i) {
  switch (type) {
  case GEMM_F32:
    return ((const float *)from)[i];
  case GEMM_F16:
    return number_from_f16(((const uint16_t *)from)[i]);
  case GEMM_BF16:
    return number_from_bf16(((const uint16_t *)from)[i]);
  case GEMM_INT8:
    return ((const int8_t *)from)[i];
  case GEMM_E4M3:
    return number_from_e4m3(((const uint8_t *)from)[i]);
  default:
    return (float)((const int32_t *)from)[i];
  }
}

/* Elements [from, to) of a row with one scale. */
static float quantize(bool e4m3, const float *values, int64_t from, int64_t to, uint8_t *codes) {
  float most = 0;
  for (int64_t i = from; i < to; i++) {
    most = fmaxf(most, fabsf(values[i]));
  }
  float scale = e4m3 ? number_scale_e4m3(most) : number_scale_int8(most);
  for (int64_t i = from; i < to; i++) {
    codes[i] = e4m3 ? number_quantize_e4m3(values[i], scale) : (uint8_t)number_quantize_int8(values[i], scale);
  }
  return scale;
}

enum status data_x_make(struct data_x *out, const struct gemm_weight *shape, int64_t m, enum gemm_type type,
                        struct error *error) {
  bool codes = type == GEMM_INT8 || type == GEMM_E4M3, quantizes = gemm_quantizes_x(shape->format);
  bool block = shape->scale == GEMM_SCALE_BLOCK;
  enum gemm_type of = codes ? GEMM_F32 : type;
  *out = (struct data_x){.m = m, .k = shape->k, .type = type, .rows = m < DATA_ROWS ? m : DATA_ROWS};
  out->scale_columns = block ? (shape->k + GEMM_GROUP - 1) / GEMM_GROUP : 1;
  size_t count = (size_t)(out->rows * out->k);
  float *row = malloc((size_t)out->k * sizeof(*row));
  out->elements = malloc(count * gemm_type_bytes(of));
  out->codes = quantizes ? malloc(count) : NULL;
  out->scales = quantizes ? malloc((size_t)(out->rows * out->scale_columns) * sizeof(float)) : NULL;
  if (row == NULL || out->elements == NULL || (quantizes && (out->codes == NULL || out->scales == NULL))) {
    free(row);
    data_x_free(out);
    return error_set(error, STATUS_NOMEM, "no memory for x");
  }
  uint64_t state = 2463534242u;
  for (int64_t r = 0; r < out->rows; r++) {
    for (int64_t i = 0; i < out->k; i++) {
      bool stands_out = r % 2 == 1 && random_next(&state) >> 58 == 0;
      store(of, out->elements, r * out->k + i, random_normal(&state) * (stands_out ? 1000 : 1));
      row[i] = load(of, out->elements, r * out->k + i);
    }
    for (int64_t c = 0; quantizes && c < out->scale_columns; c++) {
      int64_t from = block ? c * GEMM_GROUP : 0;
      int64_t to = block && from + GEMM_GROUP < out->k ? from + GEMM_GROUP : out->k;
      out->scales[r * out->scale_columns + c] =
          quantize(shape->format == GEMM_FORMAT_FP8, row, from, to, out->codes + r * out->k);
    }
  }
  free(row);
  return STATUS_OK;
}

void data_x_free(struct data_x *x) {
  free(x->elements);
  free(x->codes);
  free(x->scales);
  x->elements = x->codes = NULL;
  x->scales = NULL;
}

/* ---- the reference */

static uint64_t scale_index(const struct data_weight *weight, int64_t n, int64_t k) {
  const struct gemm_scale_facts *facts = gemm_scale_facts(weight->shape.scale);
  int64_t row = facts->n > 0 ? n / facts->n : 0, column = facts->k > 0 ? k / facts->k : 0;
  return (uint64_t)row * weight->layout.scale_columns + (uint64_t)column;
}

static double zero_of(const struct data_weight *weight, int64_t n, int64_t k) {
  const struct gemm_layout *layout = &weight->layout;
  const uint8_t *zeros = weight->canonical + layout->zeros_offset;
  return layout->zeros_bytes > 0 ? gemm_zero_get(weight->shape.scale, zeros, scale_index(weight, n, k)) : 8;
}

static double code_of(const struct data_weight *weight, const uint8_t *row, int64_t n, int64_t k) {
  const struct gemm_format_facts *facts = gemm_format_facts(weight->shape.format);
  switch (facts->element) {
  case GEMM_INT8:
    return (int8_t)row[k];
  case GEMM_E4M3:
    return number_from_e4m3(row[k]);
  case GEMM_E2M1:
    return number_from_e2m1(row[k / 2] >> k % 2 * 4 & 15);
  case GEMM_TYPE_NONE:
    return facts->bits == 4 ? (row[k / 2] >> k % 2 * 4 & 15) - zero_of(weight, n, k)
                            : (row[k / 4] >> k % 4 * 2 & 3) - 1;
  default:
    return load(facts->element, row, k);
  }
}

static double scale_at(const struct data_weight *weight, int64_t n, int64_t k) {
  if (weight->shape.scale == GEMM_SCALE_NONE) {
    return 1;
  }
  double factor = weight->layout.factors_bytes > 0
                      ? gemm_scale_get(GEMM_F32, weight->canonical + weight->layout.factors_offset, (uint64_t)n)
                      : 1;
  return factor * gemm_scale_get(gemm_scale_type(&weight->shape), weight->canonical + weight->layout.scales_offset,
                                 scale_index(weight, n, k));
}

/* Row r of x as the product reads it. */
static void read_row(const struct data_x *x, enum gemm_format format, int64_t r, bool bare, double *out) {
  for (int64_t i = 0; i < x->k; i++) {
    int64_t at = r * x->k + i, column = x->scale_columns > 1 ? i / GEMM_GROUP : 0;
    if (x->codes == NULL) {
      out[i] = load(x->type, x->elements, at);
      continue;
    }
    out[i] = load(format == GEMM_FORMAT_FP8 ? GEMM_E4M3 : GEMM_INT8, x->codes, at);
    out[i] *= bare ? 1 : x->scales[r * x->scale_columns + column];
  }
}

static double element(const struct data_weight *weight, const double *x, int64_t n, bool bare) {
  const uint8_t *row = weight->canonical + (uint64_t)n * weight->layout.row_bytes;
  int64_t group = gemm_scale_facts(weight->shape.scale)->k;
  double sum = 0;
  group = group > 0 ? group : GEMM_GROUP;
  for (int64_t first = 0; first < weight->shape.k; first += group) {
    double part = 0;
    for (int64_t k = first; k < first + group && k < weight->shape.k; k++) {
      part += x[k] * code_of(weight, row, n, k);
    }
    sum += part * (bare ? 1 : scale_at(weight, n, first));
  }
  return sum;
}

int64_t data_sample(int64_t m, int i) {
  return i == 0 ? 0 : i == 1 ? m / 2 : m - 1;
}

double data_error(const struct data_weight *weight, const struct data_x *x, const void *const y[DATA_SAMPLES],
                  enum gemm_type y_type, bool bare) {
  int64_t n = weight->shape.n, hop = n / COLUMNS > 1 ? n / COLUMNS | 1 : 1;
  double *row = malloc((size_t)x->k * sizeof(*row)), worst = 0;
  for (int i = 0; row != NULL && i < DATA_SAMPLES; i++) {
    double difference = 0, norm = 0;
    read_row(x, weight->shape.format, data_sample(x->m, i) % x->rows, bare, row);
    for (int64_t column = n - 1; column >= 0; column -= hop) {
      double bias = weight->biased && !bare ? data_bias(column) : 0;
      double reference = element(weight, row, column, bare) + bias, got = load(y_type, y[i], column);
      if (y_type == GEMM_S32) {
        got = ((const int32_t *)y[i])[column];
      }
      difference += (got - reference) * (got - reference);
      norm += reference * reference;
    }
    double error = norm > 0 ? sqrt(difference / norm) : difference;
    worst = isnan(error) || error > worst ? error : worst;
    if (isnan(error)) {
      break;
    }
  }
  free(row);
  return row != NULL ? worst : NAN;
}

double data_error_most(enum gemm_format format, enum gemm_type y_type) {
  switch (y_type) {
  case GEMM_S32:
    return 0;
  case GEMM_F16:
    return 5e-4;
  case GEMM_BF16:
    return 2.5e-3;
  default:
    return format == GEMM_FORMAT_INT8 ? 1e-6 : 3e-4;
  }
}
