/* A call as the kernels for experts of rows take it. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_GROUPED_CALL_H
#define KERNELS_CUDA_FAMILIES_SM90_GROUPED_CALL_H

#include "../../call.h"
#include "product.h"

struct grouped_product grouped_product_of(const struct kernel_call *call);

#endif
