// INT4, MXFP4 and NVFP4 weights of sm80/packed/kernel.cuh, by the type of x; what codes become is sm90/int4/codes.cuh's
// and nvfp4.cuh's.
#pragma once

#include "../../../device/half2.cuh"
#include "../../sm90/int4/nvfp4.cuh"
#include "config.h"
#include "write.cuh"
#include "x.cuh"

namespace sm80_packed {

enum class kind4 { integers, mxfp4, nvfp4 };

// What codes of a lane's rows g and g + 8 of a unit become by, in a quarter of a tile's K.
template <typename Number> struct group4 {
  codes4::offsets less; // INT4
  float2 scale;         // not NVFP4
  uint32_t pairs;       // NVFP4

  // at: of the half tile; row: g, or g + 8 in its second unit.
  template <kind4 kKind> __device__ void take(const work &w, uint32_t at, int row, int quarter) {
    if constexpr (kKind == kind4::integers) {
      const int groups = w.plan.form.groups, entry = row * groups + quarter * groups / 4;
      const uint32_t scales = ptx::load_shared(at + INT4_HALF_SCALES + 4 * entry);
      uint32_t even = 8, odd = 8;
      if (w.plan.form.zeros) {
        const uint32_t word = ptx::load_shared(at + w.plan.form.zeros_at + entry / 2 * 4) >> 16 * (entry % 2);
        even = word & 0xff, odd = word >> 8 & 0xff;
      }
      less = codes4::offsets_of<Number>(even * 0x10001, odd * 0x10001);
      scale = w.product.bf16_scales ? floats_of<__nv_bfloat16>(scales) : floats_of<__half>(scales);
    } else if constexpr (kKind == kind4::mxfp4) {
      const uint2 both = ptx::load_shared_uint2(at + INT4_HALF_SCALES + 8 * row);
      const auto power = [&](uint32_t bytes) { // 0 is 2^-127
        return __uint_as_float(max((bytes >> 8 * quarter & 0xff) << 23, 0x00400000u));
      };
      scale = {power(both.x), power(both.y)};
    } else
      pairs = ptx::load_shared(at + INT4_HALF_SCALES + 16 * row + 4 * quarter);
  }

  // Of a word; of the quarter's two the first or the second.
  template <kind4 kKind> __device__ void numbers(uint32_t (&a)[4], uint32_t word, int which) const {
    if constexpr (kKind == kind4::integers)
      codes4::numbers<Number>(a, word, less);
    else if constexpr (kKind == kind4::mxfp4)
      codes4::e2m1_numbers<Number>(a, word);
    else
      codes4::e4m3_scaled<Number>(a, word, codes4::e4m3_scales<Number>(pairs, which));
  }
};

template <kind4 kKind, typename X> struct weight4 {
  using number = typename operand<X>::number;
  static constexpr int x_bytes = sizeof(X) * GEMM_GROUP, groups = sizeof(X) == 4 ? 1 : SM80_PACKED_GROUPS, unrolled = 1;
  template <int kEights> using x = typename operand<X>::template x<kEights>;

  static __device__ int bytes(const work &w, int units) {
    return units / 2 * w.plan.form.half_bytes;
  }

  // Halves of a tile, each contiguous, one after another.
  template <int kUnits> struct copies {
    static_assert(kUnits % 2 == 0, "a warp has whole halves");
    const uint8_t *codes;

    __device__ void find(const work &w, int unit, int group, int lane) {
      codes = static_cast<const uint8_t *>(w.product.tiles) +
              ((static_cast<int64_t>(unit / 4) * w.groups + group) * 2 + unit % 4 / 2) * w.plan.form.half_bytes +
              lane * 16;
    }
    __device__ void skip(const work &w, int count) {
      codes += count * 2 * w.plan.form.half_bytes;
    }
    __device__ void fetch(const work &w, uint32_t to, int lane, bool whole) const {
      const int half = w.plan.form.half_bytes, tail = half - INT4_HALF_SCALES;
      const uint8_t *from = codes;
#pragma unroll
      for (int g = 0; g < groups; g++) {
        if (g > 0 && !whole)
          return;
#pragma unroll
        for (int h = 0; h < kUnits / 2; h++) {
#pragma unroll
          for (int i = 0; i < 4; i++)
            ptx::copy_async_16(to + i * INT4_UNIT_BYTES, from + i * INT4_UNIT_BYTES, 16);
          if (lane * 16 < tail)
            ptx::copy_async_16(to + INT4_HALF_SCALES, from + INT4_HALF_SCALES, 16);
          to += half, from += half;
        }
        from += (2 - kUnits / 2) * half;
      }
    }
  };

  // By the scales of the part of K that they are of; the next one's begin with 0.
  template <int kEights, int kUnits>
  static __device__ void add(float (&sums)[kUnits][kEights][4], float (&group)[kUnits][kEights][4],
                             const group4<number> (&of)[kUnits]) {
#pragma unroll
    for (int u = 0; u < kUnits; u++)
#pragma unroll
      for (int i = 0; i < 4 * kEights; i++) {
        float &part = group[u][i / 4][i % 4];
        sums[u][i / 4][i % 4] = fmaf(part, i % 4 < 2 ? of[u].scale.x : of[u].scale.y, sums[u][i / 4][i % 4]);
        part = 0.0f;
      }
  }

  // What a lane multiplies a group of scales by, and where it lies: of a quarter of a tile's K.
  template <int kUnits>
  static __device__ void take(group4<number> (&of)[kUnits], const work &w, uint32_t at, int quarter, int lane) {
#pragma unroll
    for (int u = 0; u < kUnits; u++)
      of[u].template take<kKind>(w, at + u / 2 * w.plan.form.half_bytes, u % 2 * 8 + lane / 4, quarter);
  }

  template <int kUnits>
  static __device__ void load_words(uint4 (&words)[kUnits], const work &w, uint32_t at, int half, int lane) {
#pragma unroll
    for (int u = 0; u < kUnits; u++)
      words[u] = ptx::load_shared_uint4(at + u / 2 * w.plan.form.half_bytes + (u % 2 * 2 + half) * INT4_UNIT_BYTES +
                                        lane * 16);
  }
  static __device__ uint32_t word(const uint4 &words, int step) {
    return step == 0 ? words.x : step == 1 ? words.y : step == 2 ? words.z : words.w;
  }

  template <int kEights, int kUnits>
  static __device__ void multiply(float (&sums)[kUnits][kEights][4], const work &w, const x<kEights> &rows,
                                  uint32_t slot, uint32_t w_at, int lane) {
    if constexpr (kKind == kind4::mxfp4)
      return multiply_quarters<kEights, kUnits>(sums, w, rows, slot, w_at, lane);
    const int scaled = w.plan.form.groups; // parts of a tile's K that have scales
    float group[kUnits][kEights][4] = {};
    group4<number> of[kUnits];
    take<kUnits>(of, w, w_at, 0, lane);
#pragma unroll 1
    for (int half = 0; half < 2; half++) {
      uint4 words[kUnits];
      typename x<kEights>::loaded b[2][kEights];
      load_words<kUnits>(words, w, w_at, half, lane);
#pragma unroll
      for (int step = 0; step < 4; step++) {
        if (step % 2 == 0 && (step > 0 || half > 0) && scaled > (step > 0 ? 2 : 1)) {
          if constexpr (kKind != kind4::nvfp4)
            add<kEights, kUnits>(sums, group, of);
          take<kUnits>(of, w, w_at, 2 * half + step / 2, lane);
        }
        rows.load(slot + half * (x_bytes / 2), step, b);
#pragma unroll
        for (int u = 0; u < kUnits; u++) {
          uint32_t a[4];
          of[u].template numbers<kKind>(a, word(words[u], step), step % 2);
#pragma unroll
          for (int i = 0; i < kEights; i++)
            sm80_packed::multiply(kKind == kind4::nvfp4 ? sums[u][i] : group[u][i], a, b[step % 2][i], number());
        }
      }
    }
    if constexpr (kKind != kind4::nvfp4)
      add<kEights, kUnits>(sums, group, of);
  }

private:
  // Where each quarter has scales of its own: by half of many rows of x at a time, whose sums take half of the
  // registers.
  template <int kEights, int kUnits>
  static __device__ void multiply_quarters(float (&sums)[kUnits][kEights][4], const work &w, const x<kEights> &rows,
                                           uint32_t slot, uint32_t w_at, int lane) {
#pragma unroll 1
    for (int quarter = 0; quarter < 4; quarter++) {
      group4<number> of[kUnits];
      uint32_t a[2][kUnits][4];
      take<kUnits>(of, w, w_at, quarter, lane);
#pragma unroll
      for (int u = 0; u < kUnits; u++) {
        const uint2 words =
            ptx::load_shared_uint2(w_at + u / 2 * w.plan.form.half_bytes + (u % 2 * 2 + quarter / 2) * INT4_UNIT_BYTES +
                                   lane * 16 + quarter % 2 * 8);
        of[u].template numbers<kKind>(a[0][u], words.x, 0);
        of[u].template numbers<kKind>(a[1][u], words.y, 1);
      }
      const uint32_t x_at = slot + quarter * (x_bytes / 4);
      if constexpr (kEights > 2) {
        multiply_part<0, 2, kEights, kUnits>(sums, of, a, rows, x_at);
        multiply_part<1, 2, kEights, kUnits>(sums, of, a, rows, x_at);
      } else
        multiply_part<0, 1, kEights, kUnits>(sums, of, a, rows, x_at);
    }
  }

  template <int kPart, int kParts, int kEights, int kUnits>
  static __device__ void multiply_part(float (&sums)[kUnits][kEights][4], const group4<number> (&of)[kUnits],
                                       const uint32_t (&a)[2][kUnits][4], const x<kEights> &rows, uint32_t x_at) {
    constexpr int count = kEights / kParts;
    float group[kUnits][count][4] = {};
    typename x<kEights>::loaded b[2][count];
#pragma unroll
    for (int s = 0; s < 2; s++) {
      rows.template load<kPart, kParts>(x_at, s, b);
#pragma unroll
      for (int i = 0; i < kUnits * count; i++)
        sm80_packed::multiply(group[i / count][i % count], a[s][i / count], b[s][i % count], number());
    }
#pragma unroll
    for (int i = 0; i < kUnits * count * 4; i++) {
      const int u = i / 4 / count;
      float &sum = sums[u][kPart * count + i / 4 % count][i % 4];
      sum = fmaf(group[u][i / 4 % count][i % 4], i % 4 < 2 ? of[u].scale.x : of[u].scale.y, sum);
    }
  }
};

} // namespace sm80_packed
