/* Launcher of wide.cuh. */
#ifndef KERNELS_CUDA_TENSORS_SM90_WIDE_H
#define KERNELS_CUDA_TENSORS_SM90_WIDE_H

#include "../product.h"
#include "../tile.h"

#include <driver_types.h>

typedef struct CUtensorMap_st CUtensorMap;

#ifdef __cplusplus
extern "C" {
#endif

bool wide_config_valid(const struct tensors_product *product, const struct wide_config *config);
/* Rows of a box of an operand, and bytes of it: as tensor_map_make wants to know. */
int wide_box_rows(const struct wide_config *config, bool turned, bool w);

cudaError_t wide_launch(cudaStream_t stream, const struct wide_config *config, const struct tensors_product *product,
                        const CUtensorMap *x, const CUtensorMap *w);
const void *kernel_of_wide(void);

#ifdef __cplusplus
}
#endif
#endif
