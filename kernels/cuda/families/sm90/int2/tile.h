/* From the canonical form of an INT2 weight to the tiles of int2/layout.h. Pure. */
#pragma once

#include "../../../../../proto/gemm.h"
#include "layout.h"

/* Writes the INT2_TILE_BYTES of rows 64 * block and on, and 128 of K from 128 * tile on. */
void int2_tile_make(const struct gemm_weight *weight, const struct gemm_layout *layout, const uint8_t *canonical,
                    int64_t block, int64_t tile, uint8_t *out);
