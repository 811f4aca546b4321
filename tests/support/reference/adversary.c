#include "adversary.h"

#include "proto/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* How a row is filled. */
enum pattern {
  PATTERN_NORMAL,
  PATTERN_ONE_SIGN,
  PATTERN_DOMINATED, /* one element a thousand times the others */
  PATTERN_OUTLIERS,  /* one in 64 is */
  PATTERN_GROWING,   /* along K, by 2^range */
  PATTERN_FALLING,
  PATTERN_STAIRS, /* the first of 32, or of 128, far above the others */
  PATTERN_STEPS,  /* the same, all others alike and of its sign: as if made for what is cut off below the largest */
  PATTERN_SUBNORMAL,
  PATTERN_LIMIT,          /* largest magnitudes, either sign */
  PATTERN_LIMIT_ONE_SIGN, /* largest magnitudes */
  PATTERN_SPARSE,
  PATTERNS
};

/* How rows of W meet those of x so that sums cancel: x has each value twice, W once with the other sign. */
enum pairing { PAIRING_NONE, PAIRING_NEXT, PAIRING_HALVES, PAIRINGS };

enum side { SIDE_X = 1, SIDE_W, SIDE_X_SCALE, SIDE_W_SCALE, SIDE_BIAS, SIDE_CASE };

/* Of the seed, a place, and what is asked about it. What it has of the row is kept: elements come a row at a time. */
static uint64_t mix(uint64_t seed, enum side side, int64_t row, int64_t k) {
  static struct kept {
    uint64_t seed, random;
    int64_t row;
    bool filled;
  } rows[SIDE_CASE + 1];
  struct kept *kept = &rows[side];
  if (!kept->filled || kept->seed != seed || kept->row != row) {
    uint64_t state = seed * 31 + (uint64_t)side;
    state = oracle_random(&state) + (uint64_t)row;
    *kept = (struct kept){seed, oracle_random(&state), row, true};
  }
  uint64_t state = kept->random + (uint64_t)k;
  return oracle_random(&state);
}

/* [-1, 1) */
static double uniform(uint64_t bits) {
  return (double)(int64_t)bits * 0x1p-63;
}

static enum pairing pairing_of(const struct adversary_case *what) {
  uint64_t bits = mix(what->seed, SIDE_CASE, 0, 0);
  return bits % 3 == 0 ? (enum pairing)(1 + bits / 3 % (PAIRINGS - 1)) : PAIRING_NONE;
}

/* The pair's number; *second: of its two the later one. What has no partner is a pair of its own. */
static int64_t pair_of(enum pairing pairing, int64_t k, int64_t count, bool *second) {
  int64_t half = count / 2;
  *second = false;
  if (pairing == PAIRING_NEXT && k < half * 2) {
    *second = k % 2 == 1;
    return k / 2;
  }
  if (pairing == PAIRING_HALVES && k < half * 2) {
    *second = k >= half;
    return k % half;
  }
  return k;
}

/* [-1, 1] by pattern; `place` stands for k where elements come in pairs. */
static double value_at(uint64_t seed, enum side side, int64_t row, int64_t place, int64_t count) {
  uint64_t of_row = mix(seed, side, row, -1), bits = mix(seed, side, row, place);
  enum pattern pattern = (enum pattern)(of_row % PATTERNS);
  double value = uniform(bits), range = 4 + (double)(of_row / PATTERNS % 12), along = (double)place / (double)count;
  switch (pattern) {
  case PATTERN_ONE_SIGN:
    return (fabs(value) + 0.01) / 1.01;
  case PATTERN_DOMINATED:
    return place == (int64_t)(of_row / PATTERNS % (uint64_t)count) ? copysign(1, value) : value * 1e-3;
  case PATTERN_OUTLIERS:
    return bits % 64 == 0 ? copysign(1, value) : value * 1e-3;
  case PATTERN_GROWING:
    return value * exp2(range * (along - 1));
  case PATTERN_FALLING:
    return value * exp2(-range * along);
  case PATTERN_STAIRS:
    return place % (of_row / PATTERNS % 2 ? 32 : 128) == 0 ? copysign(1, value) : value * exp2(-range);
  case PATTERN_STEPS:
    return place % (of_row / PATTERNS % 2 ? 32 : 128) == 0 ? 1 : 0.97 * exp2(-range);
  case PATTERN_LIMIT:
    return copysign(1, value);
  case PATTERN_LIMIT_ONE_SIGN:
    return 1;
  case PATTERN_SPARSE:
    return bits % 97 < 3 ? value : 0;
  default:
    return value;
  }
}

static bool is_subnormal(uint64_t seed, enum side side, int64_t row) {
  return mix(seed, side, row, -1) % PATTERNS == PATTERN_SUBNORMAL;
}

/* The largest magnitude of a row of this type: mostly about 1, some rows at the type's ends. */
static double amplitude(enum gemm_type type, uint64_t bits) {
  static const double f16[] = {65504, 1000, 0x1p-17}, wide[] = {1e30, 0x1p120, 1e-30};
  switch (type) {
  case GEMM_E4M3:
    return 448;
  case GEMM_INT8:
    return 127;
  default:
    return bits % 4 != 0 ? 1 : type == GEMM_F16 ? f16[bits / 4 % 3] : wide[bits / 4 % 3];
  }
}

/* Few quanta of the type, below its normal numbers. */
static double subnormal(enum gemm_type type, double value) {
  double quantum = type == GEMM_E4M3   ? 0x1p-9
                   : type == GEMM_F16  ? 0x1p-24
                   : type == GEMM_F32  ? 0x1p-149
                   : type == GEMM_BF16 ? 0x1p-133
                                       : 1;
  return rint(value * 7) * quantum;
}

/* ---- W and x */

static enum gemm_type w_type(enum gemm_format format) {
  return format == GEMM_FORMAT_FP8    ? GEMM_E4M3
         : format == GEMM_FORMAT_F16  ? GEMM_F16
         : format == GEMM_FORMAT_BF16 ? GEMM_BF16
                                      : GEMM_INT8;
}

static double w_element(const void *context, int64_t n, int64_t k) {
  const struct adversary_case *what = context;
  int64_t row = n + what->w_row;
  uint64_t of_row = mix(what->seed, SIDE_W, row, -2);
  bool second;
  int64_t place = pair_of(pairing_of(what), k, what->shape.k, &second);
  double value = value_at(what->seed, SIDE_W, row, place, what->shape.k);
  value = second && of_row % 4 != 0 ? -value : value; /* one row in four does not cancel */
  if (gemm_is_int2(what->shape.format))
    return fmin(fmax(rint(value * 2), -1), second ? 1 : 2);
  if (gemm_is_packed(what->shape.format))
    return gemm_format_facts(what->shape.format)->element == GEMM_E2M1 ? value * 6 : rint(value * 7);
  enum gemm_type type = w_type(what->shape.format);
  if (type != GEMM_INT8 && is_subnormal(what->seed, SIDE_W, row))
    return subnormal(type, value);
  double size = gemm_is_wide(what->shape.format) ? amplitude(type, of_row / 4) : amplitude(type, 0);
  return type == GEMM_INT8 ? rint(value * size) : value * size;
}

/* Scales that make W's rows small, some of them far apart. */
static double w_scale(const void *context, int64_t row, int64_t column) {
  const struct adversary_case *what = context;
  int64_t from = what->shape.scale == GEMM_SCALE_BLOCK ? what->w_row / GEMM_GROUP : what->w_row;
  uint64_t bits = mix(what->seed, SIDE_W_SCALE, row + from, column);
  bool apart = mix(what->seed, SIDE_W_SCALE, row + from, -1) % 4 == 0;
  double typical = what->shape.format == GEMM_FORMAT_INT8             ? 74
                   : what->shape.format == GEMM_FORMAT_FP8            ? 90
                   : gemm_format_facts(what->shape.format)->bits == 4 ? 4
                                                                      : 1;
  return exp2(uniform(bits) * (apart ? 6 : 1)) / typical / sqrt((double)what->shape.k);
}

static double x_element(const void *context, int64_t m, int64_t k) {
  const struct adversary_case *what = context;
  int64_t row = m + what->x_row;
  bool second;
  int64_t place = pair_of(pairing_of(what), k, what->shape.k, &second);
  double value = value_at(what->seed, SIDE_X, row, place, what->shape.k);
  if (what->x_type != GEMM_INT8 && is_subnormal(what->seed, SIDE_X, row))
    return subnormal(what->x_type, value);
  double size = amplitude(what->x_type, mix(what->seed, SIDE_X, row, -2));
  if (gemm_is_packed(what->shape.format)) /* sums of x and codes, before their scale, stay within f32 */
    size = fmin(size, 1e30);
  return what->x_type == GEMM_INT8 ? rint(value * size) : value * size;
}

static double x_scale(const void *context, int64_t m, int64_t column) {
  const struct adversary_case *what = context;
  return exp2(3 * uniform(mix(what->seed, SIDE_X_SCALE, m + what->x_row, column))) / 64;
}

void adversary_weight(const struct adversary_case *what, struct oracle_weight *out) {
  const struct oracle_filler filler = {w_element, w_scale, what};
  oracle_weight_fill(out, &what->shape, &filler);
}

void adversary_x(const struct adversary_case *what, struct oracle_x *out) {
  const struct oracle_filler filler = {x_element, x_scale, what};
  int64_t columns = what->shape.scale == GEMM_SCALE_BLOCK ? (what->shape.k + GEMM_GROUP - 1) / GEMM_GROUP : 1;
  oracle_x_fill(out, what->m, what->shape.k, what->x_type, columns, &filler);
}

float *adversary_bias(const struct adversary_case *what) {
  float *bias = what->bias_type == GEMM_F32 ? calloc((size_t)what->shape.n, sizeof *bias) : NULL;
  for (int64_t n = 0; bias != NULL && n < what->shape.n; n++)
    bias[n] = (float)uniform(mix(what->seed, SIDE_BIAS, n + what->w_row, 0));
  return bias;
}

/* ---- which */

static int64_t pick(uint64_t *state, const int64_t *list, size_t count) {
  return list[oracle_random(state) % count];
}

/* The n-th (cyclic) type that is taken. */
static enum gemm_type nth_type(const struct adversary_case *what, bool of_x, uint64_t n) {
  enum gemm_type types[GEMM_S32 + 1];
  uint64_t count = 0;
  for (enum gemm_type type = GEMM_F32; type <= GEMM_S32; type++)
    if (of_x ? gemm_takes_x(what->shape.format, type) : gemm_takes_y(what->shape.format, what->x_type, type))
      types[count++] = type;
  return types[n % count];
}

void adversary_draw(uint64_t seed, enum gemm_format format, enum gemm_scale scale, int64_t terms_most,
                    struct adversary_case *out) {
  static const int64_t ms[] = {1, 1, 2, 3, 4, 5, 8, 9, 16, 17, 33, 64, 65, 100, 130, 300};
  static const int64_t ns[] = {1, 3, 16, 32, 127, 128, 129, 256, 300, 640, 1100, 4096};
  static const int64_t ks[] = {1,   2,   7,   16,  33,   64,   100,  127,  128,  129,   192,   256,
                               260, 384, 512, 777, 1024, 1304, 2050, 4096, 8200, 20000, 50000, 105002};
  uint64_t state = seed;
  *out = (struct adversary_case){.seed = seed, .shape = {.format = format, .scale = scale}};
  do {
    out->m = pick(&state, ms, sizeof ms / sizeof *ms);
    out->shape.n = pick(&state, ns, sizeof ns / sizeof *ns);
    out->shape.k = pick(&state, ks, sizeof ks / sizeof *ks);
  } while (out->m * out->shape.n * out->shape.k > terms_most || out->shape.k > gemm_format_facts(format)->k_most);
  out->x_type = nth_type(out, true, oracle_random(&state));
  out->y_type = nth_type(out, false, oracle_random(&state));
  bool biased = oracle_random(&state) % 4 == 0 && out->y_type != GEMM_S32;
  out->bias_type = biased ? GEMM_F32 : GEMM_TYPE_NONE;
}

bool adversary_smaller(const struct adversary_case *what, int64_t row, int step, struct adversary_case *out) {
  static const int64_t parts[] = {2, 4, 8, 16};
  *out = *what;
  struct gemm_weight *shape = &out->shape;
  int64_t unit = shape->scale == GEMM_SCALE_BLOCK ? GEMM_GROUP : 1; /* whole blocks of scales */
  if (step == 0) {
    out->x_row += row;
    out->m = 1;
  } else if (step == 1) {
    out->bias_type = GEMM_TYPE_NONE;
  } else if (step < 6) {
    shape->n -= shape->n / parts[step - 2];
  } else if (step < 10) {
    int64_t less = shape->n / parts[step - 6] / unit * unit;
    out->w_row += less;
    shape->n -= less;
  } else if (step < 14) {
    shape->k -= shape->k / parts[step - 10];
  } else {
    return false;
  }
  return true;
}

void adversary_text(const struct adversary_case *what, char out[256]) {
  (void)snprintf(out, 256, "seed %llu: %s %s x %s y %s bias %s M %lld N %lld K %lld rows from %lld of x, %lld of W",
                 (unsigned long long)what->seed, gemm_format_name(what->shape.format),
                 gemm_scale_name(what->shape.scale), gemm_type_name(what->x_type), gemm_type_name(what->y_type),
                 gemm_type_name(what->bias_type), (long long)what->m, (long long)what->shape.n,
                 (long long)what->shape.k, (long long)what->x_row, (long long)what->w_row);
}

/* ---- what must come */

static void two_sums(const double *a, const double *b, int64_t count, double *sum, double *size) {
  enum { LANES = 8 };
  double sums[LANES] = {0}, sizes[LANES] = {0};
  int64_t whole = count / LANES * LANES;
  for (int64_t i = 0; i < whole; i += LANES)
    for (int lane = 0; lane < LANES; lane++) {
      sums[lane] += a[i + lane] * b[i + lane];
      sizes[lane] += fabs(a[i + lane] * b[i + lane]);
    }
  for (int64_t i = whole; i < count; i++) {
    sums[i - whole] += a[i] * b[i];
    sizes[i - whole] += fabs(a[i] * b[i]);
  }
  *sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  *size = ((sizes[0] + sizes[1]) + (sizes[2] + sizes[3])) + ((sizes[4] + sizes[5]) + (sizes[6] + sizes[7]));
}

static bool below_normal(double value) {
  return value != 0 && fabs(value) < 0x1p-126;
}

/* Only rows that have such numbers are looked at. */
static void sum_lost(const struct adversary_case *what, const double *x, const double *w, double *lost) {
  int64_t n = what->shape.n, k = what->shape.k;
  for (int64_t i = 0; i < what->m * n; i++) {
    const double *a = x + i / n * k, *b = w + i % n * k;
    if (!is_subnormal(what->seed, SIDE_X, i / n + what->x_row) &&
        !is_subnormal(what->seed, SIDE_W, i % n + what->w_row))
      continue;
    for (int64_t j = 0; j < k; j++)
      lost[i] += below_normal(a[j]) || below_normal(b[j]) ? fabs(a[j] * b[j]) : 0;
  }
}

/* By groups of K: the largest |x| times the sum of |W|. */
static void sum_tops(const struct adversary_case *what, const double *x, const double *w, double *tops) {
  int64_t n = what->shape.n, k = what->shape.k;
  for (int64_t from = 0; from < k; from += GEMM_GROUP) {
    int64_t end = from + GEMM_GROUP < k ? from + GEMM_GROUP : k;
    for (int64_t i = 0; i < what->m * n; i++) {
      double largest = 0, sum = 0;
      for (int64_t j = from; j < end; j++) {
        largest = fmax(largest, fabs(x[i / n * k + j]));
        sum += fabs(w[i % n * k + j]);
      }
      tops[i] += largest * sum;
    }
  }
}

void adversary_compute(const struct adversary_case *what, const struct oracle_weight *weight, const struct oracle_x *x,
                       const float *bias, struct adversary_reference *out) {
  int64_t n = what->shape.n, k = what->shape.k;
  bool raw = what->y_type == GEMM_S32;
  double *values = oracle_x_values(x, &what->shape, raw);
  out->sums = raw ? oracle_product_raw(values, what->m, weight) : calloc((size_t)(what->m * n), sizeof(double));
  out->sizes = calloc((size_t)(what->m * n), sizeof(double));
  out->lost = calloc((size_t)(what->m * n), sizeof(double));
  out->tops = calloc((size_t)(what->m * n), sizeof(double));
  for (int64_t i = 0; !raw && out->sums != NULL && out->sizes != NULL && i < what->m * n; i++) {
    two_sums(values + i / n * k, weight->values + i % n * k, k, &out->sums[i], &out->sizes[i]);
    out->sums[i] += bias != NULL ? (double)bias[i % n] : 0;
    out->sizes[i] += bias != NULL ? fabs((double)bias[i % n]) : 0;
  }
  if (what->shape.format == GEMM_FORMAT_BF16 && out->lost != NULL)
    sum_lost(what, values, weight->values, out->lost);
  if (what->shape.format == GEMM_FORMAT_INT2 && what->y_type == GEMM_F32 && out->tops != NULL)
    sum_tops(what, values, weight->values, out->tops);
  free(values);
}

void adversary_reference_free(struct adversary_reference *reference) {
  free(reference->sums);
  free(reference->sizes);
  free(reference->lost);
  free(reference->tops);
}

/* ---- the measure */

/* The first magnitude that rounds to infinity, and half of the smallest subnormal. */
static void range_of(enum gemm_type type, double *overflow, double *half_quantum) {
  *overflow = type == GEMM_F16 ? 65520 : type == GEMM_BF16 ? 0x1.ffp127 : type == GEMM_S32 ? 0x1p40 : 0x1.ffffffp127;
  *half_quantum = type == GEMM_F16 ? 0x1p-25 : type == GEMM_S32 ? 0 : 0x1p-134;
}

/* How far one element is off; infinite where nothing excuses it. */
static double element_off(const struct adversary_case *what, double slack, double sum, double value) {
  double overflow, half_quantum;
  range_of(what->y_type, &overflow, &half_quantum);
  if (isnan(value))
    return INFINITY;
  if (isinf(value))
    return fabs(sum) + 1.01 * slack > 0.999 * overflow && ((value > 0) == (sum > 0) || fabs(sum) <= 2 * slack)
               ? 0
               : INFINITY;
  if (fabs(sum) - slack > 1.001 * overflow)
    return INFINITY;
  /* Scaled sums below the smallest normal f32 may be 0. */
  double lost = what->y_type == GEMM_S32 ? 0 : 0x1p-126 * (double)what->shape.k;
  return fmax(0, fabs(value - sum) - half_quantum - lost);
}

double adversary_allowed(const struct adversary_bound *bound, const struct adversary_row *row) {
  return bound->value * row->value + bound->size * row->size + bound->top * row->top;
}

struct adversary_row adversary_judge(const struct adversary_case *what, const struct adversary_bound *bound,
                                     const struct adversary_reference *reference, int64_t row_of_y, const void *y) {
  struct adversary_row row = {0};
  const double *sums = reference->sums + row_of_y * what->shape.n, *sizes = reference->sizes + row_of_y * what->shape.n;
  const double *lost = reference->lost + row_of_y * what->shape.n, *tops = reference->tops + row_of_y * what->shape.n;
  for (int64_t n = 0; n < what->shape.n; n++) {
    if (sizes[n] > 0x1p126) {
      row.spared++;
      continue;
    }
    double top = bound->top > 0 ? fmin(tops[n], bound->top_most / bound->top * sizes[n]) : 0;
    const struct adversary_row here = {.value = fabs(sums[n]), .size = sizes[n], .top = top};
    double off = element_off(what, adversary_allowed(bound, &here), sums[n], oracle_element(y, n, what->y_type));
    off = fmax(0, off - lost[n]);
    row.top += top * top;
    row.off += off * off;
    row.value += sums[n] * sums[n];
    row.size += sizes[n] * sizes[n];
  }
  row.off = sqrt(row.off);
  row.value = sqrt(row.value);
  row.size = sqrt(row.size);
  row.top = sqrt(row.top);
  return row;
}

/* The tables of NUMERICS.md. */
struct adversary_bound adversary_bound(bool device, const struct gemm_weight *shape, enum gemm_type y_type) {
  enum gemm_format format = shape->format;
  double rounding = y_type == GEMM_F32 ? 4e-7 : y_type == GEMM_F16 ? 4.9e-4 : 3.92e-3, sums = 2e-5, top = 0;
  if (y_type == GEMM_S32)
    return (struct adversary_bound){0};
  if (format == GEMM_FORMAT_INT8 || format == GEMM_FORMAT_INT2A8)
    sums = 1e-6;
  else if (format == GEMM_FORMAT_INT4A8)
    sums = fmax(1e-6, (double)shape->k * 0x1p-30);
  else if (device && format == GEMM_FORMAT_FP8)
    sums = y_type == GEMM_BF16 ? 1.6e-2 : 3.9e-3;
  else if (device && format == GEMM_FORMAT_INT2)
    sums = y_type == GEMM_F32 ? fmax(sums, (double)shape->k * 0x1p-31) : 2.5e-4;
  else if (device)
    sums = 1e-3;
  else
    sums = fmax(sums, (double)shape->k * 0x1p-24);
  if (device && format == GEMM_FORMAT_INT2 && y_type == GEMM_F32)
    top = 6e-7;
  return (struct adversary_bound){.value = rounding, .size = sums, .top = top, .top_most = 1.5e-3};
}
