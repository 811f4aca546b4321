/* A weight in a slab, in the canonical form, and its rows as the inner loops take them. */
#ifndef KERNELS_CPU_WEIGHT_H
#define KERNELS_CPU_WEIGHT_H

#include "../../proto/gemm.h"
#include "micro.h"

enum { CPU_LAYOUT = 1 }; /* the canonical form of proto/gemm.h */

struct backend_weight {
  struct gemm_weight shape;
  struct gemm_layout layout;
  const uint8_t *codes; /* of the slab; layout.total_bytes */
};

/* Elements k, k + 1, .. of row n, widened to f32 (INT8: s16) and followed by zeros up to whole groups. `k` is a
 * multiple of MICRO_GROUP. */
void cpu_weight_widen(const struct backend_weight *weight, const struct micro_ops *micro, int64_t n, int64_t k,
                      int groups, void *to);

/* True where sums of 128 are scaled one by one. */
bool cpu_weight_has_group_scales(const struct backend_weight *weight);
/* The scales of `groups` groups of row n from element k on; where there are group scales. */
void cpu_weight_group_scales(const struct backend_weight *weight, const struct micro_ops *micro, int64_t n, int64_t k,
                             int groups, float *to);
/* What the whole sum of row n is multiplied with: 1 where there are group scales or none. */
float cpu_weight_scale(const struct backend_weight *weight, int64_t n);

#endif
