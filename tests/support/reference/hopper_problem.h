/* Products as heuristics see them, on a Hopper GPU with an H100's and H200's number of multiprocessors. */
#pragma once

#include "kernels/cuda/families/problem.h"

enum { SMS = 132 };

static inline struct kernel_problem product_of(enum gemm_format format, enum gemm_scale scale, int64_t m, int64_t n,
                                               int64_t k) {
  return (struct kernel_problem){.device = {.capability = 90, .multiprocessors = SMS},
                                 .format = format,
                                 .scale = scale,
                                 .m = m,
                                 .n = n,
                                 .k_padded = k};
}
