/* How INT2 weights lie for Hopper's kernels (LAYOUT_TILES2).
 *
 * Blocks of 64 rows of W one after another; in a block, tiles of 64 rows x 128 of K one after another, N and K padded
 * with zeros. A tile is two halves of 32 rows, each contiguous:
 *   codes   2 units of 16 rows, 512 bytes each: 16 bytes (4 words of 32 bits) for each lane of a warp
 *   scales  f16, 16 a unit: for each g = 0..7 those of rows g and g + 8
 *
 * The codes of a lane are in the order in which mma and wgmma take their 16 x 16 operand from registers: lane 4 g + q
 * holds rows g (words 0 and 2) and g + 8 (words 1 and 3). Words 0 and 1 are for the first 64 of K, 2 and 3 for the
 * rest. In a word, bits 2 f and 2 f + 1 of the low half, f = 1 + s + 4 r, are the code of k = 16 s + 8 r + 2 q, and
 * those of the high half the code of the next k; for f = 8 that is f = 0 with the halves exchanged.
 *
 * So a mask, and the exponent that makes the masked bits count from 1, give a register of the operand in one
 * instruction: f = 1..4 in the word itself, 5..8 in the word rotated by 8 bits. */
#ifndef KERNELS_CUDA_INT2_LAYOUT_H
#define KERNELS_CUDA_INT2_LAYOUT_H

enum {
  INT2_BLOCK_ROWS = 64,
  INT2_UNIT_ROWS = 16,
  INT2_UNIT_BYTES = 512,
  INT2_HALF_ROWS = 32,
  INT2_HALF_SCALES = 2 * INT2_UNIT_BYTES, /* where they begin */
  INT2_HALF_BYTES = INT2_HALF_SCALES + 2 * INT2_HALF_ROWS,
  INT2_TILE_BYTES = 2 * INT2_HALF_BYTES,
};

#endif
