#include "cut.h"

#include <string.h>

static uint32_t inverse_of(uint32_t divisor) {
  return ((1u << INT2_CUT_BITS) + divisor - 1) / divisor;
}

/* What ranks that have `length` tiles of each block of rows need. */
static void widen(struct int2_cut *cut, uint32_t length, uint32_t groups) {
  uint32_t total = cut->halves * length / 2;
  uint32_t first_group[INT2_CUT_BLOCKS_MOST] = {0};
  for (uint32_t group = 0; group < groups; group++) {
    uint32_t begin = total * group / groups, end = total * (group + 1) / groups;
    if (begin == end)
      continue;
    uint32_t first = begin / length, last = (end - 1) / length;
    cut->slots_a_group = last - first + 1 > cut->slots_a_group ? last - first + 1 : cut->slots_a_group;
    for (uint32_t block = first; block <= last; block++)
      if (begin <= block * length)
        first_group[block] = group;
    uint32_t parts = group - first_group[first] + 1;
    cut->parts = parts > cut->parts ? parts : cut->parts;
  }
}

bool int2_cut_make(int64_t row_blocks, int64_t tiles, int split, int halves, int groups, struct int2_cut *out) {
  memset(out, 0, sizeof *out);
  if (split < 1 || split > INT2_CUT_SPLIT_MOST || (split & (split - 1)) != 0 || split > tiles ||
      tiles > INT2_CUT_TILES_MOST || halves < 1 || halves > 2 * INT2_CUT_BLOCKS_MOST || row_blocks < 1 ||
      row_blocks > INT32_MAX / 2 || (halves % 2 != 0 && tiles % (2 * split) != 0))
    return false;
  out->tiles = (uint32_t)tiles;
  out->row_blocks = (uint32_t)row_blocks;
  out->halves = (uint32_t)halves;
  out->blocks = (out->halves + 1) / 2;
  out->clusters = (uint32_t)((2 * row_blocks + halves - 1) / halves);
  out->split_log2 = (uint32_t)__builtin_ctz((unsigned)split);
  uint32_t shortest = out->tiles >> out->split_log2;
  widen(out, shortest, (uint32_t)groups);
  if (tiles % split != 0)
    widen(out, shortest + 1, (uint32_t)groups);
  uint32_t steps = (uint32_t)groups + out->blocks - 1;
  out->slots = (uint32_t)groups * out->slots_a_group;
  out->slots_from_first = UINT32_MAX;
  if (steps < out->slots)
    out->slots = steps, out->slots_a_group = 1, out->slots_from_first = 0;
  out->inverse = inverse_of(shortest);
  out->inverse_more = inverse_of(shortest + 1);
  out->blocks_inverse = inverse_of(out->blocks);
  out->halves_inverse = inverse_of(out->halves);
  out->parts_inverse = inverse_of(out->parts);
  return out->parts * out->blocks << out->split_log2 <= INT2_CUT_PARTS_MOST;
}
