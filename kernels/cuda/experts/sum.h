/* Rows of y of a token's pairs to one: the sum over t, from the first on, of routing weight times product, in f32. */
#pragma once

#include "../linkage.h"
#include "route.h"

#include <driver_types.h>

C_LINKAGE_BEGIN

struct sum_pass {
  const void *v; /* [pairs, n] of `type`, sorted by route, aligned to 16 bytes */
  uint64_t v_stride;
  const int32_t *place;
  const float *routing; /* [m, top], aligned to an element; NULL: 1 */
  int64_t m, n;
  int top;
  enum gemm_type type; /* of v and y: f32, f16, bf16 */
  void *y;             /* [m, n], aligned to an element */
  uint64_t y_stride;   /* bytes */
  bool dependent;
};

cudaError_t launch_sum(cudaStream_t stream, const struct sum_pass *pass);

C_LINKAGE_END
