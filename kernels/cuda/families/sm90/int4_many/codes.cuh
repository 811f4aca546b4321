// From words of int4/layout.h, and the scales and zero points beside them, to numbers of X in the order in which a
// matrix instruction takes W from registers.
#pragma once

#include "../../../device/wgmma_between.cuh"
#include "../int4/nvfp4.cuh"
#include "shape.cuh"

namespace int4_many {

template <int kCount>
__device__ inline void multiply(float (&d)[kCount], const uint32_t (&a)[4], uint64_t b, bool add, __half) {
  ptx::wgmma_f16(d, a, b, add);
}
template <int kCount>
__device__ inline void multiply(float (&d)[kCount], const uint32_t (&a)[4], uint64_t b, bool add, __nv_bfloat16) {
  ptx::wgmma_bf16(d, a, b, add);
}

// 2, 4, 8 or 16 bytes of shared memory, aligned to as many.
template <int kBytes> __device__ inline void load(uint32_t (&out)[(kBytes + 3) / 4], uint32_t address) {
  if constexpr (kBytes == 16) {
    const uint4 four = ptx::load_shared_uint4(address);
    out[0] = four.x, out[1] = four.y, out[2] = four.z, out[3] = four.w;
  } else if constexpr (kBytes == 8) {
    const uint2 two = ptx::load_shared_uint2(address);
    out[0] = two.x, out[1] = two.y;
  } else if constexpr (kBytes == 4) {
    out[0] = ptx::load_shared(address);
  } else {
    uint16_t half;
    asm volatile("ld.shared.b16 %0, [%1];" : "=h"(half) : "r"(address) : "memory");
    out[0] = half;
  }
}

// Of a lane's two rows.
__device__ inline float2 scales_of(uint32_t two, bool bf16) {
  return bf16 ? make_float2(__uint_as_float(two << 16), __uint_as_float(two & 0xffff0000))
              : __half22float2(reinterpret_cast<const __half2 &>(two));
}

// What a lane has of a tile's scales and zero points, and what follows from it for a group.
template <typename X, typename Weight> struct codes {
  static constexpr int groups = Weight::groups;
  uint32_t scales[groups];
  uint32_t zeros[(groups + 1) / 2]; // a byte for either row of a group

  __device__ codes(const place_of<Weight> &at, uint32_t more) {
    load<4 * groups>(scales, at.scales + more);
    if constexpr (Weight::zeros)
      load<2 * groups>(zeros, at.zeros + more);
  }
  __device__ uint32_t zero(int row, int group) const {
    return Weight::zeros ? zeros[group / 2] >> (16 * (group % 2) + 8 * row) & 0xff : 8;
  }
  __device__ codes4::offsets offsets(int group) const {
    return codes4::offsets_of<X>(zero(0, group) * 0x10001, zero(1, group) * 0x10001);
  }
  // INT4: c less the zero point, exact.
  __device__ void unpack(uint32_t (&out)[4], uint32_t word, int group) const {
    codes4::numbers<X>(out, word, offsets(group));
  }
  __device__ void exact(uint32_t (&out)[4], uint32_t word, int group) const {
    unpack(out, word, group);
  }
  __device__ float2 scale(int group, bool bf16) const {
    return scales_of(scales[group], bf16);
  }
  // A row's scale, twice in a word.
  __device__ uint32_t scale_of(int row, int group, bool bf16) const {
    const float2 number = scale(group, true);
    const __half2 converted = __floats2half2_rn(number.x, number.y);
    const uint32_t two = bf16 ? reinterpret_cast<const uint32_t &>(converted) : scales[group];
    return __byte_perm(two, 0, row == 0 ? 0x1010 : 0x3232);
  }
};

// ---- MXFP4

template <typename X> struct codes<X, weight_of<true, 4, false>> {
  uint32_t scales[2]; // of each row, a byte a group

  __device__ codes(const place_of<weight_of<true, 4, false>> &at, uint32_t more) {
    load<8>(scales, at.scales + more);
  }
  __device__ uint32_t byte(int row, int group) const {
    return scales[row] >> 8 * group & 0xff;
  }
  __device__ void unpack(uint32_t (&out)[4], uint32_t word, int) const {
    codes4::e2m1_fractions<X>(out, word);
  }
  __device__ uint32_t scale_of(int row, int group, bool) const {
    return codes4::e2m1_scale<X>(scales[row], group);
  }
  // The value by 2^-14 or as it is, and what makes up for that together with any scale.
  __device__ void exact(uint32_t (&out)[4], uint32_t word, int) const {
    codes4::e2m1_numbers<X>(out, word);
  }
  __device__ float2 scale(int group, bool) const {
    const auto number = [&](int row) { // 0 is 2^-127
      return __uint_as_float(max(byte(row, group) << 23, 0x00400000u)) * codes4::e2m1_unit<X>;
    };
    return make_float2(number(0), number(1));
  }
};

// ---- NVFP4: a group is a step of 16

template <typename X> struct codes<X, weight_of<true, INT4_GROUPS_MOST, false>> {
  uint32_t at, two[1]; // two: groups, of both rows

  __device__ codes(const place_of<weight_of<true, INT4_GROUPS_MOST, false>> &place, uint32_t more)
      : at(place.scales + more) {}
  // Numbers times their scales, of one step after the other: wide tiles have no registers for all scales.
  __device__ void scaled(uint32_t (&out)[4], uint32_t word, int group) {
    if (group % 2 == 0)
      load<4>(two, at + 2 * group);
    codes4::e4m3_scaled<X>(out, word, codes4::e4m3_scales<X>(two[0], group % 2));
  }
};

} // namespace int4_many
