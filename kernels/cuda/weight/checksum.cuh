// A checksum of stored bytes: damage of any word shows, and so do words that changed places. Addition makes it the
// same in whatever order blocks finish.
#pragma once

#include <stdint.h>

constexpr int checksum_threads = 256;

__device__ inline uint64_t checksum_mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

// *out is zero before.
__global__ void __launch_bounds__(checksum_threads)
    checksum_sum(const uint64_t *words, uint64_t count, unsigned long long *out) {
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * checksum_threads;
  uint64_t sum = 0;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * checksum_threads + threadIdx.x; i < count; i += step)
    sum += checksum_mix(words[i] + (i + 1) * 0x9e3779b97f4a7c15u);
  for (int offset = 16; offset > 0; offset /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (threadIdx.x % 32 == 0)
    atomicAdd(out, static_cast<unsigned long long>(sum));
}
