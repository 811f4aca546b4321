/* Launchers of the kernels that grouped_int2/config.h describes. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_GROUPED_INT2_LAUNCH_H
#define KERNELS_CUDA_FAMILIES_SM90_GROUPED_INT2_LAUNCH_H

#include "../../../experts/route.h"
#include "config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pointers are device memory. */
struct grouped_int2_product {
  int64_t pairs, n, k; /* of the weight, for each expert */
  int experts;
  const void *tiles;     /* of all experts */
  const void *x;         /* [pairs] by route, x_stride bytes apart, zeros behind k up to whole groups, aligned to 16 */
  enum gemm_type x_type; /* F32, F16, BF16 */
  int64_t x_stride;
  const void *bias; /* [experts, n], or NULL */
  enum gemm_type bias_type;
  void *y; /* [pairs, n] */
  enum gemm_type y_type;
  uint64_t y_stride; /* bytes */
  bool y_sorted;
  bool splits; /* a row of x takes two columns, so that sums are exact enough for f32 y */
  struct experts_route route;
  /* Sorted rows [first_row, last_row) go now: tiles that begin there. */
  int64_t first_row, last_row;
  void *made; /* grouped_int2_made_bytes for these and GROUPED_INT2_COLUMNS more, aligned to 256 */
};

/* Bytes of what the pass makes of so many rows of x. Pure. */
uint64_t grouped_int2_made_bytes(int64_t rows, bool splits, int64_t k);
/* The pass, and behind it the product. */
cudaError_t grouped_int2_launch(cudaStream_t stream, const struct grouped_int2_plan *plan,
                                const struct grouped_int2_product *product, int sms, bool dependent);

/* One kernel of the file, which leads to the others. */
const void *kernel_of_grouped_int2(void);

#ifdef __cplusplus
}
#endif
#endif
