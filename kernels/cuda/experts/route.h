/* Where the rows of a product over experts go: on the device alone, so that the host never learns the counts.
 *
 * A pair is a row of x and one of its ids, number m * top + t. Pairs are sorted by expert, those of an expert in their
 * own order; ids that name no expert are skipped. Tiles are runs of up to `tile_rows` sorted rows of one expert. */
#pragma once

#include "../../../proto/gemm.h"
#include "../linkage.h"

#include <stdbool.h>
#include <stdint.h>

C_LINKAGE_BEGIN

/* TILE_ANY: of tiles that nobody looks at, and the most that any kernel takes. */
enum { EXPERTS_MOST = 512, EXPERTS_ALIGN = 256, EXPERTS_TILE_ANY = 144 };

/* Sorted rows [first, first + rows) are of one expert. `alone`: they are all of its rows, so its weights are read
 * once. `beside`: tiles of an expert go in pairs, from its first on; 1: the next tile is the other one, -1: the one
 * before, 0: there is none. */
struct experts_tile {
  int32_t expert, first, rows;
  int16_t alone, beside;
};

/* `next`: pieces of tiles that a product has handed out to its blocks, and `done`: blocks that have got none any more;
 * the last of these leaves zeros for the next product. */
struct experts_counts {
  int32_t tiles, next, done, skipped, rows;
};

/* Device memory of one routing. */
struct experts_route {
  struct experts_counts *counts;
  struct experts_tile *tiles;
  int32_t *place; /* [pairs]: the sorted row of a pair, -1: skipped */
  int32_t *pair;  /* [pairs]: the pair of a sorted row */
};

/* Bytes of it, aligned to EXPERTS_ALIGN. Pure. */
uint64_t experts_route_bytes(int64_t pairs, int experts, int tile_rows);
/* Its parts in memory that begins at `memory`. Pure. */
struct experts_route experts_route_at(void *memory, int64_t pairs, int experts, int tile_rows);
/* Tiles that there can be. Pure. */
int64_t experts_tiles_most(int64_t pairs, int experts, int tile_rows);

C_LINKAGE_END
