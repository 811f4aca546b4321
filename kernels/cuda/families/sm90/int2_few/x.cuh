// x of int2_few/kernel.cuh: from rows of any type to the right operands of its matrix instruction.
#pragma once

#include "../../../device/half2.cuh"
#include "../../../device/ptx.cuh"
#include "../../tiles.h"
#include "config.h"

namespace int2_few {

// In shared memory, of each group and column INT2_FEW_X_BYTES: 16 bytes, the four registers of the right operand, for
// each of the instruction's eight steps (i, h), word i of the lane's and selector h, and each q = lane % 4. They lie at
// i * 128 + (h ^ i / 2 ^ column) % 2 * 64 + (q ^ i % 2) * 16, so that neither lanes that load them nor those that store
// them meet in a bank. Step (i, h) is of k1 = 16 (2 i + r) + 4 h + j and k2 = k1 + 8, j = 0..3, r = 0, 1: register j of
// q = 2 r is (0, x1), of q = 2 r + 1 (x2, x1 + x2).

// The same for all eight lanes that have a group's numbers.
__device__ inline uint32_t most_of_group(uint32_t value) {
#pragma unroll
  for (int lanes = 1; lanes < 8; lanes *= 2)
    value = max(value, __shfl_xor_sync(0xffffffff, value, lanes));
  return value;
}

// A power of two, and its inverse. Numbers of which this is the largest magnitude's bits are below 2^14 when scaled,
// and not below 2^13 as far as both exponents go. NaN makes sums of what is not finite what they are by 0 * inf.
struct x_scale {
  float scale, inverse;
  __device__ explicit x_scale(uint32_t largest) {
    const uint32_t exponent = min(127 + 127 + 13 - (largest >> 23), 253u);
    scale = __uint_as_float(exponent << 23);
    inverse = __uint_as_float(largest < 0x7f800000 ? 254 - exponent << 23 : 0x7fffffff);
  }
};

// What is seen of numbers that are stored as they are.
struct x_doubts {
  __half2 largest_sum = {}; // of magnitudes
  bool small = false;

  __device__ void add_sum(uint32_t pair) {
    largest_sum = __hmax2_nan(largest_sum, __habs2(half2_of(pair)));
  }
  // Whether there is a sum that f16 does not hold, as those of what is not finite.
  __device__ bool over() const {
    return (half2_bits(largest_sum) + 0x04000400 & 0x80008000) != 0;
  }
};

// 16 numbers of a row by a lane, k1 = 16 s + 0..7 and k2 = k1 + 8 of a group, s = lane % 8, from memory to a block's
// shared memory: four groups of a row by a warp.
// kSplits: in two columns.
template <typename X, bool kSplits> struct x_part {
  static_assert(kSplits || sizeof(X) == 2);
  static constexpr int quads = sizeof(X);
  int4 held[quads];

  __device__ void load(const uint8_t *from) {
    const int4 *const quad = reinterpret_cast<const int4 *>(from);
#pragma unroll
    for (int i = 0; i < quads; i++)
      held[i] = quad[i];
  }
  // Where in a column a lane's lie.
  static __device__ uint32_t place(int lane, int column) {
    const int i = lane % 8 / 2, r = lane % 2;
    return i * 128 + (i / 2 ^ column) % 2 * 64 + r * 32 + i % 2 * 16;
  }
  // Pairs of k1 and of k2, as they follow each other; the sums of both are in `both`.
  static __device__ void store_pairs(uint32_t to, const uint32_t (&words)[8], const uint32_t (&both)[4]) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const uint32_t *const first = words + 2 * h, *const second = first + 4, *const sums = both + 2 * h;
      const uint32_t even[4] = {first[0] << 16, first[0] & 0xffff0000, first[1] << 16, first[1] & 0xffff0000};
      const uint32_t odd[4] = {__byte_perm(second[0], sums[0], 0x5410), __byte_perm(second[0], sums[0], 0x7632),
                               __byte_perm(second[1], sums[1], 0x5410), __byte_perm(second[1], sums[1], 0x7632)};
      ptx::store_shared_int4(to ^ h * 64, even);
      ptx::store_shared_int4(to ^ (h * 64 + 16), odd);
    }
  }
  // As they are, in f16.
  __device__ void store(uint32_t to, x_doubts &doubts) const {
    static_assert(!kSplits);
    uint32_t words[8], both[4];
    if constexpr (std::is_same_v<X, __half>) {
      words_of(words);
    } else {
      doubts.small |= is_small();
      float numbers[16];
      numbers_of(numbers);
      pack_all(words, numbers);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      both[i] = half2_add(words[i], words[i + 4]);
      doubts.add_sum(both[i]);
    }
    store_pairs(to, words, both);
  }
  // What has to be scaled is, and all in two columns; returns by what sums are to be multiplied. By all lanes of a
  // group.
  __device__ float store_scaled(uint32_t to, uint32_t to_rest) const {
    uint32_t words[8], both[4];
    float numbers[16], largest = 0.0f;
    numbers_of(numbers);
#pragma unroll
    for (int i = 0; i < 16; i++)
      largest = ptx::max_nan(largest, fabsf(numbers[i]));
    const uint32_t largest_bits = most_of_group(__float_as_uint(largest));
    x_scale by(largest_bits);
    if constexpr (!kSplits) {
      x_doubts doubts;
      pack_all(words, numbers);
#pragma unroll
      for (int i = 0; i < 4; i++)
        doubts.add_sum(half2_add(words[i], words[i + 4]));
      const bool small = std::is_same_v<X, __nv_bfloat16> && is_small();
      if (most_of_group(doubts.over() || small) == 0)
        by.scale = by.inverse = 1.0f;
    }
#pragma unroll
    for (int i = 0; i < 16; i++)
      numbers[i] *= by.scale;
    if constexpr (kSplits) {
      // To a multiple of 2^4, of which f16 holds 2^15 and all below.
      constexpr float high = 1.5f * (1 << 27);
      float rest[16];
#pragma unroll
      for (int i = 0; i < 16; i++) {
        const float rounded = __fsub_rn(__fadd_rn(numbers[i], high), high);
        rest[i] = numbers[i] - rounded;
        numbers[i] = rounded;
      }
      pack_all(words, rest);
#pragma unroll
      for (int i = 0; i < 4; i++)
        both[i] = half2_add(words[i], words[i + 4]);
      store_pairs(to_rest, words, both);
    }
    pack_all(words, numbers);
#pragma unroll
    for (int i = 0; i < 4; i++)
      both[i] = half2_add(words[i], words[i + 4]);
    store_pairs(to, words, both);
    return by.inverse;
  }

private:
  __device__ void words_of(uint32_t (&words)[4 * quads]) const {
#pragma unroll
    for (int i = 0; i < quads; i++) {
      words[4 * i] = held[i].x, words[4 * i + 1] = held[i].y;
      words[4 * i + 2] = held[i].z, words[4 * i + 3] = held[i].w;
    }
  }
  __device__ void numbers_of(float (&numbers)[16]) const {
    uint32_t words[4 * quads];
    words_of(words);
#pragma unroll
    for (int i = 0; i < 16; i++) {
      if constexpr (sizeof(X) == 4)
        numbers[i] = __uint_as_float(words[i]);
      else
        numbers[i] = i % 2 ? floats_of<X>(words[i / 2]).y : floats_of<X>(words[i / 2]).x;
    }
  }
  static __device__ void pack_all(uint32_t (&words)[8], const float (&numbers)[16]) {
#pragma unroll
    for (int i = 0; i < 8; i++)
      words[i] = half2_pack(numbers[2 * i], numbers[2 * i + 1]);
  }
  // Whether a group, of bf16, is too small for f16 to be exact enough, but not zero: said by lanes with numbers.
  __device__ bool is_small() const {
    constexpr uint32_t enough = (127 + half_least_exponent) << 7;
    uint32_t words[4 * quads];
    words_of(words);
    __nv_bfloat162 pair = {};
#pragma unroll
    for (int i = 0; i < 8; i++)
      pair = __hmax2(pair, __habs2(reinterpret_cast<const __nv_bfloat162 &>(words[i])));
    const uint32_t bits = reinterpret_cast<const uint32_t &>(pair), largest = max(bits & 0xffff, bits >> 16);
    const uint32_t all = __ballot_sync(0xffffffff, largest >= enough);
    return largest != 0 && (all >> (threadIdx.x & 24) & 0xff) == 0;
  }
};

} // namespace int2_few
