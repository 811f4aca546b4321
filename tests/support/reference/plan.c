#include "plan.h"

#include "proto/number.h"

#include <math.h>
#include <stdlib.h>

int64_t oracle_step_columns(const struct oracle_step *step) {
  return step->gated ? step->weight->shape.n / 2 : step->weight->shape.n;
}

static void store(void *data, int64_t i, enum gemm_type type, double value) {
  float rounded = (float)value;
  if (type == GEMM_F32)
    ((float *)data)[i] = rounded;
  else
    ((uint16_t *)data)[i] = type == GEMM_F16 ? number_to_f16(rounded) : number_to_bf16(rounded);
}

void oracle_x_from(struct oracle_x *out, const double *values, int64_t m, int64_t k, enum gemm_type type) {
  *out = (struct oracle_x){.m = m, .k = k, .type = type, .scale_columns = 1};
  out->data = malloc((size_t)(m * k) * gemm_type_bytes(type));
  if (out->data == NULL)
    abort();
  for (int64_t i = 0; i < m * k; i++)
    store(out->data, i, type, values[i]);
}

static double activate(double v, enum gemm_activation activation) {
  switch (activation) {
  case GEMM_RELU:
    return v < 0 ? 0 : v;
  case GEMM_GELU:
    return v * erfc(-v / sqrt(2)) / 2;
  case GEMM_SILU:
    return v / (1 + exp(-v));
  default:
    return v;
  }
}

static double gated(double gate, double up, enum gemm_activation activation) {
  if (activation != GEMM_SWIGLU_CLAMPED)
    return activate(gate, activation) * up;
  double g = gate > 7 ? 7 : gate, u = up > 7 ? 7 : up < -7 ? -7 : up;
  return g / (1 + exp(-1.702 * g)) * (u + 1);
}

double *oracle_activate(const struct oracle_step *step, const void *v, int64_t m) {
  int64_t n = step->weight->shape.n, columns = oracle_step_columns(step);
  double *out = malloc((size_t)(m * columns) * sizeof *out);
  if (out == NULL)
    abort();
  for (int64_t row = 0; row < m; row++)
    for (int64_t i = 0; i < columns; i++) {
      double first = oracle_element(v, row * n + i, step->y_type);
      out[row * columns + i] =
          step->gated ? gated(first, oracle_element(v, row * n + columns + i, step->y_type), step->activation)
                      : activate(first, step->activation);
    }
  return out;
}

/* The largest element over the root mean square of a row; 0 where the row is zero or not finite. */
static double crest(const double *row, int64_t k) {
  double square = 0, largest = 0;
  for (int64_t i = 0; i < k; i++) {
    square += row[i] * row[i];
    largest = fmax(largest, fabs(row[i]));
  }
  return square > 0 && isfinite(square) ? largest / sqrt(square / (double)k) : 0;
}

/* What an error of a row of x becomes where elements go to the next code for it. As many do as it has steps from one
 * code to the next, give or take three standard deviations. An INT8 code's step is a 1/127 of the largest element. In
 * FP8 it is an eighth of the element, and few elements may make the row. */
static double code_error(enum gemm_format format, double error, const double *row, int64_t k) {
  double step = crest(row, k) / 127;
  if (error == 0 || step == 0 || !gemm_quantizes_x(format))
    return 0;
  if (format == GEMM_FORMAT_FP8)
    return sqrt(error * 0.5);
  double others = error / step * (double)k, most = others + 3 * sqrt(others) + 1;
  return step * sqrt(fmin(most / (double)k, 1));
}

/* Lets the errors of x, [x->m], through a step. */
static void errors_move(double *errors, const struct oracle_step *step, const double *x_values, int64_t m) {
  const struct gemm_weight *shape = &step->weight->shape;
  double gate = oracle_gate(shape->format, step->y_type);
  bool activates = step->gated || step->activation != GEMM_ACTIVATION_NONE;
  for (int64_t row = 0; row < m; row++) {
    double error = errors[row] + code_error(shape->format, errors[row], x_values + row * shape->k, shape->k) + gate;
    errors[row] = activates ? 2 * error + gate : error;
  }
}

struct oracle_answer oracle_plan(const struct oracle_x *x, const struct oracle_step *steps, int count) {
  struct oracle_x own = {.data = NULL};
  struct oracle_answer answer = {.gates = calloc((size_t)x->m, sizeof(double))};
  if (answer.gates == NULL)
    abort();
  for (int i = 0; i < count; i++) {
    const struct oracle_step *step = &steps[i];
    const struct oracle_x *from = i == 0 ? x : &own;
    struct oracle_x v;
    double *values = oracle_x_seen(from, step->weight, false);
    double *sums = oracle_product(values, x->m, step->weight, step->bias);
    bool plain = !step->gated && step->activation == GEMM_ACTIVATION_NONE;
    errors_move(answer.gates, step, values, x->m);
    free(values);
    free(answer.y);
    free(own.data);
    own.data = NULL;
    if (plain) {
      answer.y = sums;
    } else {
      oracle_x_from(&v, sums, x->m, step->weight->shape.n, step->y_type);
      answer.y = oracle_activate(step, v.data, x->m);
      free(v.data);
      free(sums);
    }
    if (i + 1 < count)
      oracle_x_from(&own, answer.y, x->m, oracle_step_columns(step), step->y_type);
  }
  free(own.data);
  return answer;
}

void oracle_answer_free(struct oracle_answer *answer) {
  free(answer->y);
  free(answer->gates);
  *answer = (struct oracle_answer){.y = NULL};
}
