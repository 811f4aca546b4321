/* How INT2 weights lie for Hopper's kernels (LAYOUT_TILES2).
 *
 * Blocks of 64 rows of W one after another; in a block, tiles of 64 rows x 128 of K one after another, N and K padded
 * with zeros. A tile is two halves of 32 rows, each contiguous:
 *   codes   2 units of 16 rows, 512 bytes each: 16 bytes (4 words of 32 bits) for each lane of a warp
 *   scales  f16, 16 a unit: for each g = 0..7 those of rows g and g + 8
 *
 * The words of a lane are what Hopper's sparse matrix instructions (mma.sp m16n8k32 and wgmma.mma_async.sp m64nNk32 of
 * 16 bits) take as metadata: W's codes choose among rows of x, and nothing is unpacked. Of the four rows of the right
 * operand that share a nibble of metadata, 0, x1, x2 and x1 + x2 for two k of the same row of x, the left operand's two
 * numbers, -1 and 2, take one each, whose index has a bit for k1 and, above it, one for k2. A code c of two bits, high
 * and low, less one is 2 high - !low: so the index of -1 is of !low, that of 2 of high. The instructions ask for
 * indices that differ and ascend; the hardware takes any, which is tried when a device is opened (places.h).
 *
 * Lane 4 g + q holds rows g (low halves of its words) and g + 8 (high halves). In each half of word i = 0..3, nibble
 * 2 e + r (from bit 4 (2 e + r) on), e and r = 0, 1, is of the codes of k1 = 32 i + 16 r + 2 q + e and k2 = k1 + 8:
 *   bit 0  !low of k1
 *   bit 1  !low of k2
 *   bit 2  high of k1
 *   bit 3  high of k2
 *
 * A word is one instruction's metadata as its lane gives them: selector 0 takes lanes q = 0 and 1, selector 1 lanes
 * q = 2 and 3, and of either two the first is of rows 0..15 of the right operand, the second of rows 16..31.
 *
 * A lane's words have the k that the dense 16 x 16 operand takes from it in eight steps: int2/dense.cuh. Codes of what
 * is padded are 1, whose value is zero, and all bits of theirs zeros. */
#ifndef KERNELS_CUDA_FAMILIES_SM90_INT2_LAYOUT_H
#define KERNELS_CUDA_FAMILIES_SM90_INT2_LAYOUT_H

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
