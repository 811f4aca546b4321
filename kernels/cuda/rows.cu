// Launchers of rows.cuh.
#include "rows.cuh"

static dim3 grid_of(int rows, uint64_t row_bytes) {
  return dim3(static_cast<unsigned>(rows), static_cast<unsigned>((row_bytes + rows_bytes - 1) / rows_bytes));
}

extern "C" cudaError_t launch_rows_gather(cudaStream_t stream, const struct row_table *from, int rows,
                                          uint64_t row_bytes, void *to, uint64_t to_stride) {
  rows_copy<true>
      <<<grid_of(rows, row_bytes), rows_threads, 0, stream>>>(*from, static_cast<uint8_t *>(to), to_stride, row_bytes);
  return cudaGetLastError();
}

extern "C" cudaError_t launch_rows_scatter(cudaStream_t stream, const void *from, uint64_t from_stride, int rows,
                                           uint64_t row_bytes, const struct row_table *to) {
  uint8_t *dense = static_cast<uint8_t *>(const_cast<void *>(from));
  rows_copy<false><<<grid_of(rows, row_bytes), rows_threads, 0, stream>>>(*to, dense, from_stride, row_bytes);
  return cudaGetLastError();
}
