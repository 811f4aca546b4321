/* How the blocks of a cluster and their groups of warps share tiles of weights, for int2_few and int2a8.
 *
 * A cluster has `halves` half blocks of 64 rows of W in a row. Its rank r has tiles [tiles * r / split, tiles * (r + 1)
 * / split) of each block of rows; that block's groups share these evenly, one block of rows after the other. If
 * `halves` is odd, a half block, the last or in every second cluster the first, comes behind the whole ones: two tiles
 * of it, which follow each other along K, count as one. */
#pragma once

#include "../../../linkage.h"

#include <stdbool.h>
#include <stdint.h>

C_LINKAGE_BEGIN

enum {
  INT2_CUT_SPLIT_MOST = 8,
  INT2_CUT_BLOCKS_MOST = 32,
  INT2_CUT_TILES_MOST = 256, /* of a block of rows */
  INT2_CUT_PARTS_MOST = 512, /* for all blocks of rows of a cluster */
  /* i / d is i * (2^BITS / d, rounded up) >> BITS where i * d <= 2^BITS and i < 2^(32 - BITS) * d. */
  INT2_CUT_BITS = 21,
};

/* Of the H200 that the cost models were fitted to, in thousands of cycles a microsecond. */
#define INT2_GHZ 1.98

struct int2_cut {
  uint32_t tiles, row_blocks, clusters; /* tiles of a block of rows */
  uint32_t halves, blocks, split_log2;  /* blocks: the half one, too */
  uint32_t parts; /* groups from the first of a rank to the last that work on one block of rows, at most */
  /* For sums of a block of rows that a group has, whichever needs fewer slots of a rank: as many for each group as one
   * needs at most, or one for each step from group to group or from block to block of rows. */
  uint32_t slots, slots_a_group, slots_from_first; /* all of a rank; the last all ones or zeros */
  uint32_t inverse, inverse_more; /* for division by the tiles that a rank has of a block of rows, or by one more */
  uint32_t blocks_inverse, halves_inverse, parts_inverse;
};

/* False where a rank or a cluster would have nothing, split is no power of two, something is more than the most, or a
 * half block has an odd number of tiles. `groups` of warps in a block. Pure. */
bool int2_cut_make(int64_t row_blocks, int64_t tiles, int split, int halves, int groups, struct int2_cut *out);

/* Tiles of a group. */
struct int2_share {
  uint32_t first_tile, tiles; /* of the rank, of a block of rows */
  uint32_t begin, end;        /* of the rank's halves * tiles / 2 */
  uint32_t first_block;       /* of rows, of the cluster's, to which `begin` belongs */
};

/* The sums of a block of rows that a group has. */
struct int2_part {
  uint32_t rank, block, slot; /* slot: of the rank's */
  bool none;
};

/* Both are what kernels compute before and while their first copies are under way: unsigned, and without divisions,
 * which cost hundreds of cycles. */
#ifdef __CUDACC__
#define INT2_CUT_INLINE __host__ __device__ static inline
#else
#define INT2_CUT_INLINE static inline
#endif

/* For division by what a rank has of a block of rows. Pure. */
INT2_CUT_INLINE uint32_t int2_cut_inverse(const struct int2_cut *cut, uint32_t tiles) {
  return tiles == cut->tiles >> cut->split_log2 ? cut->inverse : cut->inverse_more;
}

/* Whether this block of a cluster's is the half one. Pure. */
INT2_CUT_INLINE bool int2_cut_halved(const struct int2_cut *cut, uint32_t block) {
  return block == cut->halves / 2;
}

/* The half block that a block of a cluster's begins with, of all. Pure. */
INT2_CUT_INLINE uint32_t int2_cut_half(const struct int2_cut *cut, uint32_t cluster, uint32_t block) {
  uint32_t first = cluster * cut->halves;
  if (int2_cut_halved(cut, block))
    return first % 2 ? first : first + cut->halves - 1;
  return first + first % 2 + 2 * block;
}

/* `groups`: as for int2_cut_make. Pure. */
INT2_CUT_INLINE struct int2_share int2_cut_share(const struct int2_cut *cut, uint32_t groups, uint32_t rank,
                                                 uint32_t group) {
  struct int2_share share;
  share.first_tile = cut->tiles * rank >> cut->split_log2;
  share.tiles = (cut->tiles * (rank + 1) >> cut->split_log2) - share.first_tile;
  uint32_t total = cut->halves * share.tiles / 2, inverse = int2_cut_inverse(cut, share.tiles);
  share.begin = total * group / groups, share.end = total * (group + 1) / groups;
  share.first_block = share.begin * inverse >> INT2_CUT_BITS;
  return share;
}

/* Where the rank has the sums of a group's block of rows. Pure. */
INT2_CUT_INLINE uint32_t int2_cut_slot(const struct int2_cut *cut, const struct int2_share *share, uint32_t group,
                                       uint32_t block) {
  return group * cut->slots_a_group + block - (share->first_block & cut->slots_from_first);
}

/* Number i of parts * blocks * split, those of a block of rows in a row, by rank and then by group. Pure. */
INT2_CUT_INLINE struct int2_part int2_cut_part(const struct int2_cut *cut, uint32_t groups, uint32_t i) {
  struct int2_part part;
  uint32_t list = i * cut->parts_inverse >> INT2_CUT_BITS;
  part.block = list >> cut->split_log2, part.rank = list - (part.block << cut->split_log2);
  /* The last group that begins with the block's first tile or before it is (2 * groups * block + 2 * (groups - 1) /
   * tiles) / halves. */
  struct int2_share whole = int2_cut_share(cut, groups, part.rank, 0);
  uint32_t inverse = int2_cut_inverse(cut, whole.tiles);
  uint32_t over = 2 * groups * part.block + (2 * (groups - 1) * inverse >> INT2_CUT_BITS), at = i - list * cut->parts;
  uint32_t group = (over * cut->halves_inverse >> INT2_CUT_BITS) + at;
  struct int2_share share = int2_cut_share(cut, groups, part.rank, group);
  part.slot = int2_cut_slot(cut, &share, group, part.block);
  part.none = group >= groups || share.begin == share.end || share.begin >= (part.block + 1) * share.tiles;
  return part;
}

C_LINKAGE_END
