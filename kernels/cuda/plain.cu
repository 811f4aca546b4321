// Launcher of plain.cuh.
#include "plain.cuh"

extern "C" cudaError_t launch_plain(cudaStream_t stream, const struct plain_product *product) {
  const dim3 grid(static_cast<unsigned>((product->n + plain_tile - 1) / plain_tile),
                  static_cast<unsigned>((product->m + plain_tile - 1) / plain_tile));
  const int threads = plain_side * plain_side;
  if (product->format == GEMM_FORMAT_INT8)
    plain_sums<int8_t, int><<<grid, threads, 0, stream>>>(*product);
  else if (product->format == GEMM_FORMAT_FP8)
    plain_sums<__nv_fp8_e4m3, float><<<grid, threads, 0, stream>>>(*product);
  else if (product->format == GEMM_FORMAT_F16)
    plain_sums<__half, float><<<grid, threads, 0, stream>>>(*product);
  else
    plain_sums<__nv_bfloat16, float><<<grid, threads, 0, stream>>>(*product);
  return cudaGetLastError();
}
