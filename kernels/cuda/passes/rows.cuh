// Rows that lie apart, in mapped host memory as a rule, to or from dense rows on the device.
#pragma once

#include "rows.h"

constexpr int rows_threads = 256;
constexpr int rows_bytes = 16 * rows_threads * 2; // that a block copies of one row

// A block copies a stretch of one row, 16 bytes a thread where both sides allow it.
template <bool gather>
__global__ void __launch_bounds__(rows_threads)
    rows_copy(const row_table table, uint8_t *dense, uint64_t dense_stride, uint64_t row_bytes) {
  uint8_t *apart = static_cast<uint8_t *>(const_cast<void *>(table.rows[blockIdx.x]));
  uint8_t *behind = dense + blockIdx.x * dense_stride;
  const uint8_t *from = gather ? apart : behind;
  uint8_t *to = gather ? behind : apart;
  const uint64_t begin = static_cast<uint64_t>(blockIdx.y) * rows_bytes;
  const uint64_t end = min(begin + rows_bytes, row_bytes);
  const bool vectors = (reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to)) % 16 == 0;
  uint64_t bytes_from = begin;
  if (vectors) {
    for (uint64_t i = begin + 16 * threadIdx.x; i + 16 <= end; i += 16 * rows_threads)
      *reinterpret_cast<uint4 *>(to + i) = *reinterpret_cast<const uint4 *>(from + i);
    bytes_from = end / 16 * 16;
  }
  for (uint64_t i = bytes_from + threadIdx.x; i < end; i += rows_threads)
    to[i] = from[i];
}
