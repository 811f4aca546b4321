// Rows of x to the places of their pairs: read and quantized once, written once for each of their ids.
#pragma once

#include "../passes/quantize.cuh"
#include "place.cuh"

namespace experts {

// A thread's eights of a row, at most; longer rows are read twice.
constexpr int kept_most = 2;
// Of a block of a row. Where places are known rows are all that there is to do: small blocks, of which many run.
template <bool kRoutes> constexpr int row_threads = kRoutes ? threads : 256;
// Of a multiprocessor; without instructions for E4M3 registers are too few for six.
template <bool kRoutes, gather_to kTo>
constexpr int row_blocks = kRoutes                                           ? 2
                           : kTo == GATHER_E4M3_BLOCKS && !e4m3_instructions ? 5
                                                                             : 6;

template <typename X> __device__ inline const X *row_of_x(const gather_pass &p, int64_t row) {
  return reinterpret_cast<const X *>(static_cast<const uint8_t *>(p.x) + row * p.x_stride);
}

template <int kWarps> __device__ inline unsigned most_of_block(unsigned most, unsigned (&warps)[kWarps]) {
  most = __reduce_max_sync(0xffffffffu, most);
  if (threadIdx.x % 32 == 0)
    warps[threadIdx.x / 32] = most;
  __syncthreads();
  return __reduce_max_sync(0xffffffffu, threadIdx.x % 32 < kWarps ? warps[threadIdx.x % 32] : 0);
}

__device__ inline unsigned most_of_group(unsigned most) {
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2)
    most = max(most, __shfl_xor_sync(0xffffffffu, most, offset));
  return most;
}

// What a thread keeps of a row, asked for before anything else is done.
template <typename X, int kThreads> struct row_of_eights {
  const X *from;
  int k, first;
  bool aligned;
  quantize_eight<X> kept[kept_most];

  __device__ row_of_eights(const X *from, int64_t columns)
      : from(from), k(static_cast<int>(columns)), first(8 * threadIdx.x) {
    aligned = k % 8 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0;
#pragma unroll
    for (int i = 0; i < kept_most; i++)
      kept[i] = load(first + i * 8 * kThreads);
  }
  __device__ quantize_eight<X> load(int i) const {
    return quantize_load8(from, i, k, aligned);
  }
};

// One row, quantized, to `count` places; those below zero are none.
template <gather_to kTo, typename X, int kThreads>
__device__ inline void quantize_to_places(const gather_pass &p, const row_of_eights<X, kThreads> &row, const int *place,
                                          int count) {
  constexpr bool e4m3 = kTo != GATHER_INT8, blocks = kTo == GATHER_E4M3_BLOCKS;
  __shared__ unsigned warps[kThreads / 32];
  const int k_padded = static_cast<int>(p.k_padded);
  unsigned most = 0;
  if constexpr (!blocks) {
#pragma unroll
    for (int i = 0; i < kept_most; i++)
      most = quantize_magnitude(row.kept[i], most);
    for (int i = row.first + kept_most * 8 * kThreads; i < row.k; i += 8 * kThreads)
      most = quantize_magnitude(row.load(i), most);
    most = most_of_block(quantize_widen<X>(most), warps);
    const float scale = quantize_scale<e4m3>(most);
    for (int j = threadIdx.x; j < count; j += kThreads)
      if (place[j] >= 0)
        p.scales[place[j]] = scale;
  }
  const auto write = [&](const quantize_eight<X> &eight, int i) {
    if constexpr (blocks)
      most = most_of_group(quantize_widen<X>(quantize_magnitude(eight, 0)));
    if (i >= k_padded)
      return;
    const quantize_factors factors(quantize_scale<e4m3>(most));
    const uint2 codes = quantize_codes<e4m3>(eight, factors);
    for (int j = 0; j < count; j++) {
      if (place[j] < 0)
        continue;
      *reinterpret_cast<uint2 *>(static_cast<uint8_t *>(p.out) + place[j] * p.k_padded + i) = codes;
      if (blocks && i % GEMM_GROUP == 0)
        p.scales[i / GEMM_GROUP * p.scale_stride + place[j]] = factors.scale;
    }
  };
#pragma unroll
  for (int i = 0; i < kept_most; i++)
    write(row.kept[i], row.first + i * 8 * kThreads);
  // All lanes of a warp take as many turns, for they ask each other.
  for (int i = kept_most * 8 * kThreads; i < k_padded; i += 8 * kThreads)
    write(row.load(row.first + i), row.first + i);
}

template <typename T>
__device__ inline void copy_elements(const T *from, int64_t k, int64_t k_padded, void *out, const int *place,
                                     int count) {
  for (int64_t i = threadIdx.x; i < k_padded; i += blockDim.x) {
    const T value = i < k ? from[i] : T();
    for (int j = 0; j < count; j++)
      if (place[j] >= 0)
        static_cast<T *>(out)[place[j] * k_padded + i] = value;
  }
}

template <typename X>
__device__ inline void copy_to_places(const gather_pass &p, const X *from, const int *place, int count) {
  constexpr int per_vector = 16 / sizeof(X);
  if (p.k % per_vector == 0 && p.k_padded % per_vector == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0)
    copy_elements(reinterpret_cast<const uint4 *>(from), p.k / per_vector, p.k_padded / per_vector, p.out, place,
                  count);
  else
    copy_elements(from, p.k, p.k_padded, p.out, place, count);
}

// y of pairs that name no expert.
__device__ inline void clear_skipped(const gather_pass &p, int64_t begin, const int *place, int count) {
  for (int j = 0; p.y && j < count; j++) {
    uint8_t *y = static_cast<uint8_t *>(p.y) + (begin + j) * p.y_stride;
    for (int64_t i = threadIdx.x; place[j] < 0 && i < p.y_bytes; i += blockDim.x)
      y[i] = 0;
  }
}

// Where the pairs of a block's row go. False for the last block, which writes tiles. kRoutes: they are found here.
template <bool kRoutes> __device__ inline bool find_places(const gather_pass &p, int64_t begin, int count, counted &s) {
  const bool tiles = begin >= p.pairs;
  for (int i = threadIdx.x; i < count && !tiles; i += blockDim.x) {
    if constexpr (kRoutes)
      s.id[i] = p.ids[begin + i];
    else
      s.place[i] = p.route.place[begin + i];
  }
  if constexpr (kRoutes) {
    count_ids(p, tiles ? 0 : begin, s);
    if (tiles)
      write_tiles(p, s);
    else
      place_range(p, begin, count, s);
  } else {
    __syncthreads();
  }
  return !tiles;
}

// Pairs of a block: those of a row of x. Where there are few each has a block of its own, for one takes longer to write
// a row eight times than eight take to write it once.
__host__ __device__ inline int pairs_of_block(const gather_pass &p) {
  constexpr int few = 128;
  return p.x_pairs || p.pairs <= few ? 1 : p.top;
}

template <typename X, gather_to kTo, bool kRoutes>
__global__ void __launch_bounds__(row_threads<kRoutes>, row_blocks<kRoutes, kTo>)
    gather(const __grid_constant__ gather_pass p) {
  __shared__ counted s;
  quantize_wait_for_x();
  quantize_let_reader_start();
  const int count = pairs_of_block(p);
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * count;
  const int64_t row = kRoutes && !p.x_pairs && count == 1 ? begin / p.top : blockIdx.x;
  const X *const from = row_of_x<X>(p, row);
  if constexpr (kTo == GATHER_AS_IT_IS) {
    if (!find_places<kRoutes>(p, begin, count, s))
      return;
    copy_to_places(p, from, s.place, count);
  } else {
    const row_of_eights<X, row_threads<kRoutes>> eights(from, begin < p.pairs ? p.k : 0);
    if (!find_places<kRoutes>(p, begin, count, s))
      return;
    quantize_to_places<kTo>(p, eights, s.place, count);
  }
  clear_skipped(p, begin, s.place, count);
}

// Places of range_most pairs a block; the last block writes tiles.
__global__ void __launch_bounds__(threads, 2) route(const __grid_constant__ gather_pass p) {
  __shared__ counted s;
  quantize_wait_for_x();
  quantize_let_reader_start();
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * range_most;
  const bool tiles = begin >= p.pairs;
  const int count = tiles ? 0 : static_cast<int>(min(static_cast<int64_t>(range_most), p.pairs - begin));
  for (int i = threadIdx.x; i < count; i += threads)
    s.id[i] = p.ids[begin + i];
  count_ids(p, tiles ? 0 : begin, s);
  if (tiles)
    write_tiles(p, s);
  else
    place_range(p, begin, count, s);
}

} // namespace experts
