#include "epilogue.h"

#include "../weight/weight.h"

#include <string.h>

void cpu_epilogue_begin(struct epilogue *epilogue, const struct micro_ops *micro, const struct backend_job *job,
                        const struct stage *stage, int64_t first, int64_t panel, bool integer, bool rows_ordinary) {
  const struct backend_weight *weight = job->weight;
  int64_t n = panel * weight->layout.width, left = weight->shape.n - n;
  epilogue->micro = micro;
  epilogue->job = job;
  epilogue->stage = stage;
  epilogue->first = first;
  epilogue->n = n;
  epilogue->columns = left < weight->layout.width ? (int)left : weight->layout.width;
  epilogue->integer = integer;
  epilogue->scales = cpu_weight_scales(weight, panel);
  epilogue->ordinary = weight->ordinary;
  epilogue->fused = rows_ordinary && weight->ordinary && job->bias_type == GEMM_TYPE_NONE && job->y_type != GEMM_S32 &&
                    epilogue->columns == cpu_layout_width(&weight->layout, &weight->shape, panel);
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
    memset(epilogue->bias, 0, sizeof(epilogue->bias));
  }
}

/* Whether a row needs f64: where a bias may cancel what f32 has rounded, and where f32 would overflow or lose bits on
 * the way. */
static bool is_wide(const struct epilogue *epilogue, int64_t place) {
  return epilogue->job->bias_type != GEMM_TYPE_NONE || !epilogue->ordinary || !epilogue->stage->ordinary[place];
}

/* Rows from `place` on that are all wide or all not, MICRO_ROWS at most. */
static int alike(const struct epilogue *epilogue, int64_t place, int64_t rows) {
  int count = 1;
  bool wide = is_wide(epilogue, place);
  while (count < MICRO_ROWS && count < rows && is_wide(epilogue, place + count) == wide) {
    count++;
  }
  return count;
}

static uint8_t *y_of(const struct epilogue *epilogue, int64_t place) {
  const struct backend_job *job = epilogue->job;
  return (uint8_t *)job->y + (uint64_t)(epilogue->first + place) * job->y_stride +
         (uint64_t)epilogue->n * gemm_type_bytes(job->y_type);
}

/* To y where that is f32, else to `values`. */
static struct micro_finish finish_of(const struct epilogue *epilogue, int64_t place, int rows, const void *sums,
                                     float *values) {
  bool direct = epilogue->job->y_type == GEMM_F32;
  return (struct micro_finish){.sums = sums,
                               .rows = rows,
                               .columns = epilogue->columns,
                               .factors = epilogue->stage->factors + place,
                               .scales = epilogue->scales,
                               .bias = epilogue->bias,
                               .to = direct ? (float *)y_of(epilogue, place) : values,
                               .stride = direct ? (int64_t)(epilogue->job->y_stride / sizeof(float)) : MICRO_WIDTH};
}

void cpu_epilogue_narrow(const struct epilogue *epilogue, int64_t place, int rows, const void *sums) {
  const struct backend_job *job = epilogue->job;
  const float *values = sums;
  uint8_t *y = y_of(epilogue, place);
  for (int row = 0; row < rows && job->y_type != GEMM_F32; row++, y += job->y_stride, values += MICRO_WIDTH) {
    if (job->y_type == GEMM_S32) {
      memcpy(y, values, (size_t)epilogue->columns * sizeof(int32_t));
    } else if (job->y_type == GEMM_F16) {
      epilogue->micro->narrow_f16(values, (uint16_t *)y, epilogue->columns);
    } else {
      epilogue->micro->narrow_bf16(values, (uint16_t *)y, epilogue->columns);
    }
  }
}

static void store_rows(const struct epilogue *epilogue, int64_t place, int rows, const void *sums) {
  const struct micro_ops *micro = epilogue->micro;
  float values[MICRO_ROWS * MICRO_WIDTH];
  bool wide = is_wide(epilogue, place), raw = epilogue->job->y_type == GEMM_S32;
  struct micro_finish finish = finish_of(epilogue, place, rows, sums, values);
  if (!raw && epilogue->integer) {
    wide ? micro->finish_s32_wide(&finish) : micro->finish_s32(&finish);
  } else if (!raw) {
    wide ? micro->finish_f32_wide(&finish) : micro->finish_f32(&finish);
  }
  cpu_epilogue_narrow(epilogue, place, rows, raw ? sums : values);
}

void cpu_epilogue_rows(const struct epilogue *epilogue, int64_t place, int64_t rows, const void *sums) {
  for (int64_t done = 0; done < rows;) {
    int some = alike(epilogue, place + done, rows - done);
    store_rows(epilogue, place + done, some, (const float *)sums + done * MICRO_WIDTH);
    done += some;
  }
}

void cpu_epilogue_fuse(const struct epilogue *epilogue, int64_t place, int rows, void *sums, struct micro_finish *out) {
  *out = finish_of(epilogue, place, rows, NULL, sums);
}
