/* From sums to y: scales, bias, and the one rounding to y's type. */
#ifndef KERNELS_CPU_EPILOGUE_H
#define KERNELS_CPU_EPILOGUE_H

#include "../backend.h"

/* `rows` elements of column n of y, from row `first` on: sums[i] * factors[i] * scale + bias. f64 holds the product of
 * two scales and an s32 sum without overflow, and y is rounded once. */
void cpu_epilogue_column(const struct backend_job *job, int64_t first, int rows, int64_t n, const double *sums,
                         const double *factors, double scale);
/* The same for y of type S32: the sums as they are. */
void cpu_epilogue_raw(const struct backend_job *job, int64_t first, int rows, int64_t n, const int32_t *sums);

#endif
