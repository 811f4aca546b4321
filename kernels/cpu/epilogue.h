/* From sums to y: scales, bias, and the one rounding to y's type. */
#ifndef KERNELS_CPU_EPILOGUE_H
#define KERNELS_CPU_EPILOGUE_H

#include "../backend.h"
#include "micro.h"

/* What a panel's columns share. */
struct epilogue {
  const struct micro_ops *micro;
  const struct backend_job *job;
  int64_t n; /* the panel's first column of y */
  int columns;
  const float *scales; /* [columns] */
  bool ordinary;       /* the scales are: see cpu_weight_is_ordinary */
  bool integer;        /* the sums are s32 */
  float bias[MICRO_WIDTH];
};

void cpu_epilogue_begin(struct epilogue *epilogue, const struct micro_ops *micro, const struct backend_job *job,
                        int64_t panel, bool integer);
/* `rows` rows of y from `row` on: sums[r][i] * factors[r] * scales[i] + bias[i]. What a row becomes depends on itself
 * alone. */
void cpu_epilogue_rows(const struct epilogue *epilogue, int64_t row, int64_t rows, const void *sums,
                       const double *factors);

#endif
