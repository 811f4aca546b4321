/* Rows of x as the inner loops take them: widened, quantized where the weight's format says so, padded with zeros to
 * whole groups, and in memory of our own, because a client may change its arena at any time. */
#ifndef KERNELS_CPU_STAGE_H
#define KERNELS_CPU_STAGE_H

#include "../backend.h"
#include "micro.h"
#include "weight.h"

struct stage {
  int rows;            /* that it has room for, 1..MICRO_ROWS */
  int64_t k_padded;    /* elements from one row to the next */
  int64_t groups;      /* k_padded / 128 */
  void *values;        /* f32 or (INT8) s16, [rows, k_padded] */
  float *group_scales; /* [rows, groups]; used with BLOCK weights */
  float *scratch;      /* [threads, k_padded]; used with INT8 weights */
  double *factors;     /* [rows]: what a row's sums are multiplied with */
  void *memory;        /* owned; holds all of these */
  uint64_t memory_bytes;
};

/* Lays the stage out for products with this weight and at most m rows at a time. NOMEM with the stage as it was. */
MUST_CHECK enum status cpu_stage_prepare(struct stage *stage, const struct gemm_weight *shape, int64_t m, int threads,
                                         struct error *error);
void cpu_stage_free(struct stage *stage);

/* Row `row` of the job's x to place `place`. Threads may do this at the same time for different places. */
void cpu_stage_row(struct stage *stage, const struct micro_ops *micro, const struct backend_job *job, int64_t row,
                   int place, int thread);

#endif
