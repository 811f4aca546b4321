// What a block adds up of a tile that several blocks have parts of: sums of a warpgroup, four of a thread to each eight
// columns.
#pragma once

// Columns [8 * begin, 8 * end) of the tile.
struct span {
  int begin, end;
};

// Brings sums of column 8 * begin and on to the front, by powers of two: registers cannot be counted out.
template <int kBy, typename Sum, int kCount> __device__ inline void move_down(Sum (&sum)[kCount], int begin) {
  if (begin & kBy) {
#pragma unroll
    for (int i = 0; i < kCount - 4 * kBy; i++)
      sum[i] = sum[i + 4 * kBy];
  }
  if constexpr (kBy > 1)
    move_down<kBy / 2>(sum, begin);
}
