#include "tile_source.h"

#define TEXT(name, file)                                                                                               \
  __asm__(".section .rodata\n.global " #name "\n.hidden " #name "\n" #name ":\n.incbin \"" file "\"\n.byte 0\n"        \
          ".previous\n")

TEXT(tile_source_kernel, "kernels/cuda/tile_kernel.cuh");
TEXT(tile_source_codes, "kernels/cuda/tile_codes.cuh");
TEXT(tile_source_params, "kernels/cuda/tile_params.h");
TEXT(tile_source_int2, "kernels/cuda/int2_layout.h");
TEXT(tile_source_int2_dense, "kernels/cuda/int2_dense.cuh");
TEXT(tile_source_int2a8, "kernels/cuda/int2a8_layout.h");
