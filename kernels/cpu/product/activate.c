#include "activate.h"

#include "../../../proto/number.h"

#include <math.h>

/* Elements below which waking other threads costs more than it saves. */
enum { WORTH_SHARING = 1 << 12 };

static float load(const void *data, int64_t i, enum gemm_type type) {
  if (type == GEMM_F32)
    return ((const float *)data)[i];
  uint16_t bits = ((const uint16_t *)data)[i];
  return type == GEMM_F16 ? number_from_f16(bits) : number_from_bf16(bits);
}

static void store(void *data, int64_t i, enum gemm_type type, float value) {
  if (type == GEMM_F32)
    ((float *)data)[i] = value;
  else
    ((uint16_t *)data)[i] = type == GEMM_F16 ? number_to_f16(value) : number_to_bf16(value);
}

static float activate(float v, enum gemm_activation activation) {
  switch (activation) {
  case GEMM_RELU:
    return v < 0 ? 0 : v;
  case GEMM_GELU:
    return 0.5f * v * erfcf(v * -0.70710678f); /* does not cancel where v is far below 0 */
  case GEMM_SILU:
    return v / (1.0f + expf(-v));
  default:
    return v;
  }
}

/* Comparisons that leave a NaN as it is. */
static float between(float v, float low, float high) {
  return v > high ? high : v < low ? low : v;
}

static float gated(float gate, float up, enum gemm_activation activation) {
  if (activation != GEMM_SWIGLU_CLAMPED)
    return activate(gate, activation) * up;
  gate = between(gate, -INFINITY, 7.0f);
  return gate / (1.0f + expf(-1.702f * gate)) * (between(up, -7.0f, 7.0f) + 1.0f);
}

static void run_part(void *context, int part, int parts) {
  const struct activate_task *task = context;
  int64_t width = task->gated ? 2 * task->columns : task->columns, elements = task->rows * task->columns;
  for (int64_t at = elements * part / parts; at < elements * (part + 1) / parts; at++) {
    int64_t row = at / task->columns, column = at % task->columns;
    float first = load(task->v, row * width + column, task->type);
    float value = task->gated
                      ? gated(first, load(task->v, row * width + task->columns + column, task->type), task->activation)
                      : activate(first, task->activation);
    store((uint8_t *)task->out + (uint64_t)row * task->out_stride, column, task->type, value);
  }
}

void cpu_activate(struct cpu_pool *pool, const struct activate_task *task) {
  struct activate_task own = *task;
  bool alone = task->rows * task->columns < WORTH_SHARING;
  cpu_pool_run(pool, alone ? 1 : cpu_pool_threads(pool), run_part, &own);
}
