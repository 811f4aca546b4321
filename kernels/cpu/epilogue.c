#include "epilogue.h"

#include "weight.h"

#include <string.h>

void cpu_epilogue_begin(struct epilogue *epilogue, const struct micro_ops *micro, const struct backend_job *job,
                        int64_t panel, bool integer) {
  const struct backend_weight *weight = job->weight;
  int64_t n = panel * weight->layout.width, left = weight->shape.n - n;
  *epilogue = (struct epilogue){.micro = micro,
                                .job = job,
                                .n = n,
                                .columns = left < weight->layout.width ? (int)left : weight->layout.width,
                                .scales = cpu_weight_scales(weight, panel),
                                .ordinary = weight->ordinary,
                                .integer = integer};
  switch (job->bias_type) {
  case GEMM_F32:
    memcpy(epilogue->bias, (const float *)job->bias + n, (size_t)epilogue->columns * sizeof(float));
    break;
  case GEMM_F16:
    micro->widen_f16((const uint16_t *)job->bias + n, epilogue->bias, epilogue->columns);
    break;
  case GEMM_BF16:
    micro->widen_bf16((const uint16_t *)job->bias + n, epilogue->bias, epilogue->columns);
    break;
  default:
    break;
  }
}

/* In f64 where a bias may cancel what f32 has rounded, and where f32 would overflow or lose bits on the way. */
static void finish(const struct epilogue *epilogue, const void *sums, double factor, float *to) {
  const struct micro_ops *micro = epilogue->micro;
  const float *scales = epilogue->scales, *bias = epilogue->bias;
  int columns = epilogue->columns;
  bool wide = epilogue->job->bias_type != GEMM_TYPE_NONE || !epilogue->ordinary || !cpu_weight_is_ordinary(factor);
  if (wide && epilogue->integer) {
    micro->finish_s32_wide(sums, factor, scales, bias, to, columns);
  } else if (wide) {
    micro->finish_f32_wide(sums, factor, scales, bias, to, columns);
  } else if (epilogue->integer) {
    micro->finish_s32(sums, (float)factor, scales, to, columns);
  } else {
    micro->finish_f32(sums, (float)factor, scales, to, columns);
  }
}

void cpu_epilogue_row(const struct epilogue *epilogue, int64_t row, const void *sums, double factor) {
  const struct backend_job *job = epilogue->job;
  uint8_t *y = (uint8_t *)job->y + (uint64_t)row * job->y_stride;
  float values[MICRO_WIDTH];
  switch (job->y_type) {
  case GEMM_S32:
    memcpy((int32_t *)y + epilogue->n, sums, (size_t)epilogue->columns * sizeof(int32_t));
    break;
  case GEMM_F16:
    finish(epilogue, sums, factor, values);
    epilogue->micro->narrow_f16(values, (uint16_t *)y + epilogue->n, epilogue->columns);
    break;
  case GEMM_BF16:
    finish(epilogue, sums, factor, values);
    epilogue->micro->narrow_bf16(values, (uint16_t *)y + epilogue->n, epilogue->columns);
    break;
  default:
    finish(epilogue, sums, factor, (float *)y + epilogue->n);
  }
}
