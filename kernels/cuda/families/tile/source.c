#include "source.h"

#define TEXT(name, file)                                                                                               \
  __asm__(".section .rodata\n.global " #name "\n.hidden " #name "\n" #name ":\n.incbin \"" file "\"\n.byte 0\n"        \
          ".previous\n")

TEXT(tile_source_kernel, "kernels/cuda/families/tile/kernel.cuh");
TEXT(tile_source_codes, "kernels/cuda/families/tile/codes.cuh");
TEXT(tile_source_params, "kernels/cuda/families/tile/params.h");
TEXT(tile_source_int2, "kernels/cuda/families/sm90/int2/layout.h");
TEXT(tile_source_int2_dense, "kernels/cuda/families/sm90/int2/dense.cuh");
TEXT(tile_source_int2a8, "kernels/cuda/families/sm90/int2/a8_layout.h");
