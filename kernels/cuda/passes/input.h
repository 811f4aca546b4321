/* Launchers of input.cuh: x as a weight wants it, which is not as it comes (enum gemm_input). Pointers are device
 * memory, aligned to 256 bytes unless said otherwise. */
#pragma once

#include "../linkage.h"
#include "quantize.h"

C_LINKAGE_BEGIN

/* launch_quantize_rows of x as the pass's input wants it. */
cudaError_t launch_quantize_input(cudaStream_t stream, const struct quantize_pass *pass);

/* Rows of x in another order, as they are otherwise, for products that read it so. */
struct order_pass {
  const void *x;
  enum gemm_type type; /* F32, F16 or BF16 */
  uint64_t x_stride;   /* bytes */
  int64_t rows, k;
  int64_t columns; /* of a row of `to`, which are dense; zeros from k on */
  const uint32_t *order;
  void *to;
  bool dependent; /* as of struct quantize_pass */
};
cudaError_t launch_order(cudaStream_t stream, const struct order_pass *pass);

C_LINKAGE_END
