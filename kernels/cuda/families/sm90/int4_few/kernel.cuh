// Kernel of int4_few/launch.h.
//
// A stage of W is four tiles that follow each other along K, 64 rows by 512, in one copy: memory is fastest where what
// a block asks for lies in a row. Of these each warp takes half a tile, 32 rows by 128. Codes become exact 16-bit
// integers in registers, the left operand of a matrix instruction; x stays as it is, the right one. What a group of K
// adds up to is multiplied by its scale in f32. f32 x takes two columns, in bf16: a number and what that leaves of it.
// Behind the last stage of a block of rows two more warps add up what four warps have of each half of it.
#pragma once

#include "../../../device/half2.cuh"
#include "../../../device/number.cuh"
#include "../../../device/ptx.cuh"
#include "../../tiles.h"
#include "../int4/layout.h"
#include "../int4/nvfp4.cuh"
#include "config.h"

#include <type_traits>

namespace int4_few {

constexpr int warps = INT4_FEW_WARPS, threads = 32 * warps, together = INT4_FEW_TOGETHER;
constexpr int adders = 64, all_threads = threads + 32 + adders;
constexpr int pitch = INT4_FEW_PITCH, parts_bytes = pitch * 4; // of a column's sums of a block of rows
constexpr int sum_bytes = INT4_BLOCK_ROWS * 4;
constexpr int units = INT4_HALF_ROWS / INT4_UNIT_ROWS;
constexpr int consumer_barrier = 1;
constexpr uint32_t stage_x_bytes = together * GEMM_GROUP * 2; // of a row

struct work {
  tiles_product product;
  int4_few_plan plan;
};

// What a weight is: e2m1 codes with bytes of scales (NVFP4: of eight groups), or integers with those of 16 bits;
// int4/form.h. scaled: numbers of bf16 are multiplied by these scales, and not their sums.
template <bool e2m1_, int groups_, bool zeros_, bool scaled_ = false> struct form {
  static constexpr bool e2m1 = e2m1_, zeros = zeros_, scaled = scaled_;
  static constexpr int groups = groups_; // of K in a tile
  static constexpr bool nvfp4 = groups == INT4_GROUPS_MOST;
  static constexpr int scale_bytes = (e2m1 ? 32 : 64) * groups;
  static constexpr int half_bytes = INT4_HALF_SCALES + scale_bytes + (zeros ? 32 * groups : 0);
  static constexpr int tile_bytes = 2 * half_bytes, stage_bytes = together * tile_bytes;
};

// By what sums are to be multiplied.
template <typename Form, typename X>
constexpr float unit_of = Form::nvfp4  ? codes4::e4m3_unit<X>
                          : Form::e2m1 ? codes4::e2m1_unit<X>
                                       : 1.0f;

// What all of a block's threads know: that stages have come and been taken, that pieces of x have come, and that the
// sums of a block of rows are there for those who add them up, and have been taken.
struct barriers {
  uint64_t full[INT4_FEW_STAGES_MOST], empty[INT4_FEW_STAGES_MOST], x[INT4_FEW_X_PIECES], summed[2], added[2];
  uint64_t joined; // this rank's share of a cluster's y
};

__device__ inline void make_barriers(const barriers &b, uint32_t stages, uint32_t joined_bytes) {
  for (uint32_t i = 0; i < stages; i++) {
    ptx::barrier_init(ptx::shared_address(&b.full[i]), 1);
    ptx::barrier_init(ptx::shared_address(&b.empty[i]), threads);
  }
  for (int i = 0; i < 2; i++) {
    ptx::barrier_init(ptx::shared_address(&b.summed[i]), threads);
    ptx::barrier_init(ptx::shared_address(&b.added[i]), adders);
  }
  for (int i = 0; i < INT4_FEW_X_PIECES; i++)
    ptx::barrier_init(ptx::shared_address(&b.x[i]), 1);
  ptx::barrier_init(ptx::shared_address(&b.joined), 1);
  ptx::fence_barrier_init();
  ptx::barrier_expect(ptx::shared_address(&b.joined), joined_bytes);
}

// Tiles of a block of rows that a block multiplies.
struct piece {
  uint32_t row, begin, end;
};

// A block's part of the product. A cluster's rows may begin and end within a block of 64: the first stages of that are
// the cluster's before, which leaves their sums to whoever has the others. It has left them before it does anything
// else, and is waited for last.
struct share {
  uint32_t first_tile, tiles; // of K
  uint32_t stages;            // of a block of rows
  uint32_t first_row, rows;   // blocks of 64 rows of W whose y the cluster writes
  uint32_t taken, given;      // stages of the first of them, by the cluster before; of the next behind them, for it

  __device__ explicit share(const int4_few_plan &plan) {
    const uint32_t rank = blockIdx.y, first = plan.stages * rank >> plan.split_log2;
    stages = (plan.stages * (rank + 1) >> plan.split_log2) - first;
    first_tile = first * together, tiles = min(stages * together, plan.tiles - first_tile);
    const uint32_t begin = blockIdx.x * plan.rows, end = min(begin + plan.rows, plan.row_blocks * INT4_BLOCK_ROWS);
    first_row = begin / INT4_BLOCK_ROWS, rows = end / INT4_BLOCK_ROWS - first_row;
    taken = stages * (begin % INT4_BLOCK_ROWS) / INT4_BLOCK_ROWS;
    given = stages * (end % INT4_BLOCK_ROWS) / INT4_BLOCK_ROWS;
  }
  __device__ uint32_t gives() const {
    return given > 0 ? 1 : 0;
  }
  __device__ uint32_t pieces() const {
    return gives() + rows;
  }
  // Number i of the blocks of rows whose y the cluster writes.
  __device__ uint32_t row(uint32_t i) const {
    return first_row + (i + 1 == rows ? 0 : i + 1);
  }
  __device__ piece at(uint32_t i) const {
    if (i < gives())
      return {first_row + rows, 0, given * together};
    i -= gives();
    return {row(i), i + 1 == rows ? taken * together : 0, tiles};
  }
  // Stages until all of x that there is to wait for has been used once, and where along K the i-th of them is.
  __device__ uint32_t first_stages() const {
    return given + stages - (rows == 1 ? taken : 0);
  }
  __device__ uint32_t stage_at(uint32_t i) const {
    return i < given ? i : i - given + (rows == 1 ? taken : 0);
  }
  // Of the cluster's rows of sums, 64 in each, every so manieth is this rank's.
  __device__ uint32_t joined(const work &w) const {
    return rows * static_cast<uint32_t>(w.product.m) + (1u << w.plan.split_log2) - 1 - blockIdx.y >> w.plan.split_log2;
  }
};

// Where in the ring somebody is.
struct cursor {
  uint32_t stage = 0, parity = 0, count;

  __device__ explicit cursor(uint32_t stages) : count(stages) {}
  __device__ void advance() {
    if (++stage == count)
      stage = 0, parity ^= 1;
  }
};

// ---- tiles under way

// Stages as far ahead as there is room; announce() says of the first ones when they are there. Behind the last
// comes an empty one, so that nobody has to know which is the last.
template <typename Form>
__device__ inline void supply(const work &w, const barriers &b, uint32_t ring, uint32_t stages) {
  const share mine(w.plan);
  const uint64_t policy = ptx::policy_evict_first(), row_bytes = static_cast<uint64_t>(w.plan.tiles) * Form::tile_bytes;
  const uint8_t *const tiles =
      static_cast<const uint8_t *>(w.product.tiles) + static_cast<uint64_t>(mine.first_tile) * Form::tile_bytes;
  cursor at(stages);
  const uint32_t announced = mine.first_stages();
  uint32_t asked = 0;
  const auto ask = [&](const uint8_t *from, uint32_t left) { // of a block of rows
    const uint32_t full = ptx::shared_address(&b.full[at.stage]),
                   bytes = min(left, static_cast<uint32_t>(Form::stage_bytes));
    if (asked == stages && left > 0 && w.plan.ahead_bytes > 0)
      ptx::prefetch_bulk(from, min(left, w.plan.ahead_bytes));
    if (asked >= stages)
      ptx::barrier_wait(ptx::shared_address(&b.empty[at.stage]), at.parity ^ 1);
    if (asked++ >= announced)
      ptx::barrier_expect(full, bytes);
    if (bytes > 0)
      ptx::copy_bulk(ring + at.stage * Form::stage_bytes, from, bytes, full, policy);
    at.advance();
  };
#pragma unroll 1
  for (uint32_t i = 0; i < mine.pieces(); i++) {
    const piece p = mine.at(i);
    const uint8_t *const row = tiles + p.row * row_bytes;
#pragma unroll 1
    for (uint32_t tile = p.begin; tile < p.end; tile += together)
      ask(row + tile * Form::tile_bytes, (p.end - tile) * Form::tile_bytes);
  }
  ask(tiles, 0);
}

// The first stages, each as soon as its piece of x is there: who multiplies waits for one barrier. No copy of x is
// under way behind it.
template <typename Form> __device__ inline void announce(const work &w, const barriers &b, uint32_t stages) {
  const share mine(w.plan);
  const uint32_t x = ptx::shared_address(b.x), bytes = mine.tiles * (GEMM_GROUP * 2),
                 piece_bytes = stage_x_bytes << w.plan.piece_log2;
  const bool copied = w.product.x_type != GEMM_F32;
  cursor at(stages);
#pragma unroll 1
  for (uint32_t i = 0; copied && i * piece_bytes < bytes; i++)
    ptx::barrier_expect(x + 8 * i, min(bytes - i * piece_bytes, piece_bytes) * static_cast<uint32_t>(w.product.m));
#pragma unroll 1
  for (uint32_t i = 0; i < mine.first_stages(); i++, at.advance()) {
    const uint32_t full = ptx::shared_address(&b.full[at.stage]), stage = mine.stage_at(i);
    if (i >= stages)
      ptx::barrier_wait(full, at.parity ^ 1);
    if (copied)
      ptx::barrier_wait(x + 8 * (stage >> w.plan.piece_log2), 0);
    ptx::barrier_expect(full, min(mine.tiles - stage * together, together) * Form::tile_bytes);
  }
#pragma unroll 1
  for (uint32_t i = 0; copied && i * piece_bytes < bytes; i++)
    ptx::barrier_wait(x + 8 * i, 0);
}

// x is read by all blocks, W by one.
__device__ inline uint64_t policy_evict_last() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// Rows of x as they are, in pieces of some stages of K, each with a barrier: those of a warp by one lane, as one alone
// would take as long as the first stages. Of W all that there is room for has been asked for before.
__device__ inline void copy_x(const work &w, uint32_t x_at, uint32_t x_barriers, const share &mine, uint32_t warp) {
  const tiles_product &p = w.product;
  const uint32_t bytes = mine.tiles * (GEMM_GROUP * 2), pitch = bytes + INT4_FEW_X_PAD, m = p.m,
                 piece_bytes = stage_x_bytes << w.plan.piece_log2;
  const uint8_t *const from = static_cast<const uint8_t *>(p.x) + mine.first_tile * (GEMM_GROUP * 2);
  const uint64_t policy = policy_evict_last();
#pragma unroll 1
  for (uint32_t at = 0; at < bytes; at += piece_bytes, x_barriers += 8)
#pragma unroll 1
    for (uint32_t row = warp; row < m; row += warps)
      ptx::copy_bulk(x_at + row * pitch + at, from + row * p.x_stride + at, min(bytes - at, piece_bytes), x_barriers,
                     policy);
}

// f32 x by those who multiply: each row in two of bf16.
__device__ inline void split_x(const work &w, uint8_t *x, const share &mine) {
  const tiles_product &p = w.product;
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
  static constexpr int scale_words = Form::e2m1 ? Form::groups / 2 : Form::groups,
                       zero_words = Form::groups == 4 ? 2 : 1;
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
  // 2^126 times the scale of row g (0) or g + 8 (1) of unit u, twice.
  __device__ uint32_t scale_of(int u, int row, int group) const {
    return codes4::e2m1_scale<__nv_bfloat16>(scales[u][row], group);
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

// Halves of tiles that a warp takes, as they come.
template <typename Form> struct tile_ring {
  cursor at;
  uint32_t full, empty, mine;

  __device__ tile_ring(const barriers &b, uint32_t ring, uint32_t stages, int warp)
      : at(stages), full(ptx::shared_address(b.full)), empty(ptx::shared_address(b.empty)),
        mine(ring + warp * Form::half_bytes) {}
  __device__ void take(tile_words<Form> &out, int lane) const {
    ptx::barrier_wait(full + 8 * at.stage, at.parity);
    out.load(mine + at.stage * Form::stage_bytes, lane);
  }
  __device__ void give_back() const {
    ptx::barrier_arrive(empty + 8 * at.stage);
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
  constexpr int pairs = 4, pairs_a_group = Form::nvfp4 ? 1 : pairs / Form::groups; // of steps of 16
  constexpr int pairs_a_sum = Form::scaled ? pairs : pairs_a_group;
  constexpr int later = Form::e2m1 && !Form::scaled ? pairs - 1 : pairs / 2; // its numbers take more registers
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
    if (pair == later)
      between();
    if (pair + 1 < pairs)
      load(pair + 1);
    const auto &b = loaded[pair % 2];
    const int group = pair / pairs_a_group;
#pragma unroll
    for (int u = 0; u < units; u++) {
      if (pair % pairs_a_group == 0 && !Form::e2m1)
        less[u] = w.template offsets<X>(u, group);
      uint32_t scales[2];
      if constexpr (Form::scaled && !Form::nvfp4)
        scales[0] = w.scale_of(u, 0, group), scales[1] = w.scale_of(u, 1, group);
#pragma unroll
      for (int s = 0; s < 2; s++) {
        uint32_t a[4];
        const uint32_t word = w.codes[u][pair / 2][pair % 2 * 2 + s];
        if constexpr (Form::nvfp4)
          codes4::e4m3_scaled<X>(a, word, codes4::e4m3_scales<X>(w.scales[u][pair], s));
        else if constexpr (Form::scaled)
          codes4::e2m1_scaled<X>(a, word, scales);
        else if constexpr (Form::e2m1)
          codes4::e2m1_numbers<X>(a, word);
        else
          codes4::numbers<X>(a, word, less[u]);
#pragma unroll
        for (int e = 0; e < kEights; e++) {
          const auto &c = pair % pairs_a_sum == 0 && s == 0 ? zeros : static_cast<const float(&)[4]>(part[u][e]);
          multiply(part[u][e], a, b[e] + 2 * s, c, X());
        }
      }
      if ((pair + 1) % pairs_a_sum == 0) {
        const float2 scale = Form::scaled ? make_float2(1, 1) : w.scale(u, group, bf16_scales);
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

// A warp's of half a block of rows, and of the rows of x; splits: of which each has two columns.
template <int kEights>
__device__ inline void store_sums(float (&sum)[units][kEights][4], float *to, int rows, bool splits, int lane) {
#pragma unroll
  for (int e = 0; e < kEights; e++) {
    const int column = 8 * e + lane % 4 * 2, row = splits ? column / 2 : column;
    float *const at = to + row * pitch + lane / 4;
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

__device__ inline void add(float (&sum)[4], int4 four) {
  sum[0] += __int_as_float(four.x), sum[1] += __int_as_float(four.y);
  sum[2] += __int_as_float(four.z), sum[3] += __int_as_float(four.w);
}

// Of row m of x and rows n .. n + 3 of W. unit: by what sums are to be multiplied.
__device__ inline void write_y(const tiles_product &p, uint32_t m, int64_t n, float (&sum)[4], float unit) {
  if (n >= p.n)
    return;
#pragma unroll
  for (int j = 0; j < 4; j++)
    sum[j] = fmaf(sum[j], p.factors ? unit * p.factors[min(n + j, p.n - 1)] : unit,
                  p.bias ? number_load_as(p.bias, min(n + j, p.n - 1), p.bias_type) : 0);
  uint8_t *row = static_cast<uint8_t *>(p.y) + m * p.y_stride;
  number_store4_as(row, n, p.n, p.y_type, sum);
}

__device__ inline int4 words_of(const float (&sum)[4]) {
  return make_int4(__float_as_int(sum[0]), __float_as_int(sum[1]), __float_as_int(sum[2]), __float_as_int(sum[3]));
}

// The sums that a cluster's block leaves to the one of its rank in the next, as `adders` threads hold them. Each word
// is `nothing` but from when it has been left to when it has been seen; no sum has these bits: arithmetic makes another
// NaN.
struct left_sums {
  static constexpr int rows = INT4_FEW_COLUMNS_MOST / (adders / 16); // of x, of a thread
  uint4 found[rows];

  static __device__ uint4 *place(const work &w, uint32_t cluster, uint32_t row) {
    const uint32_t block = (cluster << w.plan.split_log2) + blockIdx.y;
    return static_cast<uint4 *>(w.product.sums) + (block * INT4_FEW_COLUMNS_MOST + row) * (INT4_BLOCK_ROWS / 4) +
           threadIdx.x % 16;
  }
  static __device__ void leave(const work &w, uint32_t row, const float (&sum)[4]) {
    const int4 four = words_of(sum);
    ptx::store_relaxed(place(w, blockIdx.x + 1, row), make_uint4(four.x, four.y, four.z, four.w));
  }
  __device__ void find(const work &w, bool wanted) {
    constexpr uint32_t nothing = INT4_FEW_NOTHING;
#pragma unroll
    for (int i = 0; i < rows; i++) {
      const uint32_t row = threadIdx.x % adders / 16 + adders / 16 * i;
      found[i] = make_uint4(0, 0, 0, 0);
      if (!wanted || row >= w.product.m)
        continue;
      uint4 *const from = place(w, blockIdx.x, row);
      do
        found[i] = ptx::load_relaxed(from);
      while (found[i].x == nothing || found[i].y == nothing || found[i].z == nothing || found[i].w == nothing);
      ptx::store_relaxed(from, make_uint4(nothing, nothing, nothing, nothing));
    }
  }
};

// The sums of warps that share rows, of each block of rows: to y, or where a cluster shares K to `sums` of the rank
// that joins them, or to the next cluster's.
__device__ inline void add_up(const work &w, const barriers &b, uint32_t parts, uint32_t sums, float unit) {
  const share mine(w.plan);
  const uint32_t thread = threadIdx.x % adders, four = thread % 16 * 4, m = w.product.m;
  const uint32_t part_bytes = w.plan.columns * parts_bytes, log2 = w.plan.split_log2, pieces = mine.pieces();
  if (log2 > 0)
    ptx::cluster_wait(); // all have made their barriers
  if (mine.taken > 0)
    ptx::wait_for_previous_grid(); // what it has left for its own blocks is not ours
#pragma unroll 1
  for (uint32_t i = 0; i < pieces; i++) {
    const uint32_t from = parts + i % 2 * (together * part_bytes), parity = i / 2 % 2, number = i - mine.gives();
    left_sums left;
    left.find(w, i + 1 == pieces && mine.taken > 0);
    ptx::barrier_wait(ptx::shared_address(&b.summed[i % 2]), parity);
#pragma unroll
    for (int j = 0; j < left_sums::rows; j++) {
      const uint32_t row = thread / 16 + adders / 16 * j;
      if (row >= m)
        break;
      float sum[4] = {};
#pragma unroll
      for (uint32_t part = 0; part < together; part++)
        add(sum, ptx::load_shared_int4(from + part * part_bytes + row * parts_bytes + four * 4));
      add(sum, make_int4(left.found[j].x, left.found[j].y, left.found[j].z, left.found[j].w));
      if (i < mine.gives()) {
        left_sums::leave(w, row, sum);
        continue;
      }
      if (log2 == 0) {
        write_y(w.product, row, static_cast<int64_t>(mine.row(number)) * INT4_BLOCK_ROWS + four, sum, unit);
        continue;
      }
      const uint32_t at = number * m + row, rank = at & (1u << log2) - 1;
      ptx::store_async(ptx::map_to_rank(sums + ((at - rank) + blockIdx.y) * sum_bytes + four * 4, rank), words_of(sum),
                       ptx::map_to_rank(ptx::shared_address(&b.joined), rank));
    }
    ptx::barrier_arrive(ptx::shared_address(&b.added[i % 2]));
  }
}

// This rank's share of the cluster's y, once it has come.
__device__ inline void join(const work &w, const barriers &b, const share &mine, uint32_t sums, float unit) {
  constexpr uint32_t lanes = INT4_BLOCK_ROWS / 4;
  const uint32_t log2 = w.plan.split_log2, m = w.product.m, four = threadIdx.x % lanes * 4;
  ptx::barrier_wait(ptx::shared_address(&b.joined), 0);
#pragma unroll 1
  for (uint32_t slot = threadIdx.x / lanes; slot < mine.joined(w); slot += threads / lanes) {
    const uint32_t i = (slot << log2) + blockIdx.y, block = i / m, row = i - block * m;
    float sum[4] = {};
#pragma unroll
    for (uint32_t rank = 0; rank < INT4_FEW_SPLIT_MOST; rank++)
      if (rank >> log2 == 0)
        add(sum, ptx::load_shared_int4(sums + ((slot << log2) + rank) * sum_bytes + four * 4));
    write_y(w.product, row, static_cast<int64_t>(mine.row(block)) * INT4_BLOCK_ROWS + four, sum, unit);
  }
}

// ---- the whole

// X: f16 or bf16, of which f32 x becomes two columns each; kEights: of columns.
template <typename Form, typename X, int kEights>
__global__ void __launch_bounds__(all_threads, 1) run(const __grid_constant__ work w) {
  extern __shared__ __align__(1024) uint8_t raw[];
  __shared__ barriers b;
  ptx::let_next_grid_start();
  // The same for all lanes, and said to be: what follows from it is computed once a warp.
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = static_cast<int>(ptx::held(threadIdx.x % 32));
  const uint32_t stages = w.plan.ring_bytes / Form::stage_bytes;
  const uint32_t x_at = ptx::shared_address(raw), ring_at = x_at + w.plan.x_bytes,
                 x_barriers = ptx::shared_address(b.x);
  const uint32_t parts = ring_at + w.plan.ring_bytes, part_bytes = w.plan.columns * parts_bytes,
                 sums = parts + 2 * together * part_bytes;
  constexpr float unit = unit_of<Form, X>;
  if (threadIdx.x == threads)
    make_barriers(b, stages, share(w.plan).joined(w) * sum_bytes << w.plan.split_log2);
  __syncthreads();
  if (w.plan.split_log2 > 0)
    ptx::cluster_arrive();
  if (warp == warps) {
    if (lane == 0)
      supply<Form>(w, b, ring_at, stages);
    return;
  }
  if (warp > warps) {
    if (threadIdx.x == threads + 32)
      announce<Form>(w, b, stages);
    __syncwarp();
    add_up(w, b, parts, sums, unit);
    return;
  }
  const bool splits = w.product.x_type == GEMM_F32;
  const int m = w.product.m, columns = splits ? 2 * m : m;
  const share mine(w.plan);
  // A lane's row of x and place in a pair of steps, as ldmatrix takes them. Behind the last row of less than eight it
  // is the last once more, of others what is there: it comes to columns that nobody looks at.
  const uint32_t x_pitch = mine.tiles * (GEMM_GROUP * 2) + INT4_FEW_X_PAD, tile = warp / 2;
  const uint32_t x_first = x_at + min(lane % 8, columns - 1) * x_pitch + lane / 8 * 16 + tile * (GEMM_GROUP * 2);
  ptx::wait_for_previous_grid();
  if (splits)
    split_x(w, raw, mine);
  else if (lane == 0)
    copy_x(w, x_at, x_barriers, mine, warp);
  __syncwarp();
  tile_ring<Form> ring(b, ring_at, stages, warp);
  float sum[units][kEights][4] = {};
  tile_words<Form> now;
  ring.take(now, lane);
#pragma unroll 1
  for (uint32_t i = 0; i < mine.pieces(); i++) {
    const piece p = mine.at(i);
    uint32_t x = x_first + p.begin * (GEMM_GROUP * 2);
#pragma unroll 1
    for (uint32_t first = p.begin; first < p.end; first += together, x += together * GEMM_GROUP * 2) {
      ring.give_back();
      ring.at.advance();
      tile_words<Form> next;
      if (first + tile < mine.tiles)
        multiply_tile<Form, X, kEights>(sum, now, x, 8 * x_pitch, w.product.bf16_scales,
                                        [&] { ring.take(next, lane); });
      else
        ring.take(next, lane);
      now = next;
    }
    if (i >= 2)
      ptx::barrier_wait(ptx::shared_address(&b.added[i % 2]), (i / 2 - 1) % 2);
    float *const to = reinterpret_cast<float *>(raw + (parts - x_at) + (i % 2 * together + tile) * part_bytes);
    store_sums<kEights>(sum, to + warp % 2 * INT4_HALF_ROWS, m, splits, lane);
    ptx::barrier_arrive(ptx::shared_address(&b.summed[i % 2]));
  }
  if (w.plan.split_log2 > 0)
    join(w, b, mine, sums, unit);
}

} // namespace int4_few
