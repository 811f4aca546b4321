/* Tiles of int4/layout.h from the canonical form, and what lies where in them. Pure. */
#pragma once

#include "form.h"

/* Tile `tile` of block `block` of rows, 2 * half_bytes of the weight's form, into zeros. */
void int4_tile_make(const struct gemm_weight *weight, const struct gemm_layout *layout, const uint8_t *canonical,
                    int64_t block, int64_t tile, uint8_t *out);

/* The code at a row and a column of a tile. */
unsigned int4_tile_code(const struct int4_form *form, const uint8_t *tile, int row, int column);
/* Where the scale, or the zero point, of a row and a group lies in a tile. */
int int4_tile_scale(const struct int4_form *form, int row, int group);
int int4_tile_zero(const struct int4_form *form, int row, int group);
