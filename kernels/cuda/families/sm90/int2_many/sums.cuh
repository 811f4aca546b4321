// From the sums of int2_many/kernel.cuh to y, where blocks have tiles together, too.
#pragma once

#include "../../../device/number.cuh"
#include "../../../device/span.cuh"
#include "../int2/codes.cuh"
#include "share.cuh"

namespace int2_many {

// ---- sums of a tile that several blocks have

__device__ inline void group_sync(int group) {
  ptx::named_barrier_sync(1 + group, 128);
}

// A block's sums as its threads hold them: [groups][eights][128] quads. Each word is `nothing` but from when its writer
// has a sum to when its reader has seen it, so no more than the word itself is waited for. No sum has these bits:
// arithmetic makes another NaN.
constexpr uint32_t nothing = INT2_MANY_NOTHING;

template <typename Shape> __device__ inline uint4 *sums_of(const work &w, int block, int group) {
  return static_cast<uint4 *>(w.product.sums) + (block * Shape::groups + group) * Shape::eights * 128 +
         static_cast<int>(ptx::thread()) % 128;
}

__device__ inline span span_of(int eights, int parts, int part) {
  const int each = (eights + parts - 1) / parts;
  return {min(each * part, eights), min(each * (part + 1), eights)};
}

template <typename Shape>
__device__ inline void leave_sums(const work &w, int group, const float (&sum)[4 * Shape::eights], span own) {
  uint4 *const to = sums_of<Shape>(w, static_cast<int>(ptx::block()), group);
#pragma unroll
  for (int t = 0; t < Shape::eights; t++)
    if (t < own.begin || t >= own.end)
      ptx::store_relaxed(to + t * 128, make_uint4(__float_as_uint(sum[4 * t]), __float_as_uint(sum[4 * t + 1]),
                                                  __float_as_uint(sum[4 * t + 2]), __float_as_uint(sum[4 * t + 3])));
}

// Adds what blocks [begin, end) but this one have of columns `own`, of which `sum` begins with the first.
template <typename Shape, int kOwn, int kCount>
__device__ inline void add_sums(const work &w, int begin, int end, int group, float (&sum)[kCount], span own) {
  // Quads that are asked for at a time, as far as products leave registers.
  constexpr int room = (Shape::consumer_registers - 4 * kOwn - 32) / 4;
  constexpr int run = room < kOwn ? room / 4 * 4 : kOwn, batch = kOwn < 8 ? 8 / kOwn : 1;
  static_assert(run > 0, "there is room for some");
  const uint4 empty = make_uint4(nothing, nothing, nothing, nothing);
  const int self = static_cast<int>(ptx::block());
#pragma unroll 1
  for (int block = begin; block < end; block += batch) {
    uint4 *const sums = sums_of<Shape>(w, block, group) + own.begin * 128;
#pragma unroll
    for (int first = 0; first < kOwn; first += run) {
      uint4 found[batch][run];
      const auto wanted = [&](int i, int t) {
        return first + t < kOwn && block + i < end && block + i != self && own.begin + first + t < own.end;
      };
      const auto place = [&](int i, int t) { return sums + (i * Shape::groups * Shape::eights + first + t) * 128; };
#pragma unroll
      for (int i = 0; i < batch; i++)
#pragma unroll
        for (int t = 0; t < run; t++)
          found[i][t] = wanted(i, t) ? ptx::load_relaxed(place(i, t)) : make_uint4(0, 0, 0, 0);
#pragma unroll
      for (int i = 0; i < batch; i++) {
#pragma unroll
        for (int t = 0; t < run; t++) {
          if (first + t >= kOwn || !wanted(i, t))
            continue;
          uint4 &quad = found[i][t];
          while (quad.x == nothing || quad.y == nothing || quad.z == nothing || quad.w == nothing)
            quad = ptx::load_relaxed(place(i, t));
          ptx::store_relaxed(place(i, t), empty);
          const int to = 4 * (first + t);
          sum[to] += __uint_as_float(quad.x), sum[to + 1] += __uint_as_float(quad.y);
          sum[to + 2] += __uint_as_float(quad.z), sum[to + 3] += __uint_as_float(quad.w);
        }
      }
    }
  }
}

// ---- sums to y

// A warpgroup's rows of W in a tile.
template <typename Shape> __device__ inline int64_t rows_begin(const place &at, int group) {
  return (static_cast<int64_t>(at.w) * Shape::groups + group) * INT2_BLOCK_ROWS;
}

// What sums are multiplied by, where W was by its scales or, large ones, the half. Here, where it goes with the bias:
// behind the products it would take 64 instructions of wide tiles, and registers that these lack.
template <typename Shape> __device__ inline float sums_by(const tiles_product &p) {
  return Shape::scales_w && p.large_scales ? 2.0f : 1.0f;
}
// The same of row n of W, which may have a factor.
template <typename Shape> __device__ inline float sums_by(const tiles_product &p, int64_t n) {
  if constexpr (Shape::factors)
    return p.factors[min(n, p.n - 1)] * Shape::unit;
  else
    return sums_by<Shape>(p);
}

// f32: eight columns of sums at a time through shared memory, so that whole runs of y are written.
template <typename Shape, int kOwn, int kCount>
__device__ inline void write_f32(const work &w, shared<Shape> &s, const place &at, int group,
                                 const float (&sum)[kCount], span own) {
  constexpr int pitch = INT2_BLOCK_ROWS + 4;
  static_assert(2 * 8 * pitch * sizeof(float) <= sizeof s.out[0], "two times eight columns");
  const tiles_product &p = w.product;
  const int thread = static_cast<int>(ptx::thread()) % 128, lane = thread % 32, column = thread / 16,
            four = thread % 16 * 4;
  const int64_t n = rows_begin<Shape>(at, group) + four;
  float bias[4] = {}, by[4];
#pragma unroll
  for (int j = 0; j < 4; j++)
    by[j] = sums_by<Shape>(p, n + j);
  if (p.bias && n < p.n)
#pragma unroll
    for (int j = 0; j < 4; j++)
      bias[j] = number_load_as(p.bias, min(n + j, p.n - 1), p.bias_type);
#pragma unroll
  for (int t = 0; t < kOwn; t++) {
    if (own.begin + t >= own.end)
      break;
    float *const out = reinterpret_cast<float *>(s.out[group]) + t % 2 * 8 * pitch;
    float *const to = out + lane % 4 * 2 * pitch + thread / 32 * INT2_UNIT_ROWS + lane / 4;
    to[0] = sum[4 * t];
    to[pitch] = sum[4 * t + 1];
    to[8] = sum[4 * t + 2];
    to[pitch + 8] = sum[4 * t + 3];
    group_sync(group);
    const int64_t m = static_cast<int64_t>(at.x) * s.columns + 8 * (own.begin + t) + column;
    if (m >= p.m || n >= p.n)
      continue;
    const float4 found = *reinterpret_cast<const float4 *>(out + column * pitch + four);
    const float value[4] = {fmaf(found.x, by[0], bias[0]), fmaf(found.y, by[1], bias[1]), fmaf(found.z, by[2], bias[2]),
                            fmaf(found.w, by[3], bias[3])};
    number_store4(reinterpret_cast<float *>(static_cast<uint8_t *>(p.y) + m * p.y_stride), n, p.n, value);
  }
}

__device__ inline uint32_t pair_of(float low, float high, bool f16) {
  const __half2 pair = __floats2half2_rn(low, high);
  return f16 ? reinterpret_cast<const uint32_t &>(pair) : int2_pack(low, high);
}

// Elements [n, n + 8) of a row of y, of 16 bits each, as far as it goes.
__device__ inline void store_eight(uint8_t *row, int64_t n, int64_t end, uint4 value) {
  uint8_t *const to = row + 2 * n;
  if (n + 8 <= end && reinterpret_cast<uintptr_t>(to) % sizeof value == 0) {
    *reinterpret_cast<uint4 *>(to) = value;
    return;
  }
  const uint32_t words[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
  for (int j = 0; j < 8; j++)
    if (n + j < end)
      reinterpret_cast<uint16_t *>(to)[j] = static_cast<uint16_t>(words[j / 2] >> 16 * (j % 2));
}

// f16 and bf16: up to out_rows rows of y at a time, transposed on their way to shared memory, and from there in runs of
// 16 bytes a lane.
template <typename Shape, int kOwn, int kCount>
__device__ inline void write_16(const work &w, shared<Shape> &s, const place &at, int group, const float (&sum)[kCount],
                                span own) {
  constexpr int eights = out_rows / 8 < kOwn ? out_rows / 8 : kOwn;
  const tiles_product &p = w.product;
  const int thread = static_cast<int>(ptx::thread()) % 128, warp = thread / 32, lane = thread % 32, part = thread % 8;
  const bool f16 = p.y_type == GEMM_F16;
  const int64_t first_n = rows_begin<Shape>(at, group), own_n = first_n + warp * INT2_UNIT_ROWS + lane / 4;
  const float by[2] = {sums_by<Shape>(p, own_n), sums_by<Shape>(p, own_n + 8)};
  float bias[2] = {};
  if (p.bias)
#pragma unroll
    for (int j = 0; j < 2; j++)
      bias[j] = number_load_as(p.bias, min(own_n + 8 * j, p.n - 1), p.bias_type);
  const uint32_t out = ptx::shared_address(s.out[group]);
  const uint32_t to = out + lane % 8 * out_pitch + warp * INT2_UNIT_ROWS * 2 + lane / 8 % 2 * 16;
#pragma unroll
  for (int first = 0; first < kOwn; first += eights) {
    if (own.begin + first >= own.end)
      break;
    if (first > 0)
      group_sync(group);
#pragma unroll
    for (int t = 0; t < eights && first + t < kOwn; t++) {
      const int from = 4 * (first + t);
      const uint32_t pairs[2] = {
          pair_of(fmaf(sum[from], by[0], bias[0]), fmaf(sum[from + 1], by[0], bias[0]), f16),
          pair_of(fmaf(sum[from + 2], by[1], bias[1]), fmaf(sum[from + 3], by[1], bias[1]), f16)};
      ptx::store_matrices_transposed(to + t * 8 * out_pitch, pairs);
    }
    group_sync(group);
    const int64_t n = first_n + part * 8;
    const int64_t m = static_cast<int64_t>(at.x) * s.columns + 8 * (own.begin + first);
    const int rows = static_cast<int>(min(static_cast<int64_t>(8 * min(eights, own.end - own.begin - first)), p.m - m));
    if (n >= p.n)
      continue;
#pragma unroll 1
    for (int row = thread / 8; row < rows; row += 16)
      store_eight(static_cast<uint8_t *>(p.y) + (m + row) * p.y_stride, n, p.n,
                  ptx::load_shared_uint4(out + row * out_pitch + part * 16));
  }
}

// Times the scales of rows of x, which the quantizer ahead may have written.
template <typename Shape, int kOwn, int kCount>
__device__ inline void scale_by_x(const tiles_product &p, const place &at, float (&sum)[kCount], span own) {
  ptx::wait_for_previous_grid();
  const int64_t first = static_cast<int64_t>(at.x) * Shape::columns + ptx::thread() % 4 * 2;
#pragma unroll
  for (int t = 0; t < kOwn; t++) {
    if (own.begin + t >= own.end)
      break;
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const float scale = p.x_scale[min(first + 8 * (own.begin + t) + j, p.m - 1)];
      sum[4 * t + j] *= scale, sum[4 * t + 2 + j] *= scale;
    }
  }
}

// Columns `own` of the warpgroup's 64 rows of W, of which `sum` begins with the first.
template <typename Shape, int kOwn, int kCount>
__device__ inline void write_y(const work &w, shared<Shape> &s, const place &at, int group, float (&sum)[kCount],
                               span own) {
  if constexpr (Shape::int8)
    scale_by_x<Shape, kOwn>(w.product, at, sum, own);
  group_sync(group); // the tile before has left shared memory
  if (w.product.y_type == GEMM_F32)
    write_f32<Shape, kOwn>(w, s, at, group, sum, own);
  else
    write_16<Shape, kOwn>(w, s, at, group, sum, own);
}

// Of a tile that w.split_k blocks have equal parts of, all at the same time: each adds up and writes up to 8 * kOwn of
// its columns.
template <typename Shape, int kOwn>
__device__ inline void share_tile(const work &w, shared<Shape> &s, const place &at, int group,
                                  float (&sum)[4 * Shape::eights]) {
  const int block = static_cast<int>(ptx::block()), begin = block / w.split_k * w.split_k;
  const span own = span_of(Shape::eights, w.split_k, block - begin);
  // The highest bit of where a block's begin.
  constexpr int high = Shape::eights > 8 ? 8 : Shape::eights > 4 ? 4 : Shape::eights > 2 ? 2 : 1;
  move_down<high>(sum, own.begin);
  add_sums<Shape, kOwn>(w, begin, begin + w.split_k, group, sum, own);
  write_y<Shape, kOwn>(w, s, at, group, sum, own);
}

// What follows the products of a segment, whose last unit is a block's number `done` - 1: its sums go to the blocks
// that share the tile, or with theirs to y.
template <typename Shape>
__device__ inline void finish(const work &w, shared<Shape> &s, uint32_t done, float (&sum)[4 * Shape::eights]) {
  constexpr int eights = Shape::eights, half = (eights + 1) / 2, quarter = (eights + 3) / 4;
  const int block = static_cast<int>(ptx::block()), group = static_cast<int>(ptx::thread()) / 128;
  const segment part(w, block, done);
  if (w.split_k > 1 || part.first > 0)
    leave_sums<Shape>(w, group, sum, w.split_k > 1 ? span_of(eights, w.split_k, block % w.split_k) : span{});
  if (w.split_k > 3) {
    share_tile<Shape, quarter>(w, s, place(w, part.tile), group, sum);
  } else if (w.split_k > 1) {
    share_tile<Shape, half>(w, s, place(w, part.tile), group, sum);
  } else if (part.first == 0) {
    int last = block;
    for (uint32_t have = part.last; have < static_cast<uint32_t>(w.plan.tiles_k);
         have = run_of_units(w, last, 0).end - part.tile * w.plan.tiles_k)
      last++;
    add_sums<Shape, eights>(w, block + 1, last + 1, group, sum, span{0, eights});
    write_y<Shape, eights>(w, s, place(w, part.tile), group, sum, span{0, eights});
  }
}

} // namespace int2_many
