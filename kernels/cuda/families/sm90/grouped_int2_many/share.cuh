// What blocks of grouped_int2_many/kernel.cuh share out among them, and what a block keeps in shared memory beside
// int2_many's rings.
#pragma once

#include "../../tiles.h"
#include "../int2_many/share.cuh"
#include "config.h"

namespace grouped_int2_many {

using int2_many::cursor;

// A launch. like: of int2_many's, what its products look at. pieces: of an expert's W; tiles_k: units of 128 of K;
// row_blocks: of 64 rows of an expert's W.
struct work {
  int2_many::work like;
  int pieces, tiles_k, row_blocks;
  CUtensorMap x[GROUPED_INT2_MANY_BOXES];
};

// Blocks of 64 rows of an expert's W from `block` on, as many as there are warpgroups, by a tile of x.
struct piece {
  int expert, first, rows, block; // expert below zero: there is none any more

  __device__ int eights() const {
    return (rows + 7) / 8;
  }
};

// Of so many eights of columns in the stages of a shape that has room for more: laid out as that.
template <typename Wide, int kEights> struct narrow : Wide {
  static constexpr int eights = kEights, pair_eights = (kEights + Wide::pair_parts - 1) / Wide::pair_parts;
};

// Pieces in turn: each is named by whoever copies W, and its place is free again when all others have taken what is
// theirs of it.
template <typename Shape> struct shared : int2_many::shared<Shape> {
  // What wait for a piece's name: a thread that copies x, warps that make pairs, warps that multiply.
  static constexpr int readers = 1 + (Shape::pairs ? Shape::pair_parts * Shape::pair_turns : 0) + Shape::consumers / 32;
  alignas(16) piece pieces[2];
  int row_of_y[Shape::groups][Shape::columns];
  uint64_t named[2], taken[2];
};

// Where in these somebody is.
struct turn {
  uint32_t number = 0;

  __device__ uint32_t place() const {
    return number % 2;
  }
  __device__ uint32_t phase() const {
    return number / 2 % 2;
  }
};

template <typename Shape> __device__ inline piece next_piece(const shared<Shape> &s, const turn &at) {
  ptx::barrier_wait(ptx::shared_address(&s.named[at.place()]), at.phase());
  return s.pieces[at.place()];
}

// By one thread of a reader.
template <typename Shape> __device__ inline void give_back(shared<Shape> &s, const turn &at) {
  ptx::barrier_arrive(ptx::shared_address(&s.taken[at.place()]));
}

} // namespace grouped_int2_many
