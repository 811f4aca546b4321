/* Which tiles of family "tile" are worth being compiled and raced: a pruned product of tile shapes, warps and stages,
 * each in as many slices of K as fill the device once. Other counts and modes are those near the best ones' own
 * (tile_splits). Pure. */
#pragma once

#include "config.h"

enum {
  TILE_SWEEP = 16,     /* candidates of a search: each is seconds of compiling where it has not been compiled yet */
  TILE_SWEEP_ALL = 32, /* of an exhaustive one */
};

/* Best guess first, behind the tile that manual configurations begin with (every parameter at its fallback, or the
 * nearest that can run), whole and in slices. Weights of whole numbers and floats alone: none for those of 2 bits.
 * Every one can run. Returns how many it wrote, at most `most`. */
int tile_sweep(const struct kernel_problem *problem, bool all, struct variant *out, int most);

/* What a product takes by this variant, about: to put variants of one problem in order. */
double tile_us(const struct kernel_problem *problem, const struct variant *variant);
