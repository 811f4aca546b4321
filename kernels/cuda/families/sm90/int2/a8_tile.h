/* From the canonical form of an INT2A8 weight to the tiles of int2/a8_layout.h. Pure. */
#pragma once

#include "../../../../../proto/gemm.h"
#include "a8_layout.h"

/* Writes the INT2A8_TILE_BYTES of rows 64 * block and on, and 256 of K from 256 * tile on. */
void int2a8_tile_make(const struct gemm_weight *weight, const struct gemm_layout *layout, const uint8_t *canonical,
                      int64_t block, int64_t tile, uint8_t *out);
