/* From sums to y: scales, bias, and the one rounding to y's type. */
#pragma once

#include "../../backend.h"
#include "../micro/micro.h"
#include "stage.h"

/* What a panel's columns share. */
struct epilogue {
  const struct micro_ops *micro;
  const struct backend_job *job;
  const struct stage *stage;
  int64_t first; /* the row of y that is the stage's first */
  int64_t n;     /* the panel's first column of y */
  int columns;
  bool integer;        /* the sums are s32 */
  const float *scales; /* [columns] */
  bool ordinary;       /* the scales are: see cpu_weight_is_ordinary */
  bool fused;          /* tiles may multiply their sums by themselves: cpu_epilogue_fuse */
  float bias[MICRO_WIDTH];
};

/* `rows_ordinary`: stage->ordinary of every row that will come. */
void cpu_epilogue_begin(struct epilogue *epilogue, const struct micro_ops *micro, const struct backend_job *job,
                        const struct stage *stage, int64_t first, int64_t panel, bool integer, bool rows_ordinary);

/* `rows` rows of y from place `place` of the stage on: sums[r][i] * factor * scales[i] + bias[i]. What a row becomes
 * depends on itself alone. */
void cpu_epilogue_rows(const struct epilogue *epilogue, int64_t place, int64_t rows, const void *sums);

/* The same in two steps, where `fused`: a tile multiplies its sums while they are in registers, as *out says, and
 * cpu_epilogue_narrow with the same `sums` comes behind it. `sums` holds what is not f32 on its way to y. */
void cpu_epilogue_fuse(const struct epilogue *epilogue, int64_t place, int rows, void *sums, struct micro_finish *out);
void cpu_epilogue_narrow(const struct epilogue *epilogue, int64_t place, int rows, const void *sums);
