// Launcher of int2.cuh.
#include "int2.cuh"

template <typename X, int rows, int columns> static void shape_of(cudaStream_t stream, const int2_product &p) {
  const int64_t wide = int2_threads / 32 * columns;
  // Rows go along y, of which the grid has 65535; the caller's chunks are shorter.
  const dim3 grid(static_cast<unsigned>((p.n + wide - 1) / wide), static_cast<unsigned>((p.m + rows - 1) / rows));
  int2_products<X, rows, columns><<<grid, int2_threads, 0, stream>>>(p);
}

template <typename X> static void products_of(cudaStream_t stream, const int2_product &p) {
  if (p.m == 1)
    shape_of<X, 1, 2>(stream, p);
  else
    shape_of<X, 4, 4>(stream, p);
}

extern "C" cudaError_t launch_int2(cudaStream_t stream, const struct int2_product *product) {
  if (product->x_type == GEMM_F32)
    products_of<float>(stream, *product);
  else if (product->x_type == GEMM_INT8)
    products_of<int8_t>(stream, *product);
  else if (product->x_type == GEMM_F16)
    products_of<__half>(stream, *product);
  else
    products_of<__nv_bfloat16>(stream, *product);
  return cudaGetLastError();
}
