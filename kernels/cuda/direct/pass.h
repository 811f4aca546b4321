/* One product of a job of enqueue, or of a step of its sequence: x as the kernel reads it, and y where the caller wants
 * it. */
#pragma once

#include "../exec/staging.h"
#include "../families/family.h"
#include "../state.h"

/* Some rows of it. */
struct direct_pass {
  struct backend *backend;
  const struct slot *lane;
  cudaStream_t stream;
  const struct backend_weight *weight;
  const struct variant *variant; /* NULL: the selector's choice */
  struct staging at;
  int64_t rows, rows_padded;
  enum gemm_type x_type, y_type, bias_type;
  const void *x; /* at first as it comes, then as the kernel reads it */
  uint64_t x_stride;
  const float *x_scale;
  const void *bias;
  void *y;
  uint64_t y_stride;
  bool early; /* the next kernel may start before the one ahead has ended */
};

void *direct_staged(const struct direct_pass *pass, uint64_t offset);
/* Makes of x what the kernel reads, where it is not that already. */
cudaError_t direct_stage(struct direct_pass *pass);
/* The same of what is staged as it comes, in rows of weight.k, for a weight that changes x. */
cudaError_t direct_input(struct direct_pass *pass);
/* The product of what is staged. pass->y and y_stride are where y is afterwards: where they have been before, or where
 * `anywhere` y was left in staging memory without a copy. */
MUST_CHECK enum status direct_product(struct direct_pass *pass, bool anywhere, struct error *error);
