// What tile/kernel.cuh does otherwise where W is of 2-bit codes, which lie in the order of int2/layout.h or
// int2/a8_layout.h: a lane's 16 bytes of a unit of 16 rows x 128 of K are its fragments of W. Slots of shared memory
// hold units as they are, each with its scales behind it. A group's products are summed with bare codes, which are
// exact in every type, and scaled after that.
#pragma once

#if ELEMENT == 6
#include "kernels/cuda/families/sm90/int2/a8_layout.h"
#else
#include "kernels/cuda/families/sm90/int2/dense.cuh"
#include "kernels/cuda/families/sm90/int2/layout.h"
#endif

constexpr int kGroup = 128, kGroups = BLOCK_K / kGroup, kGroupBytes = kGroup * kBytes;
constexpr int kCodeUnit = 512, kUnitSlot = kCodeUnit + 32; // bytes in shared memory
constexpr int kUnitChunks = kUnitSlot / 16, kCodeChunks = BLOCK_N / 16 * kGroups * kUnitChunks;

static_assert(BLOCK_K % kGroup == 0, "a group has one scale");

// Where 16 bytes of the unit of rows 16 * unit and on, 128 of K from 128 * group on, lie; `groups`: of a row.
__device__ inline long long chunk_offset(int unit, int group, int groups, int chunk) {
#if ELEMENT == 6
  const long long part = (static_cast<long long>(unit / 4) * (groups / 2) + group / 2) * INT2A8_TILE_BYTES +
                         unit % 4 * INT2A8_QUARTER_BYTES;
  const int within = group % 2, scales = INT2A8_QUARTER_SCALES;
#else
  const long long part =
      (static_cast<long long>(unit / 4) * groups + group) * INT2_TILE_BYTES + unit % 4 / 2 * INT2_HALF_BYTES;
  const int within = unit % 2, scales = INT2_HALF_SCALES;
#endif
  return part + (chunk < 32 ? within * kCodeUnit + chunk * 16 : scales + within * 32 + (chunk - 32) * 16);
}

// One step of W. Zeros behind the last row and group: their scales are zeros, too.
__device__ inline void load_codes(const tile_params &p, int first_row, int step, u32 slot) {
  const int groups = p.row_bytes / kGroupBytes;
#pragma unroll 4
  for (int i = threadIdx.x; i < kCodeChunks; i += kThreads) {
    const int unit = i / (kGroups * kUnitChunks), within = i / kUnitChunks % kGroups, chunk = i % kUnitChunks;
    const int row = first_row + 16 * unit, group = step * kGroups + within;
    const bool there = row < p.n && group < groups;
    const char *base = static_cast<const char *>(p.w);
    copy_async_16(slot + i * 16, there ? base + chunk_offset(row / 16, group, groups, chunk) : base, there ? 16 : 0);
  }
}

// A lane's of a unit; of int2/layout.h's each two as rows of int2/dense.cuh.
__device__ inline void load_words(u32 (&out)[4], u32 address) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
#if ELEMENT != 6
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const int2_rows rows = int2_dense(out[i], out[i + 1]);
    out[i] = rows.upper, out[i + 1] = rows.lower;
  }
#endif
}

// The 32 bytes of K number `part` of a group: registers of W's rows 0..7 and then of 8..15.
__device__ inline void unpack(u32 (&out)[4], const u32 (&words)[4], int part) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
#if ELEMENT == 6
    // Bytes of code - 1, without a borrow from the next one.
    const u32 codes = words[i / 2 + i % 2 * 2] >> (2 * part) & 0x03030303u;
    out[i] = ((codes | 0x80808080u) - 0x01010101u) ^ 0x80808080u;
#else
    const u32 word = words[part / 4 * 2 + i / 2];
    const u32 codes = word >> (2 * (part % 4 * 2 + i % 2)) & 0x00030003u;
#if ELEMENT == 4
    // 1024 + code, less 1025
    asm("sub.f16x2 %0, %1, %2;" : "=r"(out[i]) : "r"(codes | 0x64006400u), "r"(0x64016401u));
#else
    // 128 + code, less 129
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out[i]) : "r"(codes | 0x43004300u), "r"(0x3f803f80u), "r"(0xc301c301u));
#endif
#endif
  }
}

// Of rows 2 q and 2 q + 1 of a unit, and of the two 8 rows further on.
__device__ inline void load_scales(float (&low)[2], float (&high)[2], u32 unit, int lane) {
  u32 first, second;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
               : "=r"(first), "=r"(second)
               : "r"(unit + kCodeUnit + lane % 4 * 8)
               : "memory");
  low[0] = from_half(static_cast<u16>(first));
  high[0] = from_half(static_cast<u16>(first >> 16));
  low[1] = from_half(static_cast<u16>(second));
  high[1] = from_half(static_cast<u16>(second >> 16));
}

__device__ inline void add_scaled(sum_t (&sum)[4], const part_t (&part)[4], const float (&scale)[2]) {
#pragma unroll
  for (int i = 0; i < 4; i++)
    sum[i] = fmaf(static_cast<float>(part[i]), scale[i % 2], sum[i]);
}

// One step. `x` is the lane's address in rows of x, `w` the warp's first unit.
__device__ inline void multiply_codes(sum_t (&sum)[kWarpM / 16][kWarpN / 8][4], u32 x, u32 w, int lane) {
#pragma unroll 1
  for (int group = 0; group < kGroups; group++)
#pragma unroll
    for (int j = 0; j < kWarpN / 16; j++) {
      const u32 unit = w + (j * kGroups + group) * kUnitSlot;
      part_t part[kWarpM / 16][2][4] = {};
      u32 words[4];
      load_words(words, unit + lane * 16);
#pragma unroll
      for (int k = 0; k < kGroupBytes; k += 32) {
        u32 b[4];
        unpack(b, words, k / 32);
#pragma unroll
        for (int i = 0; i < kWarpM / 16; i++) {
          u32 a[4];
          load_matrices(a, x + i * 16 * kPitch + group * kGroupBytes + k);
          multiply(part[i][0], a, b[0], b[1]);
          multiply(part[i][1], a, b[2], b[3]);
        }
      }
      float low[2], high[2];
      load_scales(low, high, unit, lane);
#pragma unroll
      for (int i = 0; i < kWarpM / 16; i++) {
        add_scaled(sum[i][2 * j], part[i][0], low);
        add_scaled(sum[i][2 * j + 1], part[i][1], high);
      }
    }
}
