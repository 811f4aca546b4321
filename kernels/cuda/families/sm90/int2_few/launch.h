/* Launcher of int2_few/kernel.cuh. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_INT2_FEW_LAUNCH_H
#define KERNELS_CUDA_FAMILIES_SM90_INT2_FEW_LAUNCH_H

#include "config.h"

#include <driver_types.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct int2_few_product {
  int64_t m, n;      /* m: at most int2_few_rows_most */
  const void *tiles; /* the weight */
  const void *x;     /* rows of K rounded up to 128, zeros behind K; aligned to 16 bytes */
  enum gemm_type x_type;
  uint64_t x_stride; /* bytes, a multiple of 16 */
  const void *bias;  /* [n], or NULL */
  enum gemm_type bias_type;
  void *y; /* [m, n], aligned to an element; may be mapped host memory */
  enum gemm_type y_type;
  uint64_t y_stride; /* bytes */
};

/* Queues the product, by the narrowest of the weight's ways that holds it. `dependent`: it may be started before the
 * kernel ahead in the stream has ended. */
cudaError_t int2_few_launch(cudaStream_t stream, const struct int2_few_way ways[INT2_FEW_WAYS],
                            const struct int2_few_product *product, bool dependent);

/* One kernel of the file, which leads to the others. */
const void *kernel_of_int2_few(void);

#ifdef __cplusplus
}
#endif
#endif
