// Copies of grouped_int2_many/kernel.cuh: units of W and x from memory to a block's rings.
#pragma once

#include "../../../experts/pieces.cuh"
#include "share.cuh"

namespace grouped_int2_many {

template <typename Shape> __device__ inline void name_piece(shared<Shape> &s, turn &at, const piece &p) {
  ptx::barrier_wait(ptx::shared_address(&s.taken[at.place()]), at.phase() ^ 1);
  s.pieces[at.place()] = p;
  ptx::barrier_arrive(ptx::shared_address(&s.named[at.place()]));
  at.number++;
}

// Rows behind an expert's last are those of its last block once more.
template <typename Shape>
__device__ inline void copy_w(const work &w, shared<Shape> &s, cursor<Shape::stages> &at, const piece &p, bool once) {
  const uint64_t policy = once ? ptx::policy_evict_first() : ptx::policy_evict_normal();
  const uint32_t apart = w.tiles_k * Shape::tile_bytes; // blocks of rows
  const uint8_t *from = static_cast<const uint8_t *>(w.like.product.tiles) +
                        (static_cast<int64_t>(p.expert) * w.row_blocks + p.block) * apart;
#pragma unroll 1
  for (int unit = 0; unit < w.tiles_k; unit++, at.advance(), from += Shape::tile_bytes) {
    const uint32_t full = ptx::shared_address(&s.full[at.stage]), to = ptx::shared_address(s.w[at.stage]);
    ptx::barrier_wait(ptx::shared_address(&s.empty[at.stage]), at.phase ^ 1);
    ptx::barrier_expect(full, s.w_bytes);
#pragma unroll
    for (int group = 0; group < Shape::groups; group++)
      ptx::copy_bulk(to + group * Shape::tile_bytes, from + min(group, w.row_blocks - 1 - p.block) * apart,
                     Shape::tile_bytes, full, policy);
  }
}

template <typename Shape> __device__ inline void produce_w(const work &w, shared<Shape> &s) {
  cursor<Shape::stages> at(0);
  turn name;
  experts::take_pieces(w.like.product.route, w.pieces, [&](int number) {
    const int tile = number / w.pieces;
    const experts_tile t = w.like.product.route.tiles[tile];
    const piece p = {t.expert, t.first, t.rows, (number - tile * w.pieces) * Shape::groups};
    name_piece(s, name, p);
    copy_w(w, s, at, p, t.alone != 0);
  });
  name_piece(s, name, {-1, 0, 0, 0});
}

// 64 of K of a piece's rows of x, in the fewest boxes that there are.
__device__ inline void copy_half(const work &w, uint32_t to, int column, int row, int rows, uint32_t full) {
#pragma unroll
  for (int i = GROUPED_INT2_MANY_BOXES - 1; i >= 0; i--) {
    if (rows < GROUPED_INT2_MANY_BOX(i))
      continue;
    ptx::copy_tensor(to, &w.x[i], column, row, full);
    to += GROUPED_INT2_MANY_BOX(i) * 128;
    row += GROUPED_INT2_MANY_BOX(i);
    rows -= GROUPED_INT2_MANY_BOX(i);
  }
}

template <typename Shape> __device__ inline void produce_x(const work &w, shared<Shape> &s) {
  cursor<Shape::stages> at(0);
#pragma unroll 1
  for (turn name;; name.number++) {
    const piece p = next_piece(s, name);
    if (p.expert < 0)
      return;
    const int rows = 8 * p.eights();
#pragma unroll 1
    for (int unit = 0; unit < w.tiles_k; unit++, at.advance()) {
      uint32_t full = ptx::shared_address(&s.full[at.stage]), empty = ptx::shared_address(&s.empty[at.stage]);
      if constexpr (Shape::pairs)
        full = ptx::shared_address(&s.pair.x_full[at.stage]), empty = ptx::shared_address(&s.pair.x_empty[at.stage]);
      const uint32_t to = ptx::shared_address(s.x[at.stage]);
      ptx::barrier_wait(empty, at.phase ^ 1);
      ptx::barrier_expect(full, 2 * 128 * rows);
      copy_half(w, to, unit * 256, p.first, rows, full);
      copy_half(w, to + Shape::half_bytes, unit * 256 + 128, p.first, rows, full);
    }
    give_back(s, name);
  }
}

} // namespace grouped_int2_many
