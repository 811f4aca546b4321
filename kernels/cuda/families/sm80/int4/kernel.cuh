// Kernel of sm80/int4/launch.h. Codes become numbers of x's type in registers, the left operand of a matrix
// instruction; what they are on the way is int4/codes.cuh's and int4/nvfp4.cuh's.
#pragma once

#include "../../../device/half2.cuh"
#include "../../sm90/int4/nvfp4.cuh"
#include "../int2/operand.cuh"
#include "config.h"
#include "product.h"

namespace sm80_int4 {

enum class kind { integers, mxfp4, nvfp4 };

struct work {
  sm80_int4_product product;
  sm80_int4_plan plan;
  float unit; // by what sums are to be multiplied
};

constexpr int threads = 32 * SM80_INT4_WARPS, units = INT4_HALF_ROWS / INT4_UNIT_ROWS, adders = 256;
constexpr int pitch = INT4_BLOCK_ROWS + SM80_INT4_PADDING / 4; // of sums

inline float unit_of(bool nvfp4, bool f16) {
  if (nvfp4)
    return f16 ? codes4::e4m3_unit<__half> : codes4::e4m3_unit<__nv_bfloat16>;
  return f16 ? codes4::e2m1_unit<__half> : codes4::e2m1_unit<__nv_bfloat16>;
}

// Of which type codes become, and how eight rows of x are read.
template <typename X> struct operands {
  using number = X;
  using x = sm80::plain_x<1>;
};
template <> struct operands<float> {
  using number = __nv_bfloat16;
  using x = sm80_int2::split_x<1>;
};

__device__ inline void multiply(float (&d)[4], const uint32_t (&a)[4], const sm80::fragment &b, __half) {
  ptx::mma_f16(d, a, b.words, d);
}
__device__ inline void multiply(float (&d)[4], const uint32_t (&a)[4], const sm80::fragment &b, __nv_bfloat16) {
  ptx::mma_bf16(d, a, b.words, d);
}
__device__ inline void multiply(float (&d)[4], const uint32_t (&a)[4], const sm80_int2::split_fragment &b,
                                __nv_bfloat16) {
  ptx::mma_bf16(d, a, b.high, d);
  ptx::mma_bf16(d, a, b.low, d);
}

// ---- copies

// A block's part of the turns.
struct share {
  int first, end;
  __device__ explicit share(const work &w)
      : first(static_cast<int>(static_cast<int64_t>(w.plan.turns) * blockIdx.y / w.plan.split_k)),
        end(static_cast<int>(static_cast<int64_t>(w.plan.turns) * (blockIdx.y + 1) / w.plan.split_k)) {}
};

// Tiles of a turn, which lie in one piece, and behind them what they multiply: of each tile the rows of x.
__device__ inline void fetch(const work &w, int turn, uint32_t slot) {
  const int tile_bytes = 2 * w.plan.half_bytes, first = turn * SM80_INT4_TOGETHER;
  const int tiles = min(SM80_INT4_TOGETHER, w.plan.tiles - first), thread = static_cast<int>(threadIdx.x);
  const uint8_t *const from = static_cast<const uint8_t *>(w.product.tiles) +
                              (static_cast<int64_t>(blockIdx.x) * w.plan.tiles + first) * tile_bytes;
  for (int at = thread * 16; at < tiles * tile_bytes; at += threads * 16)
    ptx::copy_async_16(slot + at, from + at, 16);
  const int row_bytes = w.plan.x_row_bytes - SM80_INT4_PADDING, pieces = row_bytes / 16;
  const int all = static_cast<int>(w.product.m) * tiles * pieces;
  const uint8_t *const x = static_cast<const uint8_t *>(w.product.x) + static_cast<int64_t>(first) * row_bytes;
  const uint32_t to = slot + SM80_INT4_TOGETHER * tile_bytes;
  for (int i = thread; i < all; i += threads) {
    const int piece = i % pieces, tile = i / pieces % tiles, row = i / pieces / tiles;
    ptx::copy_async_16(to + (tile * SM80_INT4_COLUMNS + row) * w.plan.x_row_bytes + piece * 16,
                       x + row * w.product.x_stride + tile * row_bytes + piece * 16, 16);
  }
}

// ---- products

// A lane's of half a tile that depends on rows of W: scales and zero points of a quarter of the tile's K.
template <typename Number> struct quarter {
  codes4::offsets less;
  float2 scale; // of rows g and g + 8

  // at: of the half tile; u: the unit.
  __device__ static quarter integers(const work &w, uint32_t at, int u, int number, int lane) {
    const int groups = w.plan.groups, group = number * groups / 4, row = (8 * u + lane / 4) * groups + group;
    const uint32_t scales = ptx::load_shared(at + INT4_HALF_SCALES + 4 * row);
    uint32_t even = 8, odd = 8;
    if (w.plan.zeros) {
      const uint32_t word = ptx::load_shared(at + w.plan.zeros_at + 2 * row / 4 * 4) >> 16 * (row % 2);
      even = word & 0xff, odd = word >> 8 & 0xff;
    }
    return {codes4::offsets_of<Number>(even * 0x10001, odd * 0x10001),
            w.product.bf16_scales ? floats_of<__nv_bfloat16>(scales) : floats_of<__half>(scales)};
  }
  __device__ static quarter powers(uint32_t at, int u, int number, int lane) {
    const uint2 both = ptx::load_shared_uint2(at + INT4_HALF_SCALES + 8 * (8 * u + lane / 4));
    const auto power = [&](uint32_t bytes) { // 0 is 2^-127
      return __uint_as_float(max((bytes >> 8 * number & 0xff) << 23, 0x00400000u));
    };
    return {{}, {power(both.x), power(both.y)}};
  }
};

// Half a tile by eight rows of x.
template <kind kKind, typename X>
__device__ inline void multiply_half(float (&sum)[units][4], const work &w, const typename operands<X>::x &rows,
                                     uint32_t at, uint32_t x, int lane) {
  using number = typename operands<X>::number;
  uint4 words[units];
  typename operands<X>::x::loaded b[2][1];
#pragma unroll
  for (int part = 0; part < 4; part++) {
    float sums[units][4] = {};
    quarter<number> of[units];
    uint32_t pairs[units];
#pragma unroll
    for (int u = 0; u < units; u++) {
      if (part % 2 == 0)
        words[u] = ptx::load_shared_uint4(at + (2 * u + part / 2) * INT4_UNIT_BYTES + lane * 16);
      if constexpr (kKind == kind::integers)
        of[u] = quarter<number>::integers(w, at, u, part, lane);
      else if constexpr (kKind == kind::mxfp4)
        of[u] = quarter<number>::powers(at, u, part, lane);
      else
        pairs[u] = ptx::load_shared(at + INT4_HALF_SCALES + 16 * (8 * u + lane / 4) + 4 * part);
    }
#pragma unroll
    for (int s = 0; s < 2; s++) {
      rows.load(x, 2 * part + s, b);
#pragma unroll
      for (int u = 0; u < units; u++) {
        const uint32_t word = part % 2 == 0 ? (s == 0 ? words[u].x : words[u].y) : s == 0 ? words[u].z : words[u].w;
        uint32_t a[4];
        if constexpr (kKind == kind::integers)
          codes4::numbers<number>(a, word, of[u].less);
        else if constexpr (kKind == kind::mxfp4)
          codes4::e2m1_numbers<number>(a, word);
        else
          codes4::e4m3_scaled<number>(a, word, codes4::e4m3_scales<number>(pairs[u], s));
        multiply(kKind == kind::nvfp4 ? sum[u] : sums[u], a, b[s][0], number());
      }
    }
    if constexpr (kKind != kind::nvfp4)
#pragma unroll
      for (int u = 0; u < units; u++)
#pragma unroll
        for (int i = 0; i < 4; i++)
          sum[u][i] = fmaf(sums[u][i], i < 2 ? of[u].scale.x : of[u].scale.y, sum[u][i]);
  }
}

// ---- sums to y

__device__ inline void write(const work &w, int64_t m, int64_t n, float sum) {
  const sm80_int4_product &p = w.product;
  const float factor = p.factors ? p.factors[n] : 1.0f, bias = p.bias ? number_load_as(p.bias, n, p.bias_type) : 0.0f;
  number_store_as(static_cast<uint8_t *>(p.y) + m * p.y_stride, n, p.y_type, number_scaled(sum, w.unit, factor, bias));
}

// Of all warps: those of a half of the rows, in the order of K.
__device__ inline void finish(const work &w, const float (&sum)[units][4], float *all) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, m = static_cast<int>(w.product.m);
  float *const to = all + (warp / 2 * SM80_INT4_COLUMNS + lane % 4 * 2) * pitch + warp % 2 * INT4_HALF_ROWS + lane / 4;
#pragma unroll
  for (int u = 0; u < units; u++)
#pragma unroll
    for (int i = 0; i < 4; i++)
      to[i % 2 * pitch + 16 * u + i / 2 * 8] = sum[u][i];
  __syncthreads();
  for (int i = threadIdx.x; i < m * INT4_BLOCK_ROWS; i += threads) {
    const int column = i / INT4_BLOCK_ROWS, row = i % INT4_BLOCK_ROWS;
    float value = 0.0f;
#pragma unroll
    for (int part = 0; part < SM80_INT4_TOGETHER; part++)
      value += all[(part * SM80_INT4_COLUMNS + column) * pitch + row];
    const int64_t n = static_cast<int64_t>(blockIdx.x) * INT4_BLOCK_ROWS + row;
    if (w.plan.split_k > 1)
      w.product.parts[(static_cast<int64_t>(blockIdx.y) * m + column) * w.plan.row_blocks * INT4_BLOCK_ROWS + n] =
          value;
    else if (n < w.product.n)
      write(w, column, n, value);
  }
}

template <kind kKind, typename X> __global__ void __launch_bounds__(threads, 2) run(const __grid_constant__ work w) {
  extern __shared__ __align__(16) uint8_t raw[];
  const uint32_t shared = ptx::shared_address(raw);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, tile = warp / 2, ahead = w.plan.stages - 1;
  const int m = static_cast<int>(w.product.m);
  const share own(w);
  const typename operands<X>::x rows(w.plan.x_row_bytes, m);
  const uint32_t mine = warp * w.plan.half_bytes,
                 x = 2 * SM80_INT4_TOGETHER * w.plan.half_bytes + tile * SM80_INT4_COLUMNS * w.plan.x_row_bytes;
#if __CUDA_ARCH__ >= 900
  ptx::let_next_grid_start();
  ptx::wait_for_previous_grid();
#endif
  const auto ask = [&](int turn) {
    if (turn < own.end)
      fetch(w, turn, shared + (turn - own.first) % w.plan.stages * w.plan.slot_bytes);
    ptx::copy_async_commit();
  };
  for (int i = 0; i < ahead; i++)
    ask(own.first + i);
  float sum[units][4] = {};
#pragma unroll 1
  for (int turn = own.first; turn < own.end; turn++) {
    sm80::wait_for_copies(ahead - 1);
    __syncthreads(); // of all threads, and the slot of the turn before is free
    ask(turn + ahead);
    const uint32_t slot = shared + (turn - own.first) % w.plan.stages * w.plan.slot_bytes;
    if (turn * SM80_INT4_TOGETHER + tile < w.plan.tiles)
      multiply_half<kKind, X>(sum, w, rows, slot + mine, slot + x, lane);
  }
  sm80::wait_for_copies(0);
  __syncthreads();
  finish(w, sum, reinterpret_cast<float *>(raw));
}

// Of a launch whose blocks share K.
__global__ void __launch_bounds__(adders) add_parts(const __grid_constant__ work w) {
  const int64_t rows = static_cast<int64_t>(w.plan.row_blocks) * INT4_BLOCK_ROWS, each = w.product.m * rows;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * adders + threadIdx.x;
#if __CUDA_ARCH__ >= 900
  ptx::let_next_grid_start();
  ptx::wait_for_previous_grid();
#endif
  if (i >= each || i % rows >= w.product.n)
    return;
  float sum = 0.0f;
  for (int part = 0; part < w.plan.split_k; part++)
    sum += w.product.parts[part * each + i];
  write(w, i / rows, i % rows, sum);
}

} // namespace sm80_int4
