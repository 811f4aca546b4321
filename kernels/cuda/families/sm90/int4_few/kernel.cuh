// Kernel of int4_few/launch.h.
//
// Warps take half a tile, 32 rows of W x 128 of K, at a time; four more have tiles and x copied ahead. Codes become
// exact 16-bit integers in registers, the left operand of a matrix instruction; x stays as it is, the right one. What a
// group of K adds up to is multiplied by its scale in f32. f32 x takes two columns, in bf16: a number and what that
// leaves of it.
#pragma once

#include "../../../device/half2.cuh"
#include "../../../device/number.cuh"
#include "../../../device/ptx.cuh"
#include "../int2/cut.cuh"
#include "../int4/codes.cuh"
#include "../int4/layout.h"
#include "config.h"
#include "product.h"

#include <type_traits>

namespace int4_few {

constexpr int warps = INT4_FEW_WARPS, threads = 32 * warps;
constexpr int suppliers = INT4_FEW_SUPPLIERS, supplied = warps / suppliers, all_threads = threads + 32 * suppliers;
constexpr int pitch = INT4_HALF_ROWS + 4;
constexpr int units = INT4_HALF_ROWS / INT4_UNIT_ROWS;
constexpr int ring_barrier = 1, asked_barrier = 2, consumer_barrier = 3;

struct work {
  int4_few_product product;
  int4_few_plan plan;
};

// What a weight is: e2m1 codes with bytes of scales, or integers with those of 16 bits; int4/form.h.
template <bool e2m1_, int groups_, bool zeros_> struct form {
  static constexpr bool e2m1 = e2m1_, zeros = zeros_;
  static constexpr int groups = groups_; // of K in a tile
  static constexpr int scale_bytes = e2m1 ? 128 : 64 * groups;
  static constexpr int half_bytes = INT4_HALF_SCALES + scale_bytes + (zeros ? 32 * groups : 0);
  static constexpr int tile_bytes = 2 * half_bytes;
  // Behind the tiles of a stage: barriers that they have come, and, of each supplier, that the lanes of its warps have
  // taken theirs.
  static constexpr int full = warps * half_bytes, barriers = 1 + suppliers;
  static constexpr int stage_bytes = (full + 8 * barriers + INT4_FEW_ALIGN - 1) / INT4_FEW_ALIGN * INT4_FEW_ALIGN;
};

// ---- tiles under way

// By a lane of each warp.
template <typename Form> __device__ inline void make_barriers(const work &w, uint32_t ring, int warp) {
  constexpr int barriers = Form::barriers;
#pragma unroll 1
  for (uint32_t i = warp; i / barriers * Form::stage_bytes < w.plan.ring_bytes; i += warps)
    ptx::barrier_init(ring + i / barriers * Form::stage_bytes + Form::full + i % barriers * 8,
                      i % barriers == 0 ? suppliers : supplied * 32);
  ptx::fence_barrier_init();
}

// Halves of tiles of a warp that are still to be copied; all of it is the same for a warp.
template <typename Form> struct run_of_tiles {
  const uint8_t *from;
  uint32_t tile, tiles; // of the tiles that the rank has of a block of rows
  uint32_t row;         // the block, of all
  int left;

  __device__ run_of_tiles(const work &w, int warp) {
    const int2_cut &cut = w.plan.cut;
    const int2_share mine = int2_cut_share(&cut, warps, blockIdx.y, warp);
    tile = mine.begin - mine.first_block * mine.tiles, tiles = mine.tiles;
    // Rows behind the last are those of the last block once more.
    row = min(blockIdx.x * cut.blocks + mine.first_block, cut.row_blocks - 1);
    from = static_cast<const uint8_t *>(w.product.tiles) +
           static_cast<uint64_t>(row / 2 * cut.tiles + mine.first_tile + tile) * Form::tile_bytes +
           row % 2 * Form::half_bytes;
    left = mine.end - mine.begin;
  }
  __device__ void next(const int2_cut &cut) {
    left--;
    from += Form::tile_bytes;
    if (++tile == tiles) {
      tile = 0;
      from -= static_cast<uint64_t>(tiles) * Form::tile_bytes;
      if (row + 1 < cut.row_blocks) {
        from += row % 2 ? static_cast<uint64_t>(cut.tiles) * Form::tile_bytes - Form::half_bytes : Form::half_bytes;
        row++;
      }
    }
  }
};

// Stages as far ahead as there is room. Behind the last comes an empty one, so that nobody has to know which is the
// last. Only one is asked for before x: what comes to the block comes in order, and x is waited for first.
template <typename Form> __device__ inline void supply(const work &w, uint32_t ring, int warp) {
  static_assert(supplied == 2);
  const int2_cut &cut = w.plan.cut;
  run_of_tiles<Form> first(w, warp * supplied), second(w, warp * supplied + 1);
  const uint64_t policy = ptx::policy_evict_first();
  const bool leads = threadIdx.x % 32 == 0;
  const int all = (cut.blocks * first.tiles + warps - 1) / warps + 1;
  const uint32_t end = ring + w.plan.ring_bytes, to = warp * (supplied * Form::half_bytes);
  const uint32_t my_empty = Form::full + 8 + warp * 8;
  uint32_t at = ring, parity = 1; // of a barrier that nothing has come to, the phase before the first is complete
  ptx::named_barrier_sync(ring_barrier, all_threads);
#pragma unroll 1
  for (int stage = 0; stage < all; stage++) {
    ptx::barrier_wait(at + my_empty, parity);
    if (leads) {
      ptx::barrier_expect(at + Form::full, ((first.left > 0) + (second.left > 0)) * Form::half_bytes);
      if (first.left > 0)
        ptx::copy_bulk(at + to, first.from, Form::half_bytes, at + Form::full, policy);
      if (second.left > 0)
        ptx::copy_bulk(at + to + Form::half_bytes, second.from, Form::half_bytes, at + Form::full, policy);
    }
    first.next(cut);
    second.next(cut);
    at += Form::stage_bytes;
    if (at == end)
      at = ring, parity ^= 1;
    if (stage == 0)
      ptx::named_barrier_sync(asked_barrier, all_threads);
  }
}

// Rows of x as they are, each by a warp's copy.
__device__ inline void copy_x(const work &w, uint32_t x_at, uint32_t x_barrier, const int2_share &mine, int warp) {
  const int4_few_product &p = w.product;
  const uint32_t bytes = mine.tiles * (GEMM_GROUP * 2), pitch = bytes + INT4_FEW_X_PAD, m = p.m;
  const uint8_t *from = static_cast<const uint8_t *>(p.x) + mine.first_tile * (GEMM_GROUP * 2) + warp * p.x_stride;
  const uint64_t policy = ptx::policy_evict_normal();
  if (threadIdx.x % 32 == 0) {
    ptx::barrier_expect(x_barrier, (m + warps - 1 - warp) / warps * bytes);
#pragma unroll 1
    for (uint32_t row = warp; row < m; row += warps, from += warps * p.x_stride)
      ptx::copy_bulk(x_at + row * pitch, from, bytes, x_barrier, policy);
  }
  __syncwarp();
}

// f32 x by those who multiply: each row in two of bf16.
__device__ inline void split_x(const work &w, uint8_t *x, const int2_share &mine) {
  const int4_few_product &p = w.product;
  const uint32_t pitch = mine.tiles * (GEMM_GROUP * 2) + INT4_FEW_X_PAD, fours = mine.tiles * (GEMM_GROUP / 4);
#pragma unroll 1
  for (uint32_t row = 0; row < p.m; row++) {
    const float4 *const from = reinterpret_cast<const float4 *>(static_cast<const uint8_t *>(p.x) + row * p.x_stride +
                                                                mine.first_tile * (GEMM_GROUP * 4));
    uint8_t *const to = x + 2 * row * pitch;
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < fours; i += threads) {
      const float4 four = from[i];
      const float value[4] = {four.x, four.y, four.z, four.w};
      __nv_bfloat16 high[4], rest[4];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        high[j] = __float2bfloat16_rn(value[j]);
        if (isinf(__bfloat162float(high[j]))) // not of what is finite
          high[j] = __ushort_as_bfloat16(__float_as_uint(value[j]) >> 16);
        const float left = value[j] - __bfloat162float(high[j]);
        rest[j] = __float2bfloat16_rn(fabsf(left) <= 3.0e38f ? left : 0.0f); // of what is not finite: nothing
      }
      *reinterpret_cast<uint2 *>(to + 8 * i) = *reinterpret_cast<const uint2 *>(high);
      *reinterpret_cast<uint2 *>(to + pitch + 8 * i) = *reinterpret_cast<const uint2 *>(rest);
    }
  }
  ptx::named_barrier_sync(consumer_barrier, threads);
}

// ---- products

// A lane's of half a tile.
template <typename Form> struct tile_words {
  static constexpr int scale_words = Form::e2m1 ? 2 : Form::groups, zero_words = Form::groups == 4 ? 2 : 1;
  uint32_t codes[units][2][4], scales[units][scale_words], zeros[units][zero_words];

  static __device__ void load_words(uint32_t (&out)[1], uint32_t at) {
    out[0] = ptx::load_shared(at);
  }
  static __device__ void load_words(uint32_t (&out)[2], uint32_t at) {
    const uint2 two = ptx::load_shared_uint2(at);
    out[0] = two.x, out[1] = two.y;
  }
  static __device__ void load_words(uint32_t (&out)[4], uint32_t at) {
    const uint4 four = ptx::load_shared_uint4(at);
    out[0] = four.x, out[1] = four.y, out[2] = four.z, out[3] = four.w;
  }
  // at: of the half tile.
  __device__ void load(uint32_t at, int lane) {
    constexpr int row_scales = 4 * scale_words, row_zeros = 2 * Form::groups;
#pragma unroll
    for (int u = 0; u < units; u++) {
#pragma unroll
      for (int h = 0; h < 2; h++)
        load_words(codes[u][h], at + (2 * u + h) * INT4_UNIT_BYTES + lane * 16);
      load_words(scales[u], at + INT4_HALF_SCALES + (8 * u + lane / 4) * row_scales);
      const uint32_t zeros_at = at + INT4_HALF_SCALES + Form::scale_bytes + (8 * u + lane / 4) * row_zeros;
      if constexpr (Form::zeros && Form::groups > 1)
        load_words(zeros[u], zeros_at);
      else if constexpr (Form::zeros)
        asm volatile("{\n.reg .u16 two;\nld.shared.u16 two, [%1];\ncvt.u32.u16 %0, two;\n}"
                     : "=r"(zeros[u][0])
                     : "r"(zeros_at)
                     : "memory");
    }
  }
  // Of rows g and g + 8 of unit u.
  __device__ float2 scale(int u, int group, bool bf16) const {
    if constexpr (Form::e2m1)
      return {power(scales[u][0], group), power(scales[u][1], group)};
    else if (bf16)
      return floats_of<__nv_bfloat16>(scales[u][group]);
    else
      return floats_of<__half>(scales[u][group]);
  }
  template <typename X> __device__ codes4::offsets offsets(int u, int group) const {
    if constexpr (Form::zeros) {
      const uint32_t word = zeros[u][group / 2];
      return codes4::offsets_of<X>(__byte_perm(word, 0, group % 2 ? 0x4242 : 0x4040),
                                   __byte_perm(word, 0, group % 2 ? 0x4343 : 0x4141));
    } else {
      return codes4::offsets_of<X>(0x00080008, 0x00080008);
    }
  }

private:
  static __device__ float power(uint32_t bytes, int i) {
    const uint32_t bits = (i < 3 ? bytes << 23 - 8 * i : bytes >> 1) & 0x7f800000;
    return __uint_as_float(max(bits, 0x00400000u)); // 0 is 2^-127
  }
};

// Tiles that a warp takes, as they come.
template <typename Form> struct tile_ring {
  uint32_t at, parity, end, bytes; // at: of the stage
  uint32_t mine, empty;            // in a stage

  __device__ tile_ring(uint32_t ring, uint32_t ring_bytes, int warp)
      : at(ring), parity(0), end(ring + ring_bytes), bytes(ring_bytes), mine(warp * Form::half_bytes),
        empty(Form::full + 8 + warp / supplied * 8) {}
  __device__ void take(tile_words<Form> &out, int lane) const {
    ptx::barrier_wait(at + Form::full, parity);
    out.load(at + mine, lane);
  }
  __device__ void give_back() const {
    ptx::barrier_arrive(at + empty);
  }
  // Behind the last stage comes the first, in the phase of the other parity.
  __device__ void advance() {
    at += Form::stage_bytes;
    if (at == end)
      at -= bytes, parity ^= 1;
  }
};

__device__ inline void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t *b, const float (&c)[4], __half) {
  ptx::mma_f16(d, a, {b[0], b[1]}, c);
}
__device__ inline void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t *b, const float (&c)[4],
                                __nv_bfloat16) {
  ptx::mma_bf16(d, a, {b[0], b[1]}, c);
}

// Half a tile by x: where a lane's row of the first eight has its first numbers, and from these to the next eight.
template <typename Form, typename X, int kEights, typename Between>
__device__ __forceinline__ void multiply_tile(float (&sum)[units][kEights][4], const tile_words<Form> &w, uint32_t x,
                                              uint32_t eight_bytes, bool bf16_scales, const Between &between) {
  constexpr float zeros[4] = {};
  constexpr int pairs = 4, pairs_a_group = pairs / Form::groups; // of steps of 16
  float part[units][kEights][4];
  codes4::offsets less[units];
  uint32_t loaded[2][kEights][4];
  const auto load = [&](int pair) {
#pragma unroll
    for (int e = 0; e < kEights; e++)
      ptx::load_matrices(loaded[pair % 2][e], x + e * eight_bytes + pair * 64);
  };
  load(0);
#pragma unroll
  for (int pair = 0; pair < pairs; pair++) {
    if (pair == pairs / 2)
      between();
    if (pair + 1 < pairs)
      load(pair + 1);
    const auto &b = loaded[pair % 2];
    const int group = pair / pairs_a_group;
#pragma unroll
    for (int u = 0; u < units; u++) {
      if (pair % pairs_a_group == 0)
        less[u] = w.template offsets<X>(u, group);
#pragma unroll
      for (int s = 0; s < 2; s++) {
        uint32_t a[4];
        const uint32_t word = w.codes[u][pair / 2][pair % 2 * 2 + s];
        if constexpr (Form::e2m1)
          codes4::e2m1_numbers<X>(a, word);
        else
          codes4::numbers<X>(a, word, less[u]);
#pragma unroll
        for (int e = 0; e < kEights; e++) {
          const auto &c = pair % pairs_a_group == 0 && s == 0 ? zeros : static_cast<const float(&)[4]>(part[u][e]);
          multiply(part[u][e], a, b[e] + 2 * s, c, X());
        }
      }
      if ((pair + 1) % pairs_a_group == 0) {
        const float2 scale = w.scale(u, group, bf16_scales);
#pragma unroll
        for (int e = 0; e < kEights; e++)
#pragma unroll
          for (int i = 0; i < 4; i++)
            sum[u][e][i] = fmaf(part[u][e][i], i < 2 ? scale.x : scale.y, sum[u][e][i]);
      }
    }
  }
}

// ---- sums to y

// Those of a block of rows, and of the rows of x; splits: of which each has two columns.
template <int kEights>
__device__ inline void store_sums(float (&sum)[units][kEights][4], float *slot, int rows, bool splits, int lane) {
#pragma unroll
  for (int e = 0; e < kEights; e++) {
    const int column = 8 * e + lane % 4 * 2, row = splits ? column / 2 : column;
    float *const at = slot + row * pitch + lane / 4;
#pragma unroll
    for (int u = 0; u < units; u++) {
      float *const d = sum[u][e];
      if (row < rows) {
        at[16 * u] = splits ? d[0] + d[1] : d[0];
        at[16 * u + 8] = splits ? d[2] + d[3] : d[2];
      }
      if (!splits && row + 1 < rows) {
        at[16 * u + pitch] = d[1];
        at[16 * u + pitch + 8] = d[3];
      }
#pragma unroll
      for (int i = 0; i < 4; i++)
        d[i] = 0.0f;
    }
  }
}

// This rank's share of the cluster's y. unit: by what sums are to be multiplied.
__device__ inline void write_y(const work &w, const int2_parts &parts, float unit) {
  constexpr uint32_t batch = 8, lanes = INT4_HALF_ROWS / 4;
  const int2_cut &cut = w.plan.cut;
  const int4_few_product &p = w.product;
  const uint32_t rank = blockIdx.y, rows = cut.blocks * static_cast<uint32_t>(p.m), four = threadIdx.x % lanes * 4;
  const uint32_t last = rows * (rank + 1) >> cut.split_log2, count = cut.parts << cut.split_log2;
#pragma unroll 1
  for (uint32_t i = (rows * rank >> cut.split_log2) + threadIdx.x / lanes; i < last; i += threads / lanes) {
    const uint32_t m = i * cut.blocks_inverse >> INT2_CUT_BITS, block = i - m * cut.blocks;
    const int64_t n = static_cast<int64_t>(blockIdx.x * cut.blocks + block) * INT4_HALF_ROWS + four;
    if (n >= p.n)
      continue;
    const uint32_t at = (m * pitch + four) * 4, *const list = parts + block * count;
    float sum[4] = {};
#pragma unroll 1
    for (uint32_t part = 0; part < count; part += batch) {
      int4 found[batch];
#pragma unroll
      for (uint32_t j = 0; j < batch; j++) {
        const uint32_t from = part + j < count ? list[part + j] : 0;
        found[j] = from ? ptx::load_cluster_int4(from + at) : make_int4(0, 0, 0, 0);
      }
#pragma unroll
      for (uint32_t j = 0; j < batch; j++) {
        sum[0] += __int_as_float(found[j].x), sum[1] += __int_as_float(found[j].y);
        sum[2] += __int_as_float(found[j].z), sum[3] += __int_as_float(found[j].w);
      }
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
      sum[j] = number_scaled(sum[j], unit, 1.0f, p.bias ? number_load_as(p.bias, min(n + j, p.n - 1), p.bias_type) : 0);
    uint8_t *row = static_cast<uint8_t *>(p.y) + m * p.y_stride;
    if (p.y_type == GEMM_F32)
      number_store4(reinterpret_cast<float *>(row), n, p.n, sum);
    else if (p.y_type == GEMM_F16)
      number_store4(reinterpret_cast<__half *>(row), n, p.n, sum);
    else
      number_store4(reinterpret_cast<__nv_bfloat16 *>(row), n, p.n, sum);
  }
}

// ---- the whole

// X: f16 or bf16, of which f32 x becomes two columns each; kEights: of columns.
template <typename Form, typename X, int kEights>
__global__ void __launch_bounds__(all_threads, 1) run(const __grid_constant__ work w) {
  extern __shared__ __align__(1024) uint8_t raw[];
  __shared__ int2_parts parts;
  __shared__ uint64_t x_came;
  ptx::let_next_grid_start();
  const int2_cut &cut = w.plan.cut;
  // The same for all lanes, and said to be: what follows from it is computed once a warp.
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
  const uint32_t x_at = ptx::shared_address(raw), ring_at = x_at + w.plan.x_bytes,
                 x_barrier = ptx::shared_address(&x_came);
  if (warp >= warps) {
    supply<Form>(w, ring_at, warp - warps);
    return;
  }
  if (threadIdx.x == 0)
    ptx::barrier_init(x_barrier, warps);
  if (threadIdx.x % 32 == 0)
    make_barriers<Form>(w, ring_at, warp);
  __syncwarp();
  ptx::named_barrier_arrive(ring_barrier, all_threads);
  const bool splits = w.product.x_type == GEMM_F32;
  const int lane = threadIdx.x % 32, m = w.product.m, columns = splits ? 2 * m : m;
  const int2_share mine = int2_cut_share(&cut, warps, blockIdx.y, warp);
  const uint32_t slots_at = ring_at + w.plan.ring_bytes, slot_bytes = w.plan.columns * (pitch * 4);
  // A lane's row of x and place in a pair of steps, as ldmatrix takes them. Behind the last row of less than eight it
  // is the last once more, of others what is there: it comes to columns that nobody looks at.
  const uint32_t x_pitch = mine.tiles * (GEMM_GROUP * 2) + INT4_FEW_X_PAD,
                 x_first = x_at + min(lane % 8, columns - 1) * x_pitch + lane / 8 * 16;
  ptx::named_barrier_sync(consumer_barrier, threads); // the barrier of x is there
  ptx::wait_for_previous_grid();
  if (!splits)
    copy_x(w, x_at, x_barrier, mine, warp);
  ptx::named_barrier_arrive(asked_barrier, all_threads);
  int2_list_parts<warps, threads>(cut, slots_at, slot_bytes, parts);
  if (splits)
    split_x(w, raw, mine);
  tile_ring<Form> ring(ring_at, w.plan.ring_bytes, warp);
  float sum[units][kEights][4] = {};
  tile_words<Form> now;
  ring.take(now, lane);
  if (!splits)
    ptx::barrier_wait(x_barrier, 0);
  int tile = mine.begin - mine.first_block * mine.tiles, left = mine.end - mine.begin;
  uint32_t slot = int2_cut_slot(&cut, &mine, warp, mine.first_block);
  for (; left > 0; slot++, tile = 0) {
    const int count = min(static_cast<int>(mine.tiles) - tile, left);
    uint32_t x = x_first + tile * (GEMM_GROUP * 2);
#pragma unroll 1
    for (int i = 0; i < count; i++) {
      ring.give_back();
      ring.advance();
      tile_words<Form> next;
      multiply_tile<Form, X, kEights>(sum, now, x, 8 * x_pitch, w.product.bf16_scales, [&] { ring.take(next, lane); });
      now = next;
      x += GEMM_GROUP * 2;
    }
    left -= count;
    store_sums<kEights>(sum, reinterpret_cast<float *>(raw + (slots_at - x_at + slot * slot_bytes)), m, splits, lane);
  }
  int2_await_sums<consumer_barrier, threads>(cut);
  write_y(w, parts, Form::e2m1 ? codes4::e2m1_unit<X> : 1.0f);
  int2_await_readers(cut);
}

} // namespace int4_few
