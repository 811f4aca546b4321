/* The texts of tile/kernel.cuh and of what it includes, which the program carries for the compiler. */
#pragma once

/* Each ends with a zero. */
extern const char tile_source_kernel[], tile_source_codes[], tile_source_params[], tile_source_int2[],
    tile_source_int2_dense[], tile_source_int2a8[];
