// Launcher of plain/int2_kernel.cuh.
#include "../../launch/launch_kernel.cuh"
#include "int2.h"
#include "int2_kernel.cuh"

static int rows_of(int64_t m) {
  return m == 1 ? 1 : 4;
}

static int columns_of(int64_t m) {
  return m == 1 ? 2 : 4;
}

extern "C" int64_t int2_blocks(int64_t m, int64_t n) {
  const int64_t rows = rows_of(m), wide = int2_threads / 32 * columns_of(m);
  return (n + wide - 1) / wide * ((m + rows - 1) / rows);
}

template <typename X, int rows, int columns> static cudaError_t shape_of(cudaStream_t stream, const int2_product &p) {
  const int64_t wide = int2_threads / 32 * columns;
  // Rows go along y, of which the grid has 65535; the caller's chunks are shorter.
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>((p.n + wide - 1) / wide), static_cast<unsigned>((p.m + rows - 1) / rows),
                    static_cast<unsigned>(p.cut.slices));
  shape.block = dim3(int2_threads);
  const cudaError_t result = launch_kernel(stream, shape, int2_products<X, rows, columns>, p);
  if (result != cudaSuccess || p.cut.slices == 1)
    return result;
  launch_shape join;
  join.grid = dim3(static_cast<unsigned>((p.m * p.n + plain_adders - 1) / plain_adders));
  join.block = dim3(plain_adders);
  return launch_kernel(stream, join, int2_join, p);
}

template <typename X> static cudaError_t products_of(cudaStream_t stream, const int2_product &p) {
  return rows_of(p.m) == 1 ? shape_of<X, 1, 2>(stream, p) : shape_of<X, 4, 4>(stream, p);
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
