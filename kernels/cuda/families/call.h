/* What launchers are given of a call. */
#ifndef KERNELS_CUDA_FAMILIES_CALL_H
#define KERNELS_CUDA_FAMILIES_CALL_H

#include "../state.h"
#include "family.h"
#include "sm90/hopper/product.h"

struct kernel_problem kernel_call_problem(const struct backend *backend, const struct kernel_call *call);
/* Of a row of x, as far as a kernel of tiles reads it; rows may lie further apart. */
int64_t kernel_call_x_bytes(const struct kernel_call *call);
/* With a weight in rows of 8-bit codes. */
struct hopper_product kernel_call_rows(const struct kernel_call *call);

#endif
