// Launcher of plain/int2_kernel.cuh.
#include "../../exec/launch_kernel.cuh"
#include "int2.h"
#include "int2_kernel.cuh"

template <typename X, int rows, int columns> static cudaError_t shape_of(cudaStream_t stream, const int2_product &p) {
  const int64_t wide = int2_threads / 32 * columns;
  // Rows go along y, of which the grid has 65535; the caller's chunks are shorter.
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>((p.n + wide - 1) / wide), static_cast<unsigned>((p.m + rows - 1) / rows));
  shape.block = dim3(int2_threads);
  return launch_kernel(stream, shape, int2_products<X, rows, columns>, p);
}

template <typename X> static cudaError_t products_of(cudaStream_t stream, const int2_product &p) {
  return p.m == 1 ? shape_of<X, 1, 2>(stream, p) : shape_of<X, 4, 4>(stream, p);
}

extern "C" cudaError_t launch_int2(cudaStream_t stream, const struct int2_product *product) {
  if (product->x_type == GEMM_F32)
    return products_of<float>(stream, *product);
  if (product->x_type == GEMM_INT8)
    return products_of<int8_t>(stream, *product);
  if (product->x_type == GEMM_F16)
    return products_of<__half>(stream, *product);
  return products_of<__nv_bfloat16>(stream, *product);
}

extern "C" const void *kernel_of_int2(void) {
  return reinterpret_cast<const void *>(&int2_products<float, 1, 2>);
}
