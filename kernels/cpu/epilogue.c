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

/* Whether a row needs f64: where a bias may cancel what f32 has rounded, and where f32 would overflow or lose bits on
 * the way. */
static bool is_wide(const struct epilogue *epilogue, double factor) {
  return epilogue->job->bias_type != GEMM_TYPE_NONE || !epilogue->ordinary || !cpu_weight_is_ordinary(factor);
}

/* Rows from the first on that are all wide or all not, MICRO_ROWS at most. */
static int alike(const struct epilogue *epilogue, int64_t rows, const double *factors) {
  int count = 1;
  bool wide = is_wide(epilogue, factors[0]);
  while (count < MICRO_ROWS && count < rows && is_wide(epilogue, factors[count]) == wide) {
    count++;
  }
  return count;
}

static void finish_rows(const struct epilogue *epilogue, int rows, const void *sums, const double *factors, float *to,
                        int64_t stride) {
  const struct micro_ops *micro = epilogue->micro;
  const struct micro_finish finish = {.sums = sums,
                                      .rows = rows,
                                      .columns = epilogue->columns,
                                      .factors = factors,
                                      .scales = epilogue->scales,
                                      .bias = epilogue->bias,
                                      .to = to,
                                      .stride = stride};
  bool wide = is_wide(epilogue, factors[0]);
  if (epilogue->integer) {
    wide ? micro->finish_s32_wide(&finish) : micro->finish_s32(&finish);
  } else {
    wide ? micro->finish_f32_wide(&finish) : micro->finish_f32(&finish);
  }
}

static void store_rows(const struct epilogue *epilogue, uint8_t *y, int rows, const void *sums, const double *factors) {
  const struct backend_job *job = epilogue->job;
  float values[MICRO_ROWS][MICRO_WIDTH];
  if (job->y_type == GEMM_F32) {
    finish_rows(epilogue, rows, sums, factors, (float *)y, (int64_t)(job->y_stride / sizeof(float)));
    return;
  }
  if (job->y_type != GEMM_S32) {
    finish_rows(epilogue, rows, sums, factors, values[0], MICRO_WIDTH);
  }
  for (int row = 0; row < rows; row++, y += job->y_stride) {
    if (job->y_type == GEMM_S32) {
      memcpy(y, (const int32_t *)sums + row * MICRO_WIDTH, (size_t)epilogue->columns * sizeof(int32_t));
    } else if (job->y_type == GEMM_F16) {
      epilogue->micro->narrow_f16(values[row], (uint16_t *)y, epilogue->columns);
    } else {
      epilogue->micro->narrow_bf16(values[row], (uint16_t *)y, epilogue->columns);
    }
  }
}

void cpu_epilogue_rows(const struct epilogue *epilogue, int64_t row, int64_t rows, const void *sums,
                       const double *factors) {
  const struct backend_job *job = epilogue->job;
  uint8_t *y = (uint8_t *)job->y + (uint64_t)row * job->y_stride;
  y += (uint64_t)epilogue->n * gemm_type_bytes(job->y_type);
  for (int64_t done = 0; done < rows;) {
    int some = alike(epilogue, rows - done, factors + done);
    store_rows(epilogue, y + (uint64_t)done * job->y_stride, some, (const float *)sums + done * MICRO_WIDTH,
               factors + done);
    done += some;
  }
}
