/* The texts of tile_kernel.cuh, tile_codes.cuh and tile_params.h, which the program carries for the compiler. */
#ifndef KERNELS_CUDA_TILE_SOURCE_H
#define KERNELS_CUDA_TILE_SOURCE_H

extern const char tile_source_kernel[], tile_source_codes[], tile_source_params[]; /* end with a zero */

#endif
