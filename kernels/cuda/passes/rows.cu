// Launchers of rows.cuh.
#include "../launch/launch_kernel.cuh"
#include "rows.cuh"
#include "rows.h"

static launch_shape shape_of(int rows, uint64_t row_bytes) {
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>(rows), static_cast<unsigned>((row_bytes + rows_bytes - 1) / rows_bytes));
  shape.block = dim3(rows_threads);
  return shape;
}

extern "C" cudaError_t launch_rows_gather(cudaStream_t stream, const struct row_table *from, int rows,
                                          uint64_t row_bytes, void *to, uint64_t to_stride) {
  return launch_kernel(stream, shape_of(rows, row_bytes), rows_copy<true>, *from, static_cast<uint8_t *>(to), to_stride,
                       row_bytes);
}

extern "C" cudaError_t launch_rows_scatter(cudaStream_t stream, const void *from, uint64_t from_stride, int rows,
                                           uint64_t row_bytes, const struct row_table *to) {
  uint8_t *dense = static_cast<uint8_t *>(const_cast<void *>(from));
  return launch_kernel(stream, shape_of(rows, row_bytes), rows_copy<false>, *to, dense, from_stride, row_bytes);
}

static const load_early early(rows_copy<true>);
