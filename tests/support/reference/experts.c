#include "experts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS_MOST = 8 };

static void *allocate(uint64_t bytes) {
  void *memory = calloc(1, bytes > 0 ? bytes : 1);
  if (memory == NULL) {
    fprintf(stderr, "oracle: out of memory for %llu bytes\n", (unsigned long long)bytes);
    exit(1);
  }
  return memory;
}

/* Codes of all experts, then scales of all, their zero points, their factors: put together of what each has by itself.
 */
void oracle_experts_make(struct oracle_experts *out, const struct gemm_weight *shape, uint64_t seed) {
  struct error error;
  *out = (struct oracle_experts){.each = allocate((uint64_t)shape->experts * sizeof *out->each),
                                 .whole = {.shape = *shape}};
  if (gemm_layout_compute(shape, &out->whole.layout, &error) != STATUS_OK) {
    fprintf(stderr, "oracle: %s\n", error.text);
    exit(1);
  }
  const struct gemm_weight one = gemm_expert(shape);
  uint8_t *codes = out->whole.canonical = allocate(out->whole.layout.total_bytes);
  uint8_t *scales = codes + out->whole.layout.scales_offset;
  for (int64_t e = 0; e < shape->experts; e++) {
    struct oracle_weight *each = &out->each[e];
    oracle_weight_make(each, &one, seed * 1000 + (uint64_t)e);
    memcpy(codes + (uint64_t)e * each->layout.codes_bytes, each->canonical, each->layout.codes_bytes);
    memcpy(scales + (uint64_t)e * each->layout.scales_bytes, each->canonical + each->layout.scales_offset,
           each->layout.scales_bytes);
    memcpy(codes + out->whole.layout.zeros_offset + (uint64_t)e * each->layout.zeros_bytes,
           each->canonical + each->layout.zeros_offset, each->layout.zeros_bytes);
    memcpy(codes + out->whole.layout.factors_offset + (uint64_t)e * each->layout.factors_bytes,
           each->canonical + each->layout.factors_offset, each->layout.factors_bytes);
  }
}

void oracle_experts_free(struct oracle_experts *experts) {
  for (int64_t e = 0; e < experts->whole.shape.experts; e++)
    oracle_weight_free(&experts->each[e]);
  free(experts->each);
  free(experts->whole.canonical);
  *experts = (struct oracle_experts){.each = NULL};
}

static double size_of(const double *row, int64_t n) {
  double square = 0;
  for (int64_t i = 0; i < n; i++)
    square += row[i] * row[i];
  return sqrt(square);
}

/* One pair: the expert's own plan over one row. */
static struct oracle_answer pair_answer(const struct oracle_x *x, int64_t row, int64_t expert,
                                        const struct oracle_layer_step *steps, int count) {
  struct oracle_step own[STEPS_MOST];
  struct oracle_x one = *x;
  one.m = 1;
  one.data = (uint8_t *)x->data + (uint64_t)(row * x->k) * gemm_type_bytes(x->type);
  for (int i = 0; i < count; i++) {
    const struct oracle_layer_step *step = &steps[i];
    own[i] = (struct oracle_step){.weight = &step->experts->each[expert],
                                  .y_type = step->y_type,
                                  .activation = step->activation,
                                  .gated = step->gated};
    own[i].bias = step->bias != NULL ? step->bias + expert * step->experts->whole.shape.n : NULL;
  }
  return oracle_plan(&one, own, count);
}

/* Half of the last place, of a number as large as 1. */
static double rounding(enum gemm_type type) {
  return type == GEMM_BF16 ? 0x1p-8 : type == GEMM_F16 ? 0x1p-11 : 0x1p-23;
}

struct oracle_layer oracle_layer(const struct oracle_x *x, const struct oracle_choice *choice,
                                 const struct oracle_layer_step *steps, int count) {
  const struct oracle_layer_step *last = &steps[count - 1];
  int64_t n = last->experts->whole.shape.n, columns = last->gated ? n / 2 : n;
  struct oracle_layer out = {.rows = choice->sum ? choice->m : choice->m * choice->top};
  out.y = allocate((uint64_t)(out.rows * columns) * sizeof(double));
  out.off = allocate((uint64_t)out.rows * sizeof(double));
  for (int64_t pair = 0; pair < choice->m * choice->top; pair++) {
    int64_t row = choice->sum ? pair / choice->top : pair;
    int32_t id = choice->ids[pair];
    if (id < 0 || id >= last->experts->whole.shape.experts) {
      out.skipped++;
      continue;
    }
    double by = choice->sum && choice->routing != NULL ? (double)choice->routing[pair] : 1;
    struct oracle_answer answer = pair_answer(x, choice->x_pairs ? pair : pair / choice->top, id, steps, count);
    for (int64_t i = 0; i < columns; i++)
      out.y[row * columns + i] += by * answer.y[i];
    double gate = fmax(answer.gates[0], rounding(last->y_type));
    out.off[row] += fabs(by) * gate * size_of(answer.y, columns) * (choice->sum ? 1 + 1e-6 : 1);
    oracle_answer_free(&answer);
  }
  for (int64_t row = 0; choice->sum && row < out.rows; row++)
    out.off[row] += rounding(last->y_type) * size_of(out.y + row * columns, columns);
  return out;
}

void oracle_layer_free(struct oracle_layer *layer) {
  free(layer->y);
  free(layer->off);
  *layer = (struct oracle_layer){.y = NULL};
}
