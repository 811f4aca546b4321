/* Numbers to try and measure products of two tensors with, made on the device. */
#pragma once

#include "../../../proto/gemm.h"
#include "../linkage.h"

#include <driver_types.h>

C_LINKAGE_BEGIN

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

C_LINKAGE_END
