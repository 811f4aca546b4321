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
/* Row `row` of y: sums[i] * factor * scales[i] + bias[i]. */
void cpu_epilogue_row(const struct epilogue *epilogue, int64_t row, const void *sums, double factor);

#endif
