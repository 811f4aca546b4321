// Products of int4_many/kernel.cuh: a warpgroup makes numbers of its codes, in the order in which the matrix
// instruction takes W from registers.
#pragma once

#include "codes.cuh"

namespace int4_many {

// Steps of 16 of K whose numbers are made together: beside few columns products are short, and many have no registers.
template <typename Shape> constexpr int batch_of = Shape::eights > 8 ? 1 : 2;

template <typename Shape> __device__ inline uint32_t first_tile(const shared<Shape> &s, int group) {
  return ptx::shared_address(s.w[0]) + group * s.tile_bytes;
}

template <int kCount> __device__ inline void clear(float (&sum)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i++)
    sum[i] = 0.0f;
}

// Begins the products of `a` by steps `first` and on of x, of which this is the descriptor.
template <typename Shape, int kBatch>
__device__ inline void begin(float (&sum)[4 * Shape::eights], uint32_t (&a)[kBatch][4], uint64_t x, int first,
                             bool add) {
#pragma unroll
  for (int i = 0; i < kBatch; i++)
    keep(a[i]);
  keep(sum);
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < kBatch; i++) {
    const int step = first + i;
    multiply(sum, a[i], x + step / 4 * (Shape::half_bytes / 16) + 2 * (step % 4), add || i > 0,
             typename Shape::number());
  }
  ptx::wgmma_commit();
}

// The sums of a segment: scales go to the numbers before the products, so that sums stay where the matrix instruction
// adds to them.
template <typename Shape>
__device__ inline void multiply_scaled(const work &w, shared<Shape> &s, uint32_t &done, uint32_t end, int group,
                                       float (&sum)[4 * Shape::eights]) {
  using X = typename Shape::number;
  using Weight = typename Shape::weight;
  constexpr int batch = batch_of<Shape>, batches = 8 / batch;
  const place_of<Weight> place(first_tile(s, group), threadIdx.x % 128);
  const bool bf16 = w.product.bf16_scales;
  clear(sum);
  uint32_t a[2][batch][4];
  cursor<Shape::stages> at(done);
  int before = -1; // the stage whose last products may still be under way
#pragma unroll 1
  for (; done < end; done++, at.advance()) {
    const uint32_t more = at.stage * s.w_bytes;
    ptx::barrier_wait(ptx::shared_address(&s.full[at.stage]), at.phase);
    uint32_t words[2][4];
    load<16>(words[0], place.codes + more);
    load<16>(words[1], place.codes + INT4_UNIT_BYTES + more);
    codes<X, Weight> tile(place, more);
    const uint64_t x = ptx::swizzled_descriptor(ptx::shared_address(s.x[at.stage]));
    uint32_t scale[2];
#pragma unroll
    for (int b = 0; b < batches; b++) {
      ptx::wgmma_wait<1>();
#pragma unroll
      for (int i = 0; i < batch; i++) {
        const int step = b * batch + i, of = step * Weight::groups / 8;
        uint32_t(&out)[4] = a[b % 2][i];
        if constexpr (Weight::factors) {
          keep(out);
          tile.scaled(out, words[step / 4][step % 4], of);
        } else {
          if (step % (8 / Weight::groups) == 0)
            scale[0] = tile.scale_of(0, of, bf16), scale[1] = tile.scale_of(1, of, bf16);
          keep(out);
          tile.unpack(out, words[step / 4][step % 4], of);
#pragma unroll
          for (int r = 0; r < 4; r++)
            out[r] = codes4::times(out[r], scale[r % 2], X());
        }
      }
      begin<Shape>(sum, a[b % 2], x, b * batch, true);
      if (b == 1 && before >= 0)
        ptx::barrier_arrive(ptx::shared_address(&s.empty[before]));
    }
    before = at.stage;
  }
  ptx::wgmma_wait<0>();
  keep(sum);
  ptx::barrier_arrive(ptx::shared_address(&s.empty[before]));
}

// The same where X has no bits for scaled numbers: the products of each scale's group leave the matrix instruction and
// are scaled then. Wide tiles have one step's numbers made while the one before is multiplied.
template <typename Shape>
__device__ inline void multiply_exact(const work &w, shared<Shape> &s, uint32_t &done, uint32_t end, int group,
                                      float (&sum)[4 * Shape::eights]) {
  using X = typename Shape::number;
  using Weight = typename Shape::weight;
  constexpr int steps = 8 / Weight::groups;
  constexpr int batch = Shape::eights > 8 ? 1 : steps < 4 ? steps : 4, batches = steps / batch;
  const place_of<Weight> place(first_tile(s, group), threadIdx.x % 128);
  const bool bf16 = w.product.bf16_scales;
  clear(sum);
  cursor<Shape::stages> at(done);
#pragma unroll 1
  for (; done < end; done++, at.advance()) {
    const uint32_t more = at.stage * s.w_bytes;
    ptx::barrier_wait(ptx::shared_address(&s.full[at.stage]), at.phase);
    const uint64_t x = ptx::swizzled_descriptor(ptx::shared_address(s.x[at.stage]));
    const codes<X, Weight> tile(place, more);
    uint32_t words[4], a[2][batch][4];
#pragma unroll
    for (int g = 0; g < Weight::groups; g++) {
      float part[4 * Shape::eights];
#pragma unroll
      for (int b = 0; b < batches; b++) {
        const int first = g * steps + b * batch;
        if (first % 4 == 0)
          load<16>(words, place.codes + first / 4 * INT4_UNIT_BYTES + more);
        if (b > 1)
          ptx::wgmma_wait<1>();
#pragma unroll
        for (int i = 0; i < batch; i++) {
          keep(a[b % 2][i]);
          tile.exact(a[b % 2][i], words[(first + i) % 4], g);
        }
        begin<Shape>(part, a[b % 2], x, first, b > 0);
      }
      const float2 scale = tile.scale(g, bf16);
      ptx::wgmma_wait<0>();
#pragma unroll
      for (int i = 0; i < 4 * Shape::eights; i++) {
        ptx::keep(part[i]);
        sum[i] = fmaf(part[i], i % 4 < 2 ? scale.x : scale.y, sum[i]);
      }
    }
    ptx::barrier_arrive(ptx::shared_address(&s.empty[at.stage]));
  }
}

// What a group's scales are as powers of two, which bf16 numbers are multiplied by and stay exact, and a rest of [1,
// 2), in which sums are: from group to group they are multiplied by a rest over the next. The numbers of a scale that
// is 0 are.
struct rescaling {
  static constexpr int raised = 8; // numbers are times 2^8, as scales are small

  uint32_t by[2] = {};
  float rest[2] = {1, 1}, change[2];

  __device__ void next(float2 scales) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const float scale = r == 0 ? scales.x : scales.y;
      const uint32_t bits = __float_as_uint(scale);
      const float own = scale == 0.0f ? rest[r] : __uint_as_float((bits & 0x007fffff) | 0x3f800000);
      by[r] = scale == 0.0f ? 0 : __byte_perm((bits & 0xff800000) + (raised << 23), 0, 0x3232);
      change[r] = __fdividef(rest[r], own);
      rest[r] = own;
    }
  }
  __device__ void last() {
#pragma unroll
    for (int r = 0; r < 2; r++)
      change[r] = rest[r] / (1 << raised);
  }
  template <int kCount> __device__ static void multiply(float (&sum)[kCount], const float (&by)[2]) {
#pragma unroll
    for (int i = 0; i < kCount; i++) {
      ptx::keep(sum[i]);
      sum[i] *= by[i % 4 / 2];
      ptx::keep(sum[i]);
    }
  }
};

// The same for wide tiles of bf16: sums stay where the matrix instruction adds to them.
template <typename Shape>
__device__ inline void multiply_rescaled(const work &w, shared<Shape> &s, uint32_t &done, uint32_t end, int group,
                                         float (&sum)[4 * Shape::eights]) {
  using X = typename Shape::number;
  using Weight = typename Shape::weight;
  constexpr int steps = 8 / Weight::groups;
  const place_of<Weight> place(first_tile(s, group), threadIdx.x % 128);
  const bool bf16 = w.product.bf16_scales;
  clear(sum);
  rescaling scales;
  codes4::offsets less;
  uint32_t words[4], a[2][1][4];
  cursor<Shape::stages> at(done);
  // What products of step `step` begin with, before those ahead have ended.
  const auto prepare = [&](int step) {
    const uint32_t more = at.stage * s.w_bytes;
    if (step % steps == 0) {
      const codes<X, Weight> tile(place, more);
      scales.next(tile.scale(step / steps, bf16));
      const codes4::offsets of = tile.offsets(step / steps);
      less = {codes4::times(of.even, scales.by[0], X()), codes4::times(of.odd, scales.by[1], X())};
    }
    if (step % 4 == 0)
      load<16>(words, place.codes + step / 4 * INT4_UNIT_BYTES + more);
    ptx::wgmma_wait<1>();
    keep(a[step % 2][0]);
    codes4::numbers_by(a[step % 2][0], words[step % 4], scales.by, less);
  };
  ptx::barrier_wait(ptx::shared_address(&s.full[at.stage]), at.phase);
  prepare(0);
#pragma unroll 1
  while (done < end) {
    const uint32_t stage = at.stage;
    const uint64_t x = ptx::swizzled_descriptor(ptx::shared_address(s.x[stage]));
#pragma unroll
    for (int step = 0; step < 8; step++) {
      begin<Shape>(sum, a[step % 2], x, step, true);
      if (step < 7)
        prepare(step + 1);
      if ((step + 1) % steps == 0 && step < 7) {
        ptx::wgmma_wait<0>();
        rescaling::multiply(sum, scales.change);
      }
    }
    at.advance();
    if (++done < end) {
      ptx::barrier_wait(ptx::shared_address(&s.full[at.stage]), at.phase);
      prepare(0);
    } else {
      scales.last();
    }
    ptx::wgmma_wait<0>();
    ptx::barrier_arrive(ptx::shared_address(&s.empty[stage]));
    rescaling::multiply(sum, scales.change);
  }
}

// Numbers of a step of INT4A8: bytes are 16 (c - 8), or c less the zero points of the two rows.
__device__ inline void unpack_int8(uint32_t (&a)[4], const uint32_t *words) {
#pragma unroll
  for (int r = 0; r < 4; r++)
    a[r] = (r % 2 == 0 ? words[r / 2] : words[r / 2] << 4) & 0xf0f0f0f0;
}

// zeros: a byte for either row. Bytes are 128 more until the end: none borrows from its neighbour.
__device__ inline void unpack_int8(uint32_t (&a)[4], const uint32_t *words, uint32_t zeros) {
  const uint32_t less[2] = {__byte_perm(zeros, 0, 0x0000), __byte_perm(zeros, 0, 0x1111)};
#pragma unroll
  for (int r = 0; r < 4; r++) {
    const uint32_t word = r % 2 == 0 ? words[r / 2] >> 4 : words[r / 2];
    a[r] = (((word & 0x0f0f0f0f) ^ 0x88888888) - less[r % 2]) ^ 0x80808080;
  }
}

// Codes of INT8 by INT4A8, sums exact.
template <typename Shape>
__device__ inline void multiply_int8(const work &w, shared<Shape> &s, uint32_t &done, uint32_t end, int group,
                                     float (&sum)[4 * Shape::eights]) {
  using Weight = typename Shape::weight;
  constexpr int count = 4 * Shape::eights, steps = 4 / Weight::groups;
  const place_of<Weight> place(first_tile(s, group), threadIdx.x % 128);
  const bool bf16 = w.product.bf16_scales;
  clear(sum);
  cursor<Shape::stages> at(done);
#pragma unroll 1
  for (; done < end; done++, at.advance()) {
    ptx::barrier_wait(ptx::shared_address(&s.full[at.stage]), at.phase);
#pragma unroll 1
    for (int t = 0; t < 2; t++) {
      const uint32_t more = at.stage * s.w_bytes + t * 2 * Weight::half_bytes;
      const uint64_t x = ptx::swizzled_descriptor(ptx::shared_address(s.x[at.stage])) + t * (s.half_bytes / 16);
      uint32_t words[4];
#pragma unroll
      for (int g = 0; g < Weight::groups; g++) {
        int part[count];
        uint32_t a[steps][4], zeros[1];
        if constexpr (Weight::zeros)
          load<2>(zeros, place.zeros + more + 2 * g);
#pragma unroll
        for (int i = 0; i < steps; i++) {
          const int step = g * steps + i;
          if (step % 2 == 0)
            load<16>(words, place.codes + step / 2 * INT4_UNIT_BYTES + more);
          if constexpr (Weight::zeros)
            unpack_int8(a[i], words + step % 2 * 2, zeros[0]);
          else
            unpack_int8(a[i], words + step % 2 * 2);
          keep(a[i]);
        }
        keep(part);
        ptx::wgmma_fence();
#pragma unroll
        for (int i = 0; i < steps; i++)
          ptx::wgmma_s8(part, a[i], x + 2 * (g * steps + i), i > 0);
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
        uint32_t two[1]; // not before: there are no registers
        load<4>(two, place.scales + more + 4 * g);
        const float2 scale = scales_of(two[0], bf16);
        if (t == 1 && g == Weight::groups - 1) {
          __syncwarp();
          if (threadIdx.x % 32 == 0)
            ptx::barrier_arrive(ptx::shared_address(&s.empty[at.stage]));
        }
#pragma unroll
        for (int i = 0; i < count; i++) {
          ptx::keep(part[i]);
          sum[i] = fmaf(static_cast<float>(part[i]), i % 4 < 2 ? scale.x : scale.y, sum[i]);
        }
      }
    }
  }
  constexpr float unit = Weight::zeros ? 1.0f : 0.0625f;
#pragma unroll
  for (int i = 0; i < count; i++)
    sum[i] *= unit;
}

} // namespace int4_many
