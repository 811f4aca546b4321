// INT2 and INT2A8 weights of sm80/packed/kernel.cuh, by the type of x.
#pragma once

#include "../../../device/half2.cuh"
#include "../../sm90/int2/a8_layout.h"
#include "../../sm90/int2/codes.cuh"
#include "../../sm90/int2/layout.h"
#include "config.h"
#include "write.cuh"
#include "x.cuh"

namespace sm80_packed {

// Where codes and scales of 16 rows of W lie, a unit: bytes from those of the first of the warp's, which is a multiple
// of its units, and from one group to the next.
template <typename X> struct place {
  static __device__ int64_t unit(int unit, int groups) {
    return static_cast<int64_t>(unit / 4) * groups * INT2_TILE_BYTES + unit % 4 / 2 * INT2_HALF_BYTES +
           unit % 2 * INT2_UNIT_BYTES;
  }
  static __device__ constexpr int codes(int u) {
    return u / 2 * INT2_HALF_BYTES + u % 2 * INT2_UNIT_BYTES;
  }
  // `first` is the number of the warp's first unit.
  static __device__ int scales(int first, int u) {
    return codes(u) + INT2_HALF_SCALES - (first + u) % 2 * (INT2_UNIT_BYTES - INT2_UNIT_ROWS * 2);
  }
  static __device__ constexpr int64_t group(int group) {
    return static_cast<int64_t>(group) * INT2_TILE_BYTES;
  }
  static __device__ int scales_nearer(int) {
    return 0;
  }
};

template <> struct place<int8_t> {
  static __device__ int64_t unit(int unit, int groups) {
    return static_cast<int64_t>(unit / 4) * (groups / 2) * INT2A8_TILE_BYTES + unit % 4 * INT2A8_QUARTER_BYTES;
  }
  static __device__ constexpr int codes(int u) {
    return u * INT2A8_QUARTER_BYTES;
  }
  static __device__ int scales(int, int u) {
    return codes(u) + INT2A8_QUARTER_SCALES;
  }
  static __device__ constexpr int64_t group(int group) {
    return static_cast<int64_t>(group / 2) * INT2A8_TILE_BYTES + group % 2 * INT2A8_UNIT_BYTES;
  }
  // By how much less the scales of a group move than its codes.
  static __device__ int scales_nearer(int group) {
    return group % 2 * (INT2A8_UNIT_BYTES - INT2A8_UNIT_SCALES);
  }
};

// A lane's codes of 16 rows and a group as 16-bit numbers.
template <typename X> struct int2_numbers {
  using codes = int2_codes<X>;
  using sum = float;
  static constexpr int steps = 8;
  static constexpr sum start = 0.0f;
  typename codes::views upper[2], lower[2];

  __device__ void take(uint4 words) {
    const int2_rows first = int2_dense(words.x, words.y), second = int2_dense(words.z, words.w);
    upper[0] = codes::view(first.upper), lower[0] = codes::view(first.lower);
    upper[1] = codes::view(second.upper), lower[1] = codes::view(second.lower);
  }
  __device__ void operand(int step, uint32_t (&a)[4]) const {
    const int half = step / 4, field = step % 4 * 2;
    a[0] = codes::value(upper[half], field);
    a[1] = codes::value(lower[half], field);
    a[2] = codes::value(upper[half], field + 1);
    a[3] = codes::value(lower[half], field + 1);
  }
  static __device__ float number(sum value) {
    return value;
  }
};

// Codes less one, as bytes. Sums of a group are exact, and start from a number by which their bits are those of an f32.
template <> struct int2_numbers<int8_t> {
  using sum = int;
  static constexpr int steps = 4;
  static constexpr sum start = 0x4b400000; // 1.5 * 2^23
  uint32_t words[4];

  __device__ void take(uint4 four) {
    words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
  }
  __device__ void operand(int step, uint32_t (&a)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; i++)
      a[i] = ((words[i] >> 2 * step & 0x03030303u) + 0x7f7f7f7fu) ^ 0x80808080u;
  }
  static __device__ float number(sum value) {
    return __int_as_float(value) - 12582912.0f;
  }
};

__device__ inline void multiply(int (&d)[4], const uint32_t (&a)[4], const sm80::fragment &b, int8_t) {
  ptx::mma_s8(d, a, b.words);
}

template <typename X, int kGroups = sizeof(X) == 4 ? 1 : SM80_PACKED_GROUPS> struct weight2 {
  static constexpr int x_bytes = sizeof(X) * GEMM_GROUP, groups = kGroups, unrolled = groups;
  template <int kEights> using x = typename operand<X>::template x<kEights>;

  static __device__ constexpr int bytes(const work &, int units) {
    return units * SM80_PACKED_INT2_BYTES;
  }

  template <int kUnits> struct copies {
    const uint8_t *codes;
    int scales, scales_to; // from the lane's codes, of one of the turn's units

    // first: a multiple of a turn's groups.
    __device__ void find(const work &w, int unit, int first, int lane) {
      const int of = lane / 2 % kUnits, group = lane / 2 / kUnits % groups;
      codes = static_cast<const uint8_t *>(w.product.tiles) + place<X>::unit(unit, w.groups) + place<X>::group(first) +
              lane * 16;
      scales = static_cast<int>(place<X>::group(group)) + place<X>::scales(unit, of) - place<X>::scales_nearer(group) +
               lane % 2 * 16 - lane * 16;
      scales_to = group * kUnits * SM80_PACKED_INT2_BYTES + of * SM80_PACKED_INT2_BYTES + INT2_UNIT_BYTES +
                  lane % 2 * 16 - lane * 16;
    }
    __device__ void skip(const work &, int count) {
      codes += place<X>::group(count);
    }
    __device__ void fetch(const work &, uint32_t to, int lane, bool whole) const {
#pragma unroll
      for (int g = 0; g < groups; g++)
        if (g == 0 || whole)
#pragma unroll
          for (int u = 0; u < kUnits; u++)
            ptx::copy_async_16(to + (g * kUnits + u) * SM80_PACKED_INT2_BYTES,
                               codes + place<X>::group(g) + place<X>::codes(u), 16);
      if (lane < 2 * kUnits * (whole ? groups : 1))
        ptx::copy_async_16(to + scales_to, codes + scales, 16);
    }
    // The same of one group: a unit's codes, or the scales.
    __device__ void fetch_part(uint32_t to, int lane, int part) const {
      if (part < kUnits)
        ptx::copy_async_16(to + part * SM80_PACKED_INT2_BYTES, codes + place<X>::codes(part), 16);
      else if (part == kUnits && lane < 2 * kUnits)
        ptx::copy_async_16(to + scales_to, codes + scales, 16);
    }
  };

  template <int kEights, int kUnits>
  static __device__ void multiply(float (&sums)[kUnits][kEights][4], const work &, const x<kEights> &rows,
                                  uint32_t slot, uint32_t w_at, int lane) {
    using numbers = int2_numbers<typename operand<X>::number>;
    typename numbers::sum group[kUnits][kEights][4];
    numbers codes[kUnits];
    float2 scales[kUnits];
#pragma unroll
    for (int u = 0; u < kUnits; u++) {
      const uint32_t at = w_at + u * SM80_PACKED_INT2_BYTES;
      codes[u].take(ptx::load_shared_uint4(at + lane * 16));
      scales[u] = floats_of<__half>(ptx::load_shared(at + INT2_UNIT_BYTES + lane / 4 * 4));
#pragma unroll
      for (int i = 0; i < 4 * kEights; i++)
        group[u][i / 4][i % 4] = numbers::start;
    }
    typename x<kEights>::loaded b[2][kEights];
#pragma unroll
    for (int step = 0; step < numbers::steps; step++) {
      rows.load(slot, step, b);
#pragma unroll
      for (int u = 0; u < kUnits; u++) {
        uint32_t a[4];
        codes[u].operand(step, a);
#pragma unroll
        for (int i = 0; i < kEights; i++)
          sm80_packed::multiply(group[u][i], a, b[step % 2][i], typename operand<X>::number());
      }
    }
#pragma unroll
    for (int u = 0; u < kUnits; u++)
#pragma unroll
      for (int i = 0; i < 4 * kEights; i++)
        sums[u][i / 4][i % 4] =
            fmaf(numbers::number(group[u][i / 4][i % 4]), i % 4 < 2 ? scales[u].x : scales[u].y, sums[u][i / 4][i % 4]);
  }
};

} // namespace sm80_packed
