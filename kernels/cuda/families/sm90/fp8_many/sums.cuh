// From the sums of fp8_many/kernel.cuh to y, where a cluster has a tile, too.
#pragma once

#include "../../../device/span.cuh"
#include "../hopper/output.cuh"
#include "share.cuh"

namespace fp8_many {

__device__ inline void group_sync(int group) {
  ptx::named_barrier_sync(1 + group, 128);
}

// ---- sums of a tile that a cluster has, whose blocks have parts of its K

constexpr int eight_bytes = 128 * 16; // of a warpgroup's eight columns

template <int kSplit, typename T> __device__ inline span span_of(int rank) {
  constexpr int each = T::template eights_of_block<kSplit>;
  return {min(each * rank, T::eights), min(each * (rank + 1), T::eights)};
}

// Bytes of sums that come to a block.
template <int kSplit, typename T> __device__ inline uint32_t joined_bytes(int rank) {
  const span own = span_of<kSplit, T>(rank);
  return (kSplit - 1) * T::groups * (own.end - own.begin) * eight_bytes;
}

__device__ inline int bits_of(float value) {
  return __float_as_int(value);
}

__device__ inline int bits_of(int value) {
  return value;
}

__device__ inline void add_bits(float &sum, int bits) {
  sum += __int_as_float(bits);
}

__device__ inline void add_bits(int &sum, int bits) {
  sum += bits;
}

// Sends the others theirs, and makes of the first sums the whole ones of this block's columns. `here`: where sums come
// to, [block that sends][warpgroup][eight columns], each as its threads hold them.
template <int kSplit, typename T>
__device__ inline void join(int rank, int group, typename T::Sum (&sum)[T::of_thread], uint32_t here,
                            uint32_t barrier) {
  constexpr int each = T::template eights_of_block<kSplit>;
  const uint32_t place = threadIdx.x % 128 * 16;
  const auto from = [&](int sender) { return here + (sender * T::groups + group) * each * eight_bytes + place; };
  ptx::cluster_wait(); // all blocks have begun
#pragma unroll
  for (int owner = 0; owner < kSplit; owner++) {
    if (owner == rank)
      continue;
    const uint32_t to = ptx::map_to_rank(from(rank < owner ? rank : rank - 1), owner);
    const uint32_t joined = ptx::map_to_rank(barrier, owner);
#pragma unroll
    for (int t = owner * each; t < (owner + 1) * each && t < T::eights; t++)
      ptx::store_async(
          to + (t - owner * each) * eight_bytes,
          make_int4(bits_of(sum[4 * t]), bits_of(sum[4 * t + 1]), bits_of(sum[4 * t + 2]), bits_of(sum[4 * t + 3])),
          joined);
  }
  const span own = span_of<kSplit, T>(rank);
  static_assert(T::eights > 8 && T::eights <= 16, "eight is the highest bit of where a block's begin");
  move_down<8>(sum, own.begin);
  ptx::barrier_wait(barrier, 0);
#pragma unroll
  for (int sender = 0; sender < kSplit - 1; sender++) {
#pragma unroll
    for (int t = 0; t < each && t < T::eights; t++) {
      if (own.begin + t >= own.end)
        continue;
      const int4 quad = ptx::load_shared_int4(from(sender) + t * eight_bytes);
      add_bits(sum[4 * t], quad.x), add_bits(sum[4 * t + 1], quad.y);
      add_bits(sum[4 * t + 2], quad.z), add_bits(sum[4 * t + 3], quad.w);
    }
  }
}

// ---- sums to y

// What a thread needs to make y of a tile's sums, asked for before the products: scales of x by thread, those of W and
// the bias of the two rows of W that a thread has of each 64.
struct factors {
  float x_scale, w_scale[2], bias[2];

  __device__ factors(const hopper_product &p, int64_t first_m, int64_t first_n) {
    const int thread = threadIdx.x % 128;
    x_scale = p.x_scale ? p.x_scale[min(first_m + thread, p.m - 1)] : 1.0f;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int64_t n = min(first_n + thread / 32 * 16 + thread % 32 / 4 + 8 * i, p.n - 1);
      w_scale[i] = p.w_scale ? p.w_scale[n] : 1.0f;
      bias[i] = p.bias ? number_load_as(p.bias, n, p.bias_type) : 0.0f;
    }
  }
};

__device__ inline uint32_t pair_of(float low, float high, gemm_type y_type, half_or_bf16) {
  const __half2 halves = __floats2half2_rn(low, high);
  const __nv_bfloat162 others = __floats2bfloat162_rn(low, high);
  return y_type == GEMM_F16 ? reinterpret_cast<const uint32_t &>(halves) : reinterpret_cast<const uint32_t &>(others);
}

__device__ inline uint32_t pair_of(float low, float high, gemm_type, __half) {
  const __half2 pair = __floats2half2_rn(low, high);
  return reinterpret_cast<const uint32_t &>(pair);
}

__device__ inline uint32_t pair_of(float low, float high, gemm_type, __nv_bfloat16) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t &>(pair);
}

template <typename Out> __device__ inline float scaled(float sum, float w_scale, float x_scale, float bias) {
  return number_scaled(sum, w_scale, x_scale, bias);
}

template <typename Out> __device__ inline float scaled(int sum, float w_scale, float x_scale, float bias) {
  return std::is_same_v<Out, float> ? number_scaled_exactly(sum, w_scale, x_scale, bias)
                                    : number_scaled(static_cast<float>(sum), w_scale, x_scale, bias);
}

// A lane's share of `count` elements, up to 64, of a row of y that is aligned to no more than an element: words of 4
// bytes from the first that is aligned to that on, and what is left over at both ends.
template <typename Y> struct piece_of_row {
  static constexpr int each = 4 / sizeof(Y), words = 64 / each / 32;
  Y *to;
  int first; // word, in elements
  Y elements[words][each], begin;

  // from: where it lies, with room behind it.
  __device__ void load(Y *row, const Y *from) {
    to = row;
    const int shift = reinterpret_cast<uintptr_t>(to) % 4 / sizeof(Y);
    first = shift + threadIdx.x % 32 * each;
    begin = from[0];
#pragma unroll
    for (int i = 0; i < words; i++)
#pragma unroll
      for (int j = 0; j < each; j++)
        elements[i][j] = from[first + i * 32 * each + j];
  }
  __device__ void store(int count) const {
#pragma unroll
    for (int i = 0; i < words; i++) {
      const int at = first + i * 32 * each;
      if (at + each <= count) {
        uint32_t word;
        memcpy(&word, elements[i], sizeof word);
        *reinterpret_cast<uint32_t *>(to + at) = word;
      } else if (at < count) {
        to[at] = elements[i][0];
      }
    }
    if (each > 1 && first == 1 && count > 0)
      to[0] = begin;
  }
};

// Of `rows` rows those that are this warp's, every fourth: some at a time, so that each waits for no other's loads.
template <int kPitch, typename Y>
__device__ inline void store_ragged(uint8_t *y, uint64_t stride, const uint8_t *from, int rows, int count) {
  constexpr int batch = 4;
  piece_of_row<Y> piece[batch];
#pragma unroll 1
  for (int first = threadIdx.x / 32 % 4; first < rows; first += 4 * batch) {
#pragma unroll
    for (int i = 0; i < batch; i++) {
      const int row = min(first + 4 * i, rows - 1);
      piece[i].load(reinterpret_cast<Y *>(y + row * stride), reinterpret_cast<const Y *>(from + row * kPitch));
    }
#pragma unroll
    for (int i = 0; i < batch; i++)
      if (first + 4 * i < rows)
        piece[i].store(count);
  }
}

// kEights, one or two, times eight columns of sums, scaled, to where they lie in a warpgroup's 64 rows of y; `to`: of
// the first column.
template <typename T, int kEights>
__device__ inline void put_down(const typename T::Sum *sum, const factors &f, const float2 *x_scale, gemm_type y_type,
                                uint32_t to) {
  constexpr int pitch = T::out_pitch;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  float value[4 * kEights];
#pragma unroll
  for (int i = 0; i < 4 * kEights; i++)
    value[i] = scaled<typename T::Out>(sum[i], f.w_scale[i / 2 % 2], i % 2 ? x_scale[i / 4].y : x_scale[i / 4].x,
                                       f.bias[i / 2 % 2]);
  if constexpr (sizeof(typename T::Out) == 2) {
    uint32_t pairs[2 * kEights];
#pragma unroll
    for (int i = 0; i < 2 * kEights; i++)
      pairs[i] = pair_of(value[2 * i], value[2 * i + 1], y_type, typename T::Out());
    to += (lane / 16 * 8 % (8 * kEights) + lane % 8) * pitch + warp * 32 + lane / 8 % 2 * 16;
    if constexpr (kEights == 2)
      ptx::store_four_matrices_transposed(to, pairs);
    else
      ptx::store_matrices_transposed(to, pairs);
  } else {
    to += lane % 4 * 2 * pitch + (warp * 16 + lane / 4) * 4;
#pragma unroll
    for (int i = 0; i < 4 * kEights; i++)
      ptx::store_shared(to + (i / 4 * 8 + i % 2) * pitch + i / 2 % 2 * 32, __float_as_uint(value[i]));
  }
}

// 16 bytes of a row of y from column n on, as far as it goes.
template <typename Y> __device__ inline void store_vector(uint8_t *row, int64_t n, int64_t end, uint4 vector) {
  constexpr int count = 16 / sizeof(Y);
  Y *const y = reinterpret_cast<Y *>(row) + n;
  if (n + count <= end && reinterpret_cast<uintptr_t>(y) % 16 == 0) {
    *reinterpret_cast<uint4 *>(y) = vector;
    return;
  }
  const Y *const elements = reinterpret_cast<const Y *>(&vector);
#pragma unroll
  for (int i = 0; i < count; i++)
    if (n + i < end)
      y[i] = elements[i];
}

// How a thread writes rows of y.
struct run_of_y {
  int64_t n;          // the first column of its 16 bytes
  bool whole, ragged; // all of these are there in every row, aligned; rows are not aligned to 16 bytes

  template <typename Y> static __device__ run_of_y of(const hopper_product &p, int64_t n) {
    const bool aligned = (reinterpret_cast<uintptr_t>(p.y) | static_cast<uintptr_t>(p.y_stride)) % 16 == 0;
    return {n, !p.y_rows && aligned && n + static_cast<int64_t>(16 / sizeof(Y)) <= p.n, !p.y_rows && !aligned};
  }
};

// Columns `own` of 64 rows of W from first_n on, of which `sum` begins with the first; through shared memory, so that
// whole runs of y are written.
template <int kOwn, typename T>
__device__ inline void write_y(const work &w, shared<T> &s, int64_t first_m, int64_t first_n, int group,
                               const typename T::Sum (&sum)[T::of_thread], const factors &f, span own) {
  using Y = typename T::Out;
  constexpr int pitch = T::out_pitch, per_lane = 16 / sizeof(Y), lanes = 64 / per_lane, apart = 128 / lanes;
  constexpr int most = kOwn < T::eights ? kOwn : T::eights, each = T::out_rows / 8 < most ? T::out_rows / 8 : most;
  const hopper_product &p = w.product;
  const int thread = threadIdx.x % 128, row = thread / lanes;
  const uint32_t out = ptx::shared_address(s.out[group]), from = out + row * pitch + thread % lanes * 16;
  const run_of_y run = run_of_y::of<Y>(p, first_n + thread % lanes * per_lane);
  s.x_scale[group][thread] = f.x_scale;
  group_sync(group);
  float2 x_scale[most]; // loaded together: what puts sums down waits for none of them
#pragma unroll
  for (int t = 0; t < most; t++)
    x_scale[t] = *reinterpret_cast<const float2 *>(
        &s.x_scale[group][8 * min(own.begin + t, T::eights - 1) + threadIdx.x % 4 * 2]);
#pragma unroll
  for (int first = 0; first < most; first += each) {
    const int column = 8 * (own.begin + first), columns_left = min(w.plan.columns, 8 * own.end) - column;
    const int64_t m = first_m + column;
    const int rows = static_cast<int>(min(static_cast<int64_t>(min(8 * each, columns_left)), p.m - m));
    if (rows <= 0)
      break;
    if (first > 0)
      group_sync(group); // those before have left shared memory
#pragma unroll
    for (int t = first; t < first + each && t < most; t += 2) {
      const uint32_t to = out + (t - first) * 8 * pitch;
      if (t + 1 < first + each && t + 1 < most)
        put_down<T, 2>(sum + 4 * t, f, x_scale + t, p.y_type, to);
      else
        put_down<T, 1>(sum + 4 * t, f, x_scale + t, p.y_type, to);
    }
    group_sync(group);
    if (run.whole) {
      uint8_t *const to = static_cast<uint8_t *>(p.y) + (m + row) * p.y_stride + run.n * sizeof(Y);
      const int64_t hop = apart * p.y_stride;
#pragma unroll
      for (int i = 0; i < (each * 8 + apart - 1) / apart; i++)
        if (row + i * apart < rows)
          *reinterpret_cast<int4 *>(to + i * hop) = ptx::load_shared_int4(from + i * apart * pitch);
    } else if (run.ragged) {
      store_ragged<pitch, Y>(static_cast<uint8_t *>(p.y) + m * p.y_stride + first_n * sizeof(Y), p.y_stride,
                             s.out[group], rows, static_cast<int>(min(p.n - first_n, static_cast<int64_t>(64))));
    } else if (run.n < p.n) {
#pragma unroll 1
      for (int i = row; i < rows; i += apart)
        store_vector<Y>(hopper::row_of_y(p, m + i), run.n, p.n, ptx::load_shared_uint4(from + (i - row) * pitch));
    }
  }
  group_sync(group); // and the scales of x are free
}

} // namespace fp8_many
