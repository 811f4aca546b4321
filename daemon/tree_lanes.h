/* BLAKE2b-256 by vector instructions: one leaf of a tree a lane. */
#pragma once

#include <stdint.h>

enum { TREE_LANES_MOST = 8 };

/* Leaves of one kind: over a header of 16 bytes, which ends with the leaf's number, and a piece. */
struct tree_kind {
  char text[12];        /* of the header, before the number */
  uint32_t piece_bytes; /* a multiple of 128 */
};

/* How many leaves this processor hashes at a time: 4 or 8; 0: it has no such instructions. */
unsigned tree_lanes(void);
/* The leaves of tree_lanes() whole pieces behind each other, from number `first` on, 32 bytes each. */
void tree_lanes_hash(const struct tree_kind *kind, const uint8_t *pieces, uint64_t first, uint8_t (*leaves)[32]);
