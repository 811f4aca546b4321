/* A job over experts, some rows of it, queued on a stream: rows of x to their experts, the products, what stands
 * between them, and y. The host never learns which experts those are. */
#pragma once

#include "../state.h"

/* Tensors are where the device can address them, those of the run's first row. */
struct experts_run {
  struct backend *backend;
  struct selector *selector;
  cudaStream_t stream;
  const struct backend_job *job; /* weights, steps, types and kernels; tensors are these: */
  int64_t rows;                  /* of the M */
  const void *x;
  uint64_t x_stride;
  const int32_t *ids;
  const float *routing;              /* NULL: 1 */
  const void *bias[GEMM_STEPS_MOST]; /* [E, N] of each step; NULL: none */
  void *y;
  uint64_t y_stride;
  uint32_t *skipped;  /* the number of pairs that were skipped is added; NULL: nobody counts */
  CUdeviceptr memory; /* of the bytes that experts_run_rows was told, aligned to EXPERTS_ALIGN */
  void *workspace;    /* kernel_device's workspace_bytes */
  bool early;         /* it may begin while the kernel ahead still runs */
  bool sorted;        /* `memory` holds the rows as the same run of one product has sorted them */
};

/* The most rows, up to `rows`, that go at a time where each takes `outside` bytes beside; NOMEM where not one does. */
MUST_CHECK enum status experts_run_rows(const struct backend_job *job, int64_t rows, uint64_t outside, uint64_t bytes,
                                        int64_t *out, struct error *error);
MUST_CHECK enum status experts_run(const struct experts_run *run, struct error *error);
/* What a weight wants of memory where products of so many pairs come, in a layer, too, whose other weights have the
 * same format and no longer sides. */
uint64_t experts_weight_bytes(const struct gemm_weight *weight, const struct layout *layout, int64_t pairs);
/* Columns of y, and rows of it for each of the M. */
int64_t experts_columns(const struct backend_job *job);
int64_t experts_y_rows(const struct backend_job *job);
int64_t experts_x_rows(const struct backend_job *job);
