// Both sparse matrix instructions, each with both selectors, against what two plain multiplexers a chunk of four rows
// give. The left operand's 16 numbers of a row are the powers of two from 1 on, the right operand is the unit matrix:
// of each sum in column n, the bits of chunk n / 4 say which of its two numbers were added, and no rounding is in the
// way.
#include "../../../device/ptx.cuh"
#include "../../../device/wgmma.cuh"
#include "places.h"

namespace {

constexpr int threads = 128, depth = 32, columns = 32, numbers = columns / 2, nibbles = 16;

// The right operand in core matrices of eight rows of K by eight columns.
constexpr int core_bytes = 128, column_bytes = depth / 8 * core_bytes;

__device__ int answer;

// f16.
__device__ uint32_t power_of_two(uint32_t exponent) {
  return (15 + exponent) << 10;
}
__device__ uint32_t unit(uint32_t k, uint32_t n) {
  return k == n ? power_of_two(0) : 0;
}

// The metadata of a chunk in a half of a thread's word. In 16 rounds each place has each nibble, and each thread
// others.
__device__ uint32_t nibble(uint32_t round, uint32_t thread, uint32_t half, uint32_t chunk) {
  return (round + 3 * thread + 7 * half + 5 * chunk) % nibbles;
}

__device__ uint32_t word(uint32_t round, uint32_t thread) {
  uint32_t bits = 0;
  for (uint32_t half = 0; half < 2; half++)
    for (uint32_t chunk = 0; chunk < 4; chunk++)
      bits |= nibble(round, thread, half, chunk) << (16 * half + 4 * chunk);
  return bits;
}

// Whether these are a warp's sums, of which a thread has rows t % 32 / 4 and 8 below it.
template <int kSelector> __device__ bool is_right(const float (&d)[numbers], uint32_t round) {
  const uint32_t lane = threadIdx.x % 32, first = threadIdx.x - lane % 4 + 2 * kSelector;
  bool right = true;
#pragma unroll
  for (uint32_t i = 0; i < numbers; i++) {
    const uint32_t column = i / 4 * 8 + lane % 4 * 2 + i % 2, chunk = column / 4, row = column % 4;
    const uint32_t index = nibble(round, first + chunk / 4, i % 4 / 2, chunk % 4);
    const uint32_t sum = (index % 4 == row ? 1u : 0u) + (index / 4 == row ? 2u : 0u);
    right = right && d[i] == static_cast<float>(sum << (2 * chunk));
  }
  return right;
}

template <int kSelector>
__device__ bool try_wgmma(const uint32_t (&a)[4], uint64_t b, uint32_t places, uint32_t round) {
  float d[numbers] = {};
#pragma unroll
  for (int i = 0; i < numbers; i++)
    ptx::keep(d[i]);
  ptx::wgmma_fence();
  if constexpr (kSelector == 0)
    ptx::wgmma_sparse_f16_lower(d, a, b, places, true);
  else
    ptx::wgmma_sparse_f16_upper(d, a, b, places, true);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < numbers; i++)
    ptx::keep(d[i]);
  return is_right<kSelector>(d, round);
}

template <int kSelector> __device__ bool try_mma(const uint32_t (&a)[4], uint32_t places, uint32_t round) {
  const uint32_t lane = threadIdx.x % 32;
  constexpr float zeros[4] = {};
  float d[numbers];
#pragma unroll
  for (uint32_t eight = 0; eight < columns / 8; eight++) {
    uint32_t b[4];
    float part[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
      const uint32_t k = 8 * i + lane % 4 * 2, n = 8 * eight + lane / 4;
      b[i] = unit(k, n) | unit(k + 1, n) << 16;
    }
    ptx::mma_sparse_f16<kSelector>(part, a, b, zeros, places);
#pragma unroll
    for (int i = 0; i < 4; i++)
      d[4 * eight + i] = part[i];
  }
  return is_right<kSelector>(d, round);
}

__global__ void __launch_bounds__(threads) check() {
  __shared__ __align__(128) uint16_t shared[depth * columns];
  for (uint32_t i = threadIdx.x; i < depth * columns; i += threads) {
    const uint32_t k = i / columns, n = i % columns;
    shared[(n / 8 * column_bytes + k / 8 * core_bytes) / 2 + k % 8 * 8 + n % 8] = static_cast<uint16_t>(unit(k, n));
  }
  ptx::fence_async_shared();
  __syncthreads();
  const uint64_t b = ptx::core_descriptor(ptx::shared_address(shared), core_bytes, column_bytes);
  // Of a row of 16 numbers this thread has two, and those eight further on; both its rows are alike.
  const uint32_t slot = threadIdx.x % 4 * 2;
  const uint32_t near = power_of_two(slot) | power_of_two(slot + 1) << 16;
  const uint32_t far = power_of_two(slot + 8) | power_of_two(slot + 9) << 16;
  const uint32_t a[4] = {near, near, far, far};
  bool right = true;
#pragma unroll 1
  for (uint32_t round = 0; round < nibbles; round++) {
    const uint32_t places = word(round, threadIdx.x);
    right &= try_wgmma<0>(a, b, places, round);
    right &= try_wgmma<1>(a, b, places, round);
    right &= try_mma<0>(a, places, round);
    right &= try_mma<1>(a, places, round);
  }
  const bool all = __syncthreads_and(right);
  if (threadIdx.x == 0)
    answer = all;
}

} // namespace

extern "C" cudaError_t places_check(bool *right) {
  int all = 0;
  check<<<1, threads>>>();
  cudaError_t result = cudaGetLastError();
  if (result == cudaSuccess)
    result = cudaMemcpyFromSymbol(&all, answer, sizeof all);
  *right = result == cudaSuccess && all == 1;
  return result;
}
