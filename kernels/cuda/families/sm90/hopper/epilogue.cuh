// From the sums of a cluster's blocks to y: each eight columns go to the block that joins them, which adds, scales,
// biases and rounds.
#pragma once

#include "../../../device/ptx.cuh"
#include "output.cuh"
#include "work.cuh"

namespace hopper {

// Sums in shared memory: 512 bytes for a warp's 16 rows of W and eight rows of x, 16 a lane, as the instruction leaves
// them in registers.
constexpr int eight = 8, eight_bytes = 512;
// With few columns a warp writes its own 16 columns of y and waits for no other; with more a warpgroup writes 64, so
// that each row's piece is longer.
template <int kColumns> constexpr bool by_warps = kColumns <= 16;

// What a warpgroup has in shared memory behind the loop: its warps' sums, where more than two blocks share K, and rows
// of y, 64 columns each. By warps all this is a warp's rows of y.
constexpr int staging_pitch = group_rows * 4 + 16; // bytes, of 4-byte elements; the 16 keep rows in other banks
template <int kColumns> struct behind {
  static constexpr int warp_sums = kColumns / eight * eight_bytes;
  static constexpr int rows = by_warps<kColumns> ? 0 : 4 * warp_sums;
  static constexpr int bytes = by_warps<kColumns> ? kColumns * (warp_rows * 4 + 16) : rows + kColumns * staging_pitch;
};

__device__ inline int4 as_int4(const float *sum) {
  return make_int4(__float_as_int(sum[0]), __float_as_int(sum[1]), __float_as_int(sum[2]), __float_as_int(sum[3]));
}

__device__ inline int4 as_int4(const int *sum) {
  return make_int4(sum[0], sum[1], sum[2], sum[3]);
}

__device__ inline float as_sum(int bits, float) {
  return __int_as_float(bits);
}

__device__ inline int as_sum(int bits, int) {
  return bits;
}

// The `place`-th eight of rank 0 or 1 where two share them in turn: chosen in registers.
template <typename T, int kRegisters>
__device__ inline void pick(T (&to)[4], const T (&sum)[kRegisters], int place, int rank) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    to[i] = sum[8 * place + i];
    if constexpr (kRegisters > 4)
      to[i] = rank == 0 ? to[i] : sum[8 * place + 4 + i];
  }
}

// Eight columns number e are joined by rank e % ranks, as its e / ranks-th.
struct join {
  int rank, ranks;
  int eights, own;   // of the tile; of these this rank's
  int warps, places; // that have rows in any tile; eights a rank
  uint32_t sums;     // of other ranks; the barrier that counts them stands in front

  __device__ uint32_t joined() const {
    return sums - join_barrier_bytes;
  }

  // Where the sums of the `other`-th of the other ranks lie in the rank that joins them.
  __device__ uint32_t from(int other, int warp, int place) const {
    return sums + ((other * warps + warp) * places + place) * eight_bytes;
  }

  // Bytes that come to this block.
  __device__ uint32_t bytes(int rows) const {
    return own * (ranks - 1) * ((rows + warp_rows - 1) / warp_rows) * eight_bytes;
  }

  template <typename T, int kRegisters> __device__ void send(const T (&sum)[kRegisters], int warp, int lane) const {
    if (ranks == 2) {
      const uint32_t other = rank ^ 1;
      const uint32_t to = ptx::map_to_rank(from(0, warp, 0) + lane * 16, other),
                     barrier = ptx::map_to_rank(joined(), other);
#pragma unroll
      for (int place = 0; place < (kRegisters / 4 + 1) / 2; place++) {
        T some[4];
        pick(some, sum, place, other);
        if (2 * place + static_cast<int>(other) < eights)
          ptx::store_async(to + place * eight_bytes, as_int4(some), barrier);
      }
      return;
    }
    const uint32_t behind_rank = from(rank, warp, 0) + lane * 16,
                   before_rank = behind_rank - warps * places * eight_bytes;
    uint32_t in_place = 0;
    int to = 0;
#pragma unroll
    for (int e = 0; e < kRegisters / 4; e++) {
      if (e < eights && to != rank)
        ptx::store_async(ptx::map_to_rank((rank < to ? behind_rank : before_rank) + in_place, to), as_int4(&sum[4 * e]),
                         ptx::map_to_rank(joined(), to));
      if (++to == ranks) {
        to = 0;
        in_place += eight_bytes;
      }
    }
  }
};

// The eights of at most `kColumns` columns that one of several ranks joins.
template <int kColumns> constexpr int places_most = (kColumns / eight + 1) / 2;

template <int kColumns> __device__ inline int eights_of_rank(int rank, int ranks, int eights) {
  int own = rank < eights;
#pragma unroll
  for (int place = 1; place < places_most<kColumns>; place++)
    own += rank + place * ranks < eights;
  return own;
}

// What belongs to the two rows of W that a lane has sums of. Fetched while W streams: nothing may want it before the
// last products, or a warp waits for it behind W.
struct two_rows {
  float scale[2], bias[2]; // the bias as it lies in memory, until it is widened

  __device__ two_rows(const hopper_product &p, int64_t first_row, int lane, bool scaled) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int64_t n = min(first_row + lane / 4 + 8 * i, p.n - 1);
      scale[i] = scaled && p.w_scale ? p.w_scale[n] : 1.0f;
      uint32_t bits = 0;
      if (p.bias)
        bits = p.bias_type == GEMM_F32 ? static_cast<const uint32_t *>(p.bias)[n]
                                       : static_cast<const uint16_t *>(p.bias)[n];
      bias[i] = __uint_as_float(bits);
    }
  }

  __device__ void widen_bias(gemm_type type) {
    if (type != GEMM_F16 && type != GEMM_BF16)
      return;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const uint16_t bits = static_cast<uint16_t>(__float_as_uint(bias[i]));
      bias[i] = type == GEMM_F16 ? __half2float(__ushort_as_half(bits)) : __uint_as_float(uint32_t{bits} << 16);
    }
  }
};

// One element of y.
template <typename Y, typename T> __device__ inline Y finish(T sum, float w_scale, float x_scale, float bias) {
  Y out;
  if constexpr (std::is_same_v<Y, int>)
    out = static_cast<int>(sum);
  else if constexpr (std::is_same_v<Y, float> && std::is_same_v<T, int>)
    out = number_scaled_exactly(sum, w_scale, x_scale, bias);
  else
    number_store(&out, number_scaled(static_cast<float>(sum), w_scale, x_scale, bias));
  return out;
}

template <typename T> __device__ inline void copy(T *to, const T (&from)[4]) {
#pragma unroll
  for (int i = 0; i < 4; i++)
    to[i] = from[i];
}

template <typename T> __device__ inline void add(T *sum, int4 part) {
  sum[0] += as_sum(part.x, T());
  sum[1] += as_sum(part.y, T());
  sum[2] += as_sum(part.z, T());
  sum[3] += as_sum(part.w, T());
}

// Bytes from row to row of y where they are put down; the 16 keep rows in other banks.
template <int kColumns, typename Y>
constexpr int put_down_pitch = (by_warps<kColumns> ? warp_rows : group_rows) * sizeof(Y) + 16;

// A warp's 16 columns of eight rows of y, from registers to where rows are put down.
template <int kPitch, typename Y> __device__ inline void put_down(uint32_t at, const Y (&y)[4], int lane) {
  if constexpr (sizeof(Y) == 2) {
    ptx::store_matrices_transposed(at + lane % 8 * kPitch + lane / 8 % 2 * 16, reinterpret_cast<const uint32_t *>(y));
  } else {
#pragma unroll
    for (int i = 0; i < 4; i++)
      ptx::store_shared(at + (lane % 4 * 2 + i % 2) * kPitch + (lane / 4 + i / 2 * 8) * 4,
                        *reinterpret_cast<const uint32_t *>(&y[i]));
  }
}

// A warp's sums of some eights to rows of y, eight rows an eight. `x_scales`: of this lane's two columns of the first,
// `hop` to the next; only `there` are looked at. Loads stand together: each would be waited for by itself.
template <int kPitch, typename Y, int kEights, typename T>
__device__ inline void finish_eights(const T (&sum)[4 * kEights], const two_rows &rows, uint32_t x_scales, uint32_t hop,
                                     int there, uint32_t down, int lane) {
  uint2 scales[kEights];
#pragma unroll
  for (int e = 0; e < kEights; e++)
    scales[e] = ptx::load_shared_uint2(x_scales + (e < there ? e * hop : 0));
#pragma unroll
  for (int e = 0; e < kEights; e++) {
    const float x_scale[2] = {__uint_as_float(scales[e].x), __uint_as_float(scales[e].y)};
    Y y[4];
#pragma unroll
    for (int k = 0; k < 4; k++)
      y[k] = finish<Y>(sum[4 * e + k], rows.scale[k / 2], x_scale[k % 2], rows.bias[k / 2]);
    put_down<kPitch>(down + e * eight * kPitch, y, lane);
  }
}

// The rows of y that a thread writes, 16 bytes each. All that can be known while W streams is known then: what follows
// the last products is the time of one warp's instructions.
struct run_of_y {
  uint8_t *to;      // of its first row
  int64_t hop;      // to its next one
  int m, m_hop;     // of x
  int column, lane; // of the block's rows of W; among the threads of a row
  int row;          // of those put down
  bool whole;       // 16 bytes, aligned, and `to` holds

  // `threads` write `columns` columns of y: a warp its own, or a warpgroup.
  __device__ run_of_y(const hopper_product &p, const part &at, const join &j, int size, int threads, int columns) {
    // Shifts: a division by a number that is not known calls a function, before which the scales are waited for.
    const int per_lane_log2 = size == 2 ? 3 : 2, lanes_log2 = (columns == group_rows ? 6 : 4) - per_lane_log2;
    static_assert(group_rows == 1 << 6 && warp_rows == 1 << 4);
    const int thread = threadIdx.x % threads, apart = threads >> lanes_log2;
    row = thread >> lanes_log2;
    lane = thread & ((1 << lanes_log2) - 1);
    column = threadIdx.x / threads * columns + (lane << per_lane_log2);
    m = (j.rank + row / eight * j.ranks) * eight + row % eight;
    m_hop = apart * j.ranks;
    const int64_t n = at.first_row + column;
    to = static_cast<uint8_t *>(p.y) + (at.first_m + m) * p.y_stride + n * size;
    hop = m_hop * p.y_stride;
    whole = !p.y_rows && n + (1 << per_lane_log2) <= p.n && (reinterpret_cast<uintptr_t>(to) | p.y_stride) % 16 == 0;
  }
};

// Adds the sums that others have sent of one of this rank's eights, by rank.
template <typename T> __device__ inline void add_others(T (&sum)[4], const join &j, int warp, int lane, int place) {
  uint32_t from = j.from(0, warp, place) + lane * 16;
  const uint32_t hop = j.from(1, 0, 0) - j.from(0, 0, 0);
#pragma unroll 4
  for (int other = 0; other < j.ranks - 1; other++, from += hop)
    add(sum, ptx::load_shared_int4(from));
}

// Joins this rank's eights, its own sums first, and puts down its rows of y. With two ranks its own are picked from
// registers; else they go through shared memory, eight by eight: with more ranks each has few.
template <int kColumns, int kPitch, typename Y, typename T>
__device__ inline void join_eights(const T (&sum)[kColumns / 2], const two_rows &rows, const join &j, uint32_t x_scales,
                                   uint32_t own, uint32_t down, int warp, int lane) {
  constexpr int most = places_most<kColumns>;
  constexpr uint32_t scales_of_eight = eight * sizeof(float);
  x_scales += j.rank * scales_of_eight;
  if (most == 1 || j.ranks == 2) {
    T joined[4 * most];
#pragma unroll
    for (int place = 0; place < most; place++) {
      T some[4];
      pick(some, sum, place, j.rank);
      copy(&joined[4 * place], some);
    }
    ptx::barrier_wait(j.joined(), 0);
    if constexpr (most == 1) {
      add_others(joined, j, warp, lane, 0);
    } else {
      const uint32_t from = j.from(0, warp, 0) + lane * 16;
#pragma unroll
      for (int place = 0; place < most; place++)
        add(&joined[4 * place], ptx::load_shared_int4(from + (place < j.own ? place : 0) * eight_bytes));
    }
    finish_eights<kPitch, Y, most>(joined, rows, x_scales, j.ranks * scales_of_eight, j.own, down, lane);
    return;
  }
  own += lane * 16;
#pragma unroll
  for (int e = 0; e < kColumns / eight; e++)
    ptx::store_shared_int4(own + e * eight_bytes, as_int4(&sum[4 * e]));
  __syncwarp();
  ptx::barrier_wait(j.joined(), 0);
#pragma unroll 1
  for (int place = 0, e = j.rank; place < j.own; place++, e += j.ranks) {
    const int4 mine = ptx::load_shared_int4(own + e * eight_bytes);
    T joined[4] = {as_sum(mine.x, T()), as_sum(mine.y, T()), as_sum(mine.z, T()), as_sum(mine.w, T())};
    add_others(joined, j, warp, lane, place);
    finish_eights<kPitch, Y, 1>(joined, rows, x_scales, 0, 1, down, lane);
    x_scales += j.ranks * scales_of_eight;
    down += eight * kPitch;
  }
}

// Eight elements of 16 bits to where they are aligned to no more than one: by words of 4 bytes.
__device__ inline void store_unaligned(void *to, const int4 &vector) {
  const uint32_t words[4] = {static_cast<uint32_t>(vector.x), static_cast<uint32_t>(vector.y),
                             static_cast<uint32_t>(vector.z), static_cast<uint32_t>(vector.w)};
  if (reinterpret_cast<uintptr_t>(to) % 4 == 0) {
#pragma unroll
    for (int i = 0; i < 4; i++)
      static_cast<uint32_t *>(to)[i] = words[i];
    return;
  }
  uint16_t *const elements = static_cast<uint16_t *>(to);
  elements[0] = static_cast<uint16_t>(words[0]);
#pragma unroll
  for (int i = 0; i < 3; i++)
    *reinterpret_cast<uint32_t *>(elements + 1 + 2 * i) = __byte_perm(words[i], words[i + 1], 0x5432);
  elements[7] = static_cast<uint16_t>(words[3] >> 16);
}

// This rank's share of y, as Y: every warp finishes what it has sums of, then it or its warpgroup writes whole runs.
template <int kColumns, typename Y, typename T>
__device__ inline void write_eights(const hopper_product &p, const two_rows &rows, const part &at, const join &j,
                                    const T (&sum)[kColumns / 2], const run_of_y &run, uint32_t x_scales, uint32_t here,
                                    int warp, int lane) {
  using place_of = behind<kColumns>;
  constexpr int pitch = put_down_pitch<kColumns, Y>;
  constexpr int per_lane = 16 / sizeof(Y), lanes = (by_warps<kColumns> ? warp_rows : group_rows) / per_lane;
  constexpr uint32_t scales_of_eight = eight * sizeof(float);
  const uint32_t put = here + place_of::rows, down = by_warps<kColumns> ? put : put + warp % 4 * warp_rows * sizeof(Y);
  x_scales += lane % 4 * 2 * sizeof(float);
  if (warp * warp_rows < at.rows) {
    if (j.ranks == 1)
      finish_eights<pitch, Y, kColumns / eight>(sum, rows, x_scales, scales_of_eight, kColumns / eight, down, lane);
    else
      join_eights<kColumns, pitch, Y>(sum, rows, j, x_scales, here + warp % 4 * place_of::warp_sums, down, warp, lane);
  }
  if constexpr (by_warps<kColumns>)
    __syncwarp();
  else
    ptx::named_barrier_sync(1 + warp / 4, 128);
  if (run.column >= at.rows)
    return;
  uint32_t from = put + run.row * pitch + run.lane * 16;
  constexpr int from_hop = (by_warps<kColumns> ? 32 : 128) / lanes * pitch;
  if (run.whole) {
    uint8_t *to = run.to;
#pragma unroll 2
    for (int m = run.m; m < at.m; m += run.m_hop, to += run.hop, from += from_hop)
      *reinterpret_cast<int4 *>(to) = ptx::load_shared_int4(from);
    return;
  }
  const int64_t n = at.first_row + run.column;
#pragma unroll 1
  for (int m = run.m; m < at.m; m += run.m_hop, from += from_hop) {
    const int4 vector = ptx::load_shared_int4(from);
    Y *const to = reinterpret_cast<Y *>(row_of_y(p, at.first_m + m)) + n;
    if (n + per_lane <= p.n && reinterpret_cast<uintptr_t>(to) % 16 == 0) {
      *reinterpret_cast<int4 *>(to) = vector;
      continue;
    }
    if (sizeof(Y) == 2 && n + per_lane <= p.n) {
      store_unaligned(to, vector);
      continue;
    }
    const Y *const elements = reinterpret_cast<const Y *>(&vector);
#pragma unroll
    for (int i = 0; i < per_lane; i++) {
      if (n + i < p.n)
        to[i] = elements[i];
    }
  }
}

} // namespace hopper
