/* Launcher of int2_many/kernel.cuh. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_INT2_MANY_LAUNCH_H
#define KERNELS_CUDA_FAMILIES_SM90_INT2_MANY_LAUNCH_H

#include "config.h"

#include <cuda.h>
#include <driver_types.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct int2_many_product {
  int64_t m, n;
  const void *tiles;     /* the weight: INT2, or INT2A8 where x is INT8 */
  enum gemm_type x_type; /* F16, BF16 or INT8 */
  const float *x_scale;  /* [m], INT8 */
  const void *bias;      /* [n], or NULL */
  enum gemm_type bias_type;
  void *y; /* [m, n], aligned to an element */
  enum gemm_type y_type;
  uint64_t y_stride; /* bytes */
  bool large_scales; /* INT2: whether any scale is 2^15 or more, twice which is no f16: so all are halved, and y
                        doubled; of those below 2^-13 odd multiples of 2^-24 lose the half of that */
  void *sums;        /* int2_many_sums_bytes of words INT2_MANY_NOTHING, aligned to 16 bytes; left as they are */
};

/* Queues the product. `x`: tensor map of its rows, whole units of K, in boxes of config->columns rows. `dependent`: W
 * may be read before the kernel ahead in the stream has ended. Up to INT2_MANY_SPLIT_MOST neighbours wait for each
 * other: `together` where so many products run at the same time that some of each might fill the device and wait for
 * the others. It takes 0.8 us longer. */
cudaError_t int2_many_launch(cudaStream_t stream, const struct int2_many_config *config,
                             const struct int2_many_plan *plan, const struct int2_many_product *product,
                             const CUtensorMap *x, bool dependent, bool together);

/* One kernel of the file, which leads to the others. */
const void *kernel_of_int2_many(void);

#ifdef __cplusplus
}
#endif
#endif
