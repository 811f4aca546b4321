/* Launcher of epilogue.cuh: y of sums. Pointers are device memory, aligned to 256
 * bytes unless said otherwise. */
#pragma once

#include "../../../proto/gemm.h"
#include "../linkage.h"

#include <driver_types.h>
#include <stdint.h>

C_LINKAGE_BEGIN

/* y = sums * w_scale * x_scale + bias. */
struct epilogue {
  const void *sums; /* [m, sums_stride] of s32 or f32 */
  bool integers;
  int64_t sums_stride;  /* elements */
  const float *w_scale; /* [n], or NULL */
  const float *x_scale; /* [m], or NULL */
  const void *bias;     /* [n], or NULL */
  enum gemm_type bias_type;
  void *y; /* [m, n], may be mapped host memory; aligned to an element */
  enum gemm_type y_type;
  uint64_t y_stride; /* bytes */
  int64_t m, n;
};
cudaError_t launch_epilogue(cudaStream_t stream, const struct epilogue *epilogue);

C_LINKAGE_END
