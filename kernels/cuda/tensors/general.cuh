// Products of two tensors by a warp's matrix instructions (compute capability 8.0 and newer), wherever and however x
// and W lie: by rows or columns, aligned to an element alone, in mapped memory of the host.
//
// A block computes a tile of 64 x 64 of a slice of K: four warps, 32 x 32 each. The next step of K is on its way to
// registers while this one is multiplied from shared memory, where an operand by columns stays by columns and is
// transposed as it is loaded.
#pragma once

#include "../device/ptx.cuh"
#include "general.h"

namespace general {

constexpr int tile = GENERAL_TILE, step = GENERAL_STEP, threads = 128;
constexpr int row_pitch = step + 8, column_pitch = tile + 8; // halves: neighbouring rows in other banks
constexpr int shared_halves = tile * row_pitch > step *column_pitch ? tile *row_pitch : step *column_pitch;

struct operand {
  const uint8_t *data;
  uint64_t stride;
  int64_t rows;
};

struct work {
  operand x, w;
  int64_t k;
  int64_t pitch, slice; // of partial sums
  float *partials;
  int m_tiles, n_tiles, slices;
  int64_t steps;
};

template <int kVector> struct vector;
template <> struct vector<1> { using type = uint16_t; };
template <> struct vector<2> { using type = uint32_t; };
template <> struct vector<4> { using type = uint2; };
template <> struct vector<8> { using type = uint4; };

// A step of one operand in vectors of kVector halves: of rows from `row` and elements from `k` on; zeros outside.
template <bool kTurned, int kVector> struct fetched {
  using type = typename vector<kVector>::type;
  static constexpr int count = tile * step / threads / kVector;   // of a thread
  static constexpr int along = (kTurned ? tile : step) / kVector; // of a line: a row, or turned a column
  // Few elements at a time take more registers than there are: they go to shared memory at once.
  static constexpr bool ahead = kVector >= 4;
  type vectors[ahead ? count : 1];

  static __device__ type load_one(const operand &from, int64_t row, int64_t k, int64_t k_end, int i) {
    const int at = i * threads + threadIdx.x;
    const int64_t line = at / along + (kTurned ? k : row), first = at % along * kVector + (kTurned ? row : k);
    const int64_t lines = kTurned ? k_end : from.rows, end = kTurned ? from.rows : k_end;
    const uint16_t *source = reinterpret_cast<const uint16_t *>(from.data + line * from.stride) + first;
    if (line < lines && first + kVector <= end)
      return *reinterpret_cast<const type *>(source);
    uint16_t elements[kVector];
#pragma unroll
    for (int j = 0; j < kVector; j++)
      elements[j] = line < lines && first + j < end ? source[j] : uint16_t(0);
    type out;
    memcpy(&out, elements, sizeof out);
    return out;
  }

  static __device__ void store_one(uint16_t *shared, int i, type value) {
    const int at = i * threads + threadIdx.x;
    uint16_t *to = shared + at / along * (kTurned ? column_pitch : row_pitch) + at % along * kVector;
    *reinterpret_cast<type *>(to) = value;
  }

  __device__ void load(const operand &from, int64_t row, int64_t k, int64_t k_end) {
    if constexpr (ahead) {
#pragma unroll
      for (int i = 0; i < count; i++)
        vectors[i] = load_one(from, row, k, k_end, i);
    }
  }

  __device__ void store(uint16_t *shared, const operand &from, int64_t row, int64_t k, int64_t k_end) const {
    if constexpr (ahead) {
#pragma unroll
      for (int i = 0; i < count; i++)
        store_one(shared, i, vectors[i]);
    } else {
#pragma unroll 4
      for (int i = 0; i < count; i++)
        store_one(shared, i, load_one(from, row, k, k_end, i));
    }
  }
};

// 16 rows of x by 16 of K from `row` and `k` on.
template <bool kTurned> __device__ inline void load_x(uint32_t (&out)[4], uint32_t shared, int row, int k) {
  const int lane = threadIdx.x % 32, matrix = lane / 8, line = lane % 8;
  if constexpr (kTurned)
    ptx::load_matrices_transposed(out,
                                  shared + 2 * ((k + matrix / 2 * 8 + line) * column_pitch + row + matrix % 2 * 8));
  else
    ptx::load_matrices(out, shared + 2 * ((row + matrix % 2 * 8 + line) * row_pitch + k + matrix / 2 * 8));
}

// 16 rows of W: two operands of eight.
template <bool kTurned> __device__ inline void load_w(uint32_t (&out)[4], uint32_t shared, int row, int k) {
  const int lane = threadIdx.x % 32, matrix = lane / 8, line = lane % 8;
  if constexpr (kTurned)
    ptx::load_matrices_transposed(out,
                                  shared + 2 * ((k + matrix % 2 * 8 + line) * column_pitch + row + matrix / 2 * 8));
  else
    ptx::load_matrices(out, shared + 2 * ((row + matrix / 2 * 8 + line) * row_pitch + k + matrix % 2 * 8));
}

template <bool kBf16>
__device__ inline void multiply_16(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (kBf16)
    ptx::mma_bf16(sum, a, b, sum);
  else
    ptx::mma_f16(sum, a, b, sum);
}

template <bool kXTurned, bool kWTurned, bool kBf16>
__device__ inline void multiply(float (&sum)[2][4][4], uint32_t x, uint32_t w, int row, int column) {
#pragma unroll
  for (int k = 0; k < step; k += 16) {
    uint32_t a[2][4], b[2][4];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      load_x<kXTurned>(a[i], x, row + 16 * i, k);
      load_w<kWTurned>(b[i], w, column + 16 * i, k);
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
      for (int j = 0; j < 4; j++)
        multiply_16<kBf16>(sum[i][j], a[i], {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]});
  }
}

template <bool kXTurned, bool kWTurned, int kVector, bool kBf16>
__global__ void __launch_bounds__(threads) run(const work w) {
  __shared__ __align__(16) uint16_t xs[shared_halves], ws[shared_halves];
  const int64_t rest = blockIdx.x / w.m_tiles, slice = rest / w.n_tiles;
  const int64_t m = blockIdx.x % w.m_tiles * tile, n = rest % w.n_tiles * tile;
  const int64_t begin = w.steps * slice / w.slices, end = w.steps * (slice + 1) / w.slices;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = warp / 2 * 32, column = warp % 2 * 32;
  fetched<kXTurned, kVector> x_next;
  fetched<kWTurned, kVector> w_next;
  float sum[2][4][4] = {};
  x_next.load(w.x, m, begin * step, w.k);
  w_next.load(w.w, n, begin * step, w.k);
  for (int64_t i = begin; i < end; i++) {
    __syncthreads();
    x_next.store(xs, w.x, m, i * step, w.k);
    w_next.store(ws, w.w, n, i * step, w.k);
    __syncthreads();
    if (i + 1 < end) {
      x_next.load(w.x, m, (i + 1) * step, w.k);
      w_next.load(w.w, n, (i + 1) * step, w.k);
    }
    multiply<kXTurned, kWTurned, kBf16>(sum, ptx::shared_address(xs), ptx::shared_address(ws), row, column);
  }
  float *to = w.partials + slice * w.slice + (m + row + lane / 4) * w.pitch + n + column + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < 2; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      float *at = to + 16 * i * w.pitch + 8 * j;
      *reinterpret_cast<float2 *>(at) = make_float2(sum[i][j][0], sum[i][j][1]);
      *reinterpret_cast<float2 *>(at + 8 * w.pitch) = make_float2(sum[i][j][2], sum[i][j][3]);
    }
}

// A block computes an element, in double precision: what other kernels are compared with.
template <bool kBf16> __global__ void __launch_bounds__(256) plain(const work w, bool x_turned, bool w_turned) {
  __shared__ double parts[256];
  const int64_t n = blockIdx.x;
  const auto element = [&](const operand &o, bool turned, int64_t row, int64_t k) {
    const uint16_t bits =
        *reinterpret_cast<const uint16_t *>(turned ? o.data + k * o.stride + 2 * row : o.data + row * o.stride + 2 * k);
    return kBf16 ? __uint_as_float(static_cast<uint32_t>(bits) << 16) : __half2float(__ushort_as_half(bits));
  };
  for (int64_t m = blockIdx.y; m < w.x.rows; m += gridDim.y) {
    double sum = 0;
    for (int64_t k = threadIdx.x; k < w.k; k += blockDim.x)
      sum += static_cast<double>(element(w.x, x_turned, m, k)) * element(w.w, w_turned, n, k);
    parts[threadIdx.x] = sum;
    for (int half = 128; half > 0; half /= 2) {
      __syncthreads();
      if (threadIdx.x < half)
        parts[threadIdx.x] += parts[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
      w.partials[m * w.pitch + n] = static_cast<float>(parts[0]);
    __syncthreads();
  }
}

} // namespace general
