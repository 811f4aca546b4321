// What blocks of sm80/packed/kernel.cuh compute, and their sums on the way to y: those of teams by shared memory, those
// of parts of K by the kernel of launch.cu.
#pragma once

#include "../../../device/number.cuh"
#include "../../../device/ptx.cuh"
#include "../../tiles.h"
#include "config.h"

namespace sm80_packed {

// A launch: the product, and how it is cut up.
struct work {
  tiles_product product;
  sm80_packed_plan plan;
  int n_warps, k_warps;
  int groups; // of K
  int units;  // of 16 rows, of all of W
  float unit; // by what sums are to be multiplied
  bool dependent;
};

// What a block computes: so many steps, from one of a block of rows on.
struct share {
  int row_block, step, steps;
};

__device__ inline share share_of(const sm80_shares &all, int block) {
  const int begin = sm80::steps_before(all, block);
  return {begin / all.steps, begin % all.steps, sm80::steps_before(all, block + 1) - begin};
}

// Where a block's sums of a part of K go: [m][rows]; of the blocks of rows that it has, only the first and the last one
// may be parts.
__device__ inline float *part_of(const work &w, int block, bool last) {
  return static_cast<float *>(w.product.sums) + (w.plan.shares.parts * block + last) * w.product.m * w.plan.rows;
}

// Numbers from one column of sums to the next: no bank conflicts.
__device__ inline int pitch_of(const work &w) {
  return w.plan.rows + SM80_PACKED_PADDING / 4;
}

// A warp's, as the instructions leave them: [teams][m][rows].
template <int kEights, int kUnits>
__device__ inline void keep_sums(const work &w, const float (&sums)[kUnits][kEights][4], float *all, int team,
                                 int mate) {
  const int lane = threadIdx.x % 32, m = static_cast<int>(w.product.m), pitch = pitch_of(w);
  float *to = all + (team * m + lane % 4 * 2) * pitch + mate * kUnits * 16 + lane / 4;
#pragma unroll
  for (int i = 0; i < kEights; i++)
#pragma unroll
    for (int j = 0; j < 2; j++) {
      if (8 * i + lane % 4 * 2 + j >= m)
        continue;
#pragma unroll
      for (int u = 0; u < kUnits; u++) {
        to[(8 * i + j) * pitch + u * 16] = sums[u][i][j];
        to[(8 * i + j) * pitch + u * 16 + 8] = sums[u][i][j + 2];
      }
    }
}

// What sums of four neighbours of y, from column n on, become y by.
struct columns {
  float scales[4], biases[4];

  __device__ columns(const work &w, int64_t n) {
    const tiles_product &p = w.product;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      scales[i] = p.factors && n + i < p.n ? p.factors[n + i] : 1.0f;
      biases[i] = p.bias && n + i < p.n ? number_load_as(p.bias, n + i, p.bias_type) : 0.0f;
    }
  }
};

// Of row m of y; a weight with factors has no scales of x.
__device__ inline void write_four(const work &w, int64_t m, int64_t n, const float (&sum)[4], const columns &of) {
  const tiles_product &p = w.product;
  float value[4];
#pragma unroll
  for (int i = 0; i < 4; i++)
    value[i] = fmaf(sum[i], w.unit * (p.x_scale ? p.x_scale[m] : of.scales[i]), of.biases[i]);
  void *row = static_cast<uint8_t *>(p.y) + m * p.y_stride;
  number_store4_as(row, n, p.n, p.y_type, value);
}

__device__ inline void add_four(float (&sum)[4], const float *from) {
  const float4 four = *reinterpret_cast<const float4 *>(from);
  sum[0] += four.x, sum[1] += four.y, sum[2] += four.z, sum[3] += four.w;
}

// A block's, by all of its threads: each has four rows of W, and every so many columns of sums. `part`: where they go
// that are not of all of K; NULL: to y.
__device__ inline void write_sums(const work &w, const float *all, int row_block, float *part) {
  const int m = static_cast<int>(w.product.m), rows = w.plan.rows, quads = rows / 4;
  const int pitch = pitch_of(w), thread = static_cast<int>(threadIdx.x);
  const int row = thread % quads * 4, n = row_block * rows + row, together = static_cast<int>(blockDim.x) / quads;
  const columns of(w, n);
#pragma unroll 4
  for (int column = thread / quads; column < m; column += together) {
    float sum[4] = {};
    for (int team = 0; team < w.k_warps; team++)
      add_four(sum, all + (team * m + column) * pitch + row);
    if (part)
      *reinterpret_cast<float4 *>(part + column * rows + row) = make_float4(sum[0], sum[1], sum[2], sum[3]);
    else
      write_four(w, column, n, sum, of);
  }
}

// A warp's that has all sums of its rows, by what it has read of W, which nobody else does: eight columns at a time.
// `scratch`: of 8 * (16 * kUnits + 4) numbers.
template <int kEights, int kUnits>
__device__ inline void write_own(const work &w, const float (&sums)[kUnits][kEights][4], uint32_t scratch,
                                 int row_block, int mate, float *part) {
  constexpr int rows = 16 * kUnits, pitch = (rows + 4) * 4, quads = rows / 4, together = 32 / quads;
  const int lane = threadIdx.x % 32, m = static_cast<int>(w.product.m), row = mate * rows + lane % quads * 4;
  const int n = row_block * w.plan.rows + row;
  const columns of(w, n);
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kEights; i++) {
#pragma unroll
    for (int u = 0; u < kUnits; u++)
#pragma unroll
      for (int j = 0; j < 4; j++)
        ptx::store_shared(scratch + (lane % 4 * 2 + j % 2) * pitch + (16 * u + j / 2 * 8 + lane / 4) * 4,
                          __float_as_uint(sums[u][i][j]));
    __syncwarp();
#pragma unroll
    for (int j = 0; j < 8; j += together) {
      const int column = 8 * i + j + lane / quads;
      const uint4 four = ptx::load_shared_uint4(scratch + (j + lane / quads) * pitch + lane % quads * 16);
      const float sum[4] = {__uint_as_float(four.x), __uint_as_float(four.y), __uint_as_float(four.z),
                            __uint_as_float(four.w)};
      if (column >= m)
        continue;
      if (part)
        *reinterpret_cast<uint4 *>(part + column * w.plan.rows + row) = four;
      else
        write_four(w, column, n, sum, of);
    }
    __syncwarp();
  }
}

} // namespace sm80_packed
