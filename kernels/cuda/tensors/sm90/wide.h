/* Launcher of wide.cuh. */
#pragma once

#include "../../linkage.h"
#include "../product.h"
#include "../tile.h"

#include <driver_types.h>

typedef struct CUtensorMap_st CUtensorMap;

C_LINKAGE_BEGIN

bool wide_config_valid(const struct tensors_product *product, const struct wide_config *config);
/* Rows of a box of an operand, and bytes of it: as tensor_map_make wants to know. */
int wide_box_rows(const struct wide_config *config, bool turned, bool w);

cudaError_t wide_launch(cudaStream_t stream, const struct wide_config *config, const struct tensors_product *product,
                        const CUtensorMap *x, const CUtensorMap *w);

C_LINKAGE_END
