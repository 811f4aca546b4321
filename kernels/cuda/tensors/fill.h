/* Numbers to try and measure products of two tensors with, made on the device. */
#ifndef KERNELS_CUDA_TENSORS_FILL_H
#define KERNELS_CUDA_TENSORS_FILL_H

#include "../../../proto/gemm.h"

#include <driver_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers in [-1, 1) that look random; those of a row are those of the one `kinds` rows before (0: all differ). */
struct tensors_fill {
  void *to;
  enum gemm_type type; /* F16 or BF16 */
  int64_t rows, k;
  uint64_t stride; /* bytes */
  bool turned;     /* [k, rows] */
  int64_t kinds;
  uint32_t seed;
};
cudaError_t tensors_fill_launch(cudaStream_t stream, const struct tensors_fill *fill);

#ifdef __cplusplus
}
#endif
#endif
