/* Launcher of int2a8/kernel.cuh. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_INT2A8_LAUNCH_H
#define KERNELS_CUDA_FAMILIES_SM90_INT2A8_LAUNCH_H

#include "config.h"

#include <driver_types.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct int2a8_product {
  int64_t m, n;         /* m: at most 8 * eights of the way */
  const void *tiles;    /* the weight */
  const int8_t *x;      /* rows of K rounded up to INT2A8_TILE_K, zeros behind K; aligned to 16 bytes */
  int64_t x_stride;     /* a multiple of 16 */
  const float *x_scale; /* [m] */
  const void *bias;     /* [n], or NULL */
  enum gemm_type bias_type;
  void *y; /* [m, n], aligned to an element; may be mapped host memory */
  enum gemm_type y_type;
  uint64_t y_stride; /* bytes */
};

/* Queues the product. `dependent`: W may be read before the kernel ahead in the stream has ended. */
cudaError_t int2a8_launch(cudaStream_t stream, const struct int2a8_way *way, const struct int2a8_product *product,
                          bool dependent);

/* One kernel of the file, which leads to the others. */
const void *kernel_of_int2a8(void);

#ifdef __cplusplus
}
#endif
#endif
