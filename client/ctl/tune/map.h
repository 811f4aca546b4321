/* What a search has tried as a map, time over tiles (down) and slices of K (across), and as curves of one tile: time
 * over slices by the mode in which these come together. Pure.
 *
 * Where kernels have no slices, as on the CPU, threads are across. */
#pragma once

#include "trials.h"

enum { MAP_ROWS = 24, MAP_COLUMNS = 24, MAP_MODES = 4, MAP_NAME_BYTES = 128 };

struct map_row {
  char name[MAP_NAME_BYTES];              /* family and tile */
  uint64_t ns[MAP_COLUMNS];               /* of the fastest candidate there; 0: none was timed */
  uint32_t filling;                       /* slices with which its blocks fill the device once; 0: not known */
  uint64_t modes[MAP_MODES][MAP_COLUMNS]; /* the same by mode */
};

struct tune_map {
  const char *across; /* the parameter */
  long columns[MAP_COLUMNS];
  size_t column_count;
  struct map_row rows[MAP_ROWS]; /* by their fastest */
  size_t row_count;
  int hand;         /* the row of the kernel by hand, which has one however slow it is; -1: there is none */
  size_t left_out;  /* candidates with a time that no cell shows: of tiles or slices beyond what there is room for */
  uint64_t fastest; /* of all, ns */
};

void tune_map_make(const struct tune_trials *trials, struct tune_map *out);
/* The row whose curves say most, of those with times for two slices or more: that by hand, else the first; NULL: there
 * is none. */
const struct map_row *tune_map_curves(const struct tune_map *map);
/* Whether the tile's blocks fill the device once with the slices of that column. */
bool tune_map_fills(const struct tune_map *map, const struct map_row *row, size_t column);
bool tune_map_has_mode(const struct tune_map *map, const struct map_row *row, int mode);
