/* What products of FP8 rows take that are computed in waves of tiles, one a block, of 128 rows of x. Pure. */
#pragma once

#include "../families/problem.h"

enum { WAVE_COLUMNS = 128 /* rows of x a tile */, WAVE_STEP = 128 /* of K */ };

/* In microseconds: what a launch begins and ends with, writing a tile, and 128 of K of it in a block that is alone, and
 * what it takes longer where all multiprocessors have one. */
struct wave_prices {
  double launch, tile, step, step_crowded;
};

struct wave_cut {
  int rows;  /* of W a tile */
  int split; /* blocks that share a tile's K */
  int group; /* tiles of x that are taken before the next rows of W */
};

/* Microseconds, after an H200. */
double waves_us(const struct wave_prices *prices, const struct kernel_problem *problem, const struct wave_cut *cut);
