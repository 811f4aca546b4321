/* How INT4, MXFP4 and NVFP4 weights lie for Hopper's kernels (LAYOUT_TILES4), and INT4A8 ones (LAYOUT_TILES4A8).
 *
 * Blocks of 64 rows of W one after another; in a block, tiles of 64 rows x 128 of K one after another, N and K padded
 * with zeros, K of INT4A8 to whole pairs of tiles. A tile is two halves of 32 rows, each contiguous:
 *   codes   units [u][h] of rows 16 u + 0..15 and K 64 h + 0..63, 512 bytes each: 16 bytes (4 words of 32 bits) for
 *           each lane of a warp
 *   scales  of G groups of K, 1 where a row or 128 of it have one (a row's is repeated), 2 of 64, 4 of 32. Of 16 bits:
 *           row 16 u + 8 r + g, group j at 32 G u + 4 G g + 4 j + 2 r. MXFP4's bytes: at 64 u + 8 g + 4 r + j,
 *           NVFP4's, of 8 groups of 16: at 128 u + 16 g + 2 j + r
 *   zeros   where there are zero points, a byte each (of f16: rests.h): at 16 G u + 2 G g + 2 j + r
 *
 * Lane 4 g + q holds, in a left operand of 16 x 16 as matrix instructions take it, register r = 0..3 with row
 * g + 8 (r % 2) and k = 2 q + 8 (r / 2) in its low half, k + 1 in its high one. Word i of unit [u][h] has the 16 x 16
 * from k = 64 h + 16 i on, its halves those of the registers:
 *   INT4   code of register r in bits 4 r .. 4 r + 3 of either half
 *   MXFP4, NVFP4  in bits, from the sign down: register 0 15, 8..6; 1 9, 2..0; 2 19, 12..10; 3 13, 14, 5, 4; of the
 *          high half 16 more, 35 being 3
 * INT4A8: in an operand of 16 x 32 of bytes register r has row g + 8 (r % 2) and k = 4 q + 16 (r / 2) + b in byte b.
 * Words 2 i and 2 i + 1 have the 16 x 32 from k = 64 h + 32 i on: the first registers 0 and 1, the second 2 and 3, the
 * first of two in the high bits of each byte, the other in the low ones, as code ^ 8. */
#pragma once

enum {
  INT4_BLOCK_ROWS = 64,
  INT4_HALF_ROWS = 32,
  INT4_UNIT_ROWS = 16,
  INT4_UNIT_K = 64,
  INT4_UNIT_BYTES = 512,
  INT4_HALF_SCALES = 4 * INT4_UNIT_BYTES, /* where they begin */
  INT4_GROUPS_MOST = 8,
  INT4_HALF_BYTES_MOST = INT4_HALF_SCALES + 96 * 4,
};
