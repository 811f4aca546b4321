/* How INT2A8 weights lie for Hopper's kernel (LAYOUT_TILES2A8).
 *
 * Blocks of 64 rows of W one after another; in a block, tiles of 64 rows x 256 of K one after another, N and K padded
 * with zeros. A tile is four quarters of 16 rows, each contiguous:
 *   codes   2 units of 128 of K, 512 bytes each: 16 bytes (4 words of 32 bits) for each lane of a warp
 *   scales  f16, 16 a unit: for each g = 0..7 those of rows g and g + 8
 *
 * The codes of a lane are in the order in which wgmma takes its operand of 8-bit numbers from registers: lane 4 g + q
 * holds rows g (words 0 and 2) and g + 8 (words 1 and 3). In byte b of a word, bits 2 j and 2 j + 1 are the code of
 * k = 32 j + 4 q + b, in words 2 and 3 of the k 16 further. So x is multiplied in the order in which it comes. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_INT2_A8_LAYOUT_H
#define KERNELS_CUDA_FAMILIES_SM90_INT2_A8_LAYOUT_H

enum {
  INT2A8_BLOCK_ROWS = 64,
  INT2A8_TILE_K = 256,
  INT2A8_UNIT_ROWS = 16,
  INT2A8_UNIT_BYTES = 512,
  INT2A8_UNIT_SCALES = 32,      /* bytes */
  INT2A8_QUARTER_SCALES = 1024, /* where they begin */
  INT2A8_QUARTER_BYTES = 1088,
  INT2A8_TILE_BYTES = 4 * INT2A8_QUARTER_BYTES,
};

#endif
