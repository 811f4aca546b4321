/* Launchers of general.cuh. */
#pragma once

#include "../linkage.h"
#include "product.h"
#include "tile.h"

#include <driver_types.h>

C_LINKAGE_BEGIN

/* `vector`: elements that are loaded at a time: 1, 2, 4 or 8, to whose bytes x, W and their strides are aligned. */
cudaError_t general_launch(cudaStream_t stream, const struct tensors_product *product, int vector);
/* One slice, summed in double precision. */
cudaError_t general_plain_launch(cudaStream_t stream, const struct tensors_product *product);

C_LINKAGE_END
