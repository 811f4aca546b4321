#include "epilogue.h"

#include "../../proto/number.h"

static double bias_of(const struct backend_job *job, int64_t n) {
  switch (job->bias_type) {
  case GEMM_F32:
    return ((const float *)job->bias)[n];
  case GEMM_F16:
    return number_from_f16(((const uint16_t *)job->bias)[n]);
  case GEMM_BF16:
    return number_from_bf16(((const uint16_t *)job->bias)[n]);
  default:
    return 0;
  }
}

static void store(uint8_t *row, int64_t n, enum gemm_type type, float value) {
  switch (type) {
  case GEMM_F16:
    ((uint16_t *)row)[n] = number_to_f16(value);
    break;
  case GEMM_BF16:
    ((uint16_t *)row)[n] = number_to_bf16(value);
    break;
  default:
    ((float *)row)[n] = value;
  }
}

void cpu_epilogue_column(const struct backend_job *job, int64_t first, int rows, int64_t n, const double *sums,
                         const double *factors, double scale) {
  double bias = bias_of(job, n);
  uint8_t *row = (uint8_t *)job->y + (uint64_t)first * job->y_stride;
  for (int i = 0; i < rows; i++, row += job->y_stride) {
    store(row, n, job->y_type, (float)(sums[i] * (factors[i] * scale) + bias));
  }
}

void cpu_epilogue_raw(const struct backend_job *job, int64_t first, int rows, int64_t n, const int32_t *sums) {
  uint8_t *row = (uint8_t *)job->y + (uint64_t)first * job->y_stride;
  for (int i = 0; i < rows; i++, row += job->y_stride) {
    ((int32_t *)row)[n] = sums[i];
  }
}
