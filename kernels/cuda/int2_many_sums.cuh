// From the sums of int2_many.cuh to y, where blocks have tiles together, too.
#pragma once

#include "int2_many_share.cuh"
#include "number.cuh"

namespace int2_many {

// ---- sums of a tile that several blocks have

__device__ inline void group_sync(int group) {
  ptx::named_barrier_sync(1 + group, 128);
}

// A block's sums as its threads hold them: [groups][eights][128] quads. Each word is `nothing` but from when its writer
// has a sum to when its reader has seen it, so no more than the word itself is waited for. No sum has these bits:
// arithmetic makes another NaN.
constexpr uint32_t nothing = INT2_MANY_NOTHING;

template <int kEights> __device__ inline uint4 *sums_of(const work &w, int block, int group) {
  return static_cast<uint4 *>(w.product.sums) + (block * shape<kEights>::groups + group) * kEights * 128 +
         threadIdx.x % 128;
}

// Columns [8 * begin, 8 * end) of a tile, that a block adds up.
struct span {
  int begin, end;
};

__device__ inline span span_of(int eights, int parts, int part) {
  const int each = (eights + parts - 1) / parts;
  return {min(each * part, eights), min(each * (part + 1), eights)};
}

template <int kEights>
__device__ inline void leave_sums(const work &w, int group, const float (&sum)[4 * kEights], span own) {
  uint4 *const to = sums_of<kEights>(w, blockIdx.x, group);
#pragma unroll
  for (int t = 0; t < kEights; t++)
    if (t < own.begin || t >= own.end)
      ptx::store_relaxed(to + t * 128, make_uint4(__float_as_uint(sum[4 * t]), __float_as_uint(sum[4 * t + 1]),
                                                  __float_as_uint(sum[4 * t + 2]), __float_as_uint(sum[4 * t + 3])));
}

// Adds what blocks [begin, end) but this one have of columns `own`, of which `sum` begins with the first.
template <int kEights, int kOwn>
__device__ inline void add_sums(const work &w, int begin, int end, int group, float (&sum)[4 * kOwn], span own) {
  constexpr int batch = kOwn < 8 ? 8 / kOwn : 1;
  const uint4 empty = make_uint4(nothing, nothing, nothing, nothing);
#pragma unroll 1
  for (int block = begin; block < end; block += batch) {
    uint4 found[batch][kOwn];
    const auto wanted = [&](int i, int t) {
      return block + i < end && block + i != static_cast<int>(blockIdx.x) && own.begin + t < own.end;
    };
#pragma unroll
    for (int i = 0; i < batch; i++)
#pragma unroll
      for (int t = 0; t < kOwn; t++)
        if (wanted(i, t))
          found[i][t] = ptx::load_relaxed(sums_of<kEights>(w, block + i, group) + (own.begin + t) * 128);
        else
          found[i][t] = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < batch; i++) {
#pragma unroll
      for (int t = 0; t < kOwn; t++) {
        if (!wanted(i, t))
          continue;
        uint4 *const from = sums_of<kEights>(w, block + i, group) + (own.begin + t) * 128;
        uint4 &quad = found[i][t];
        while (quad.x == nothing || quad.y == nothing || quad.z == nothing || quad.w == nothing)
          quad = ptx::load_relaxed(from);
        ptx::store_relaxed(from, empty);
        sum[4 * t] += __uint_as_float(quad.x), sum[4 * t + 1] += __uint_as_float(quad.y);
        sum[4 * t + 2] += __uint_as_float(quad.z), sum[4 * t + 3] += __uint_as_float(quad.w);
      }
    }
  }
}

// ---- sums to y

// Columns `own` of the warpgroup's 64 rows of W, of which `sum` begins with the first, eight at a time through shared
// memory, so that whole runs of y are written.
template <int kEights, int kOwn>
__device__ inline void write_y(const work &w, shared<kEights> &s, const place &at, int group,
                               const float (&sum)[4 * kOwn], span own) {
  const int2_many_product &p = w.product;
  const int thread = threadIdx.x % 128, lane = thread % 32, column = thread / 16, four = thread % 16 * 4;
  const int64_t n = (static_cast<int64_t>(at.w) * s.groups + group) * INT2_BLOCK_ROWS + four;
  float bias[4] = {};
  if (p.bias && n < p.n)
#pragma unroll
    for (int j = 0; j < 4; j++)
      bias[j] = number_load_as(p.bias, min(n + j, p.n - 1), p.bias_type);
#pragma unroll
  for (int t = 0; t < kOwn; t++) {
    if (own.begin + t >= own.end)
      break;
    auto &out = s.out[group][t % 2];
    float *const to = &out[lane % 4 * 2][thread / 32 * INT2_UNIT_ROWS + lane / 4];
    to[0] = sum[4 * t];
    to[pitch] = sum[4 * t + 1];
    to[8] = sum[4 * t + 2];
    to[pitch + 8] = sum[4 * t + 3];
    group_sync(group);
    const int64_t m = static_cast<int64_t>(at.x) * s.columns + 8 * (own.begin + t) + column;
    if (m >= p.m || n >= p.n)
      continue;
    const float4 found = *reinterpret_cast<const float4 *>(&out[column][four]);
    const float value[4] = {found.x + bias[0], found.y + bias[1], found.z + bias[2], found.w + bias[3]};
    uint8_t *row = static_cast<uint8_t *>(p.y) + m * p.y_stride;
    if (p.y_type == GEMM_F32)
      number_store4(reinterpret_cast<float *>(row), n, p.n, value);
    else if (p.y_type == GEMM_F16)
      number_store4(reinterpret_cast<__half *>(row), n, p.n, value);
    else
      number_store4(reinterpret_cast<__nv_bfloat16 *>(row), n, p.n, value);
  }
  group_sync(group); // before the next tile's sums
}

// Of a tile that w.split_k blocks have equal parts of, all at the same time: each adds up and writes up to 8 * kOwn of
// its columns.
template <int kEights, int kOwn>
__device__ inline void share_tile(const work &w, shared<kEights> &s, const place &at, int group,
                                  const float (&sum)[4 * kEights]) {
  const int block = static_cast<int>(blockIdx.x), begin = block / w.split_k * w.split_k;
  const span own = span_of(kEights, w.split_k, block - begin);
  float mine[4 * kOwn] = {};
#pragma unroll
  for (int t = 0; t < kEights; t++)
#pragma unroll
    for (int i = 0; i < kOwn; i++)
      if (own.begin + i == t)
#pragma unroll
        for (int j = 0; j < 4; j++)
          mine[4 * i + j] = sum[4 * t + j];
  add_sums<kEights, kOwn>(w, begin, begin + w.split_k, group, mine, own);
  write_y<kEights, kOwn>(w, s, at, group, mine, own);
}

} // namespace int2_many
