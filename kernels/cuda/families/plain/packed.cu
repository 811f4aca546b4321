// Launcher of plain/packed_kernel.cuh.
#include "../../launch/launch_kernel.cuh"
#include "packed.h"
#include "packed_kernel.cuh"

static int rows_of(int64_t m) {
  return m == 1 ? 1 : 4;
}

static int columns_of(int64_t m) {
  return m == 1 ? 2 : 4;
}

extern "C" int64_t packed_blocks(int64_t m, int64_t n) {
  const int64_t rows = rows_of(m), wide = packed_threads / 32 * columns_of(m);
  return (n + wide - 1) / wide * ((m + rows - 1) / rows);
}

template <typename Code, typename X, int rows, int columns>
static cudaError_t shape_of(cudaStream_t stream, const packed_product &p) {
  const int64_t wide = packed_threads / 32 * columns;
  // Rows go along y, of which the grid has 65535; the caller's chunks are shorter.
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>((p.n + wide - 1) / wide), static_cast<unsigned>((p.m + rows - 1) / rows),
                    static_cast<unsigned>(p.cut.slices));
  shape.block = dim3(packed_threads);
  const cudaError_t result = launch_kernel(stream, shape, packed_products<Code, X, rows, columns>, p);
  if (result != cudaSuccess || p.cut.slices == 1)
    return result;
  launch_shape join;
  join.grid = dim3(static_cast<unsigned>((p.m * p.n + plain_adders - 1) / plain_adders));
  join.block = dim3(plain_adders);
  return launch_kernel(stream, join, packed_join, p);
}

template <typename Code, typename X> static cudaError_t products_of(cudaStream_t stream, const packed_product &p) {
  return rows_of(p.m) == 1 ? shape_of<Code, X, 1, 2>(stream, p) : shape_of<Code, X, 4, 4>(stream, p);
}

template <typename Code> static cudaError_t products_of(cudaStream_t stream, const packed_product &p) {
  if (p.x_type == GEMM_F32)
    return products_of<Code, float>(stream, p);
  if (p.x_type == GEMM_F16)
    return products_of<Code, __half>(stream, p);
  return products_of<Code, __nv_bfloat16>(stream, p);
}

extern "C" cudaError_t launch_packed(cudaStream_t stream, const struct packed_product *product) {
  switch (product->format) {
  case GEMM_FORMAT_INT2:
    return products_of<code2>(stream, *product);
  case GEMM_FORMAT_INT2A8:
    return products_of<code2, int8_t>(stream, *product);
  case GEMM_FORMAT_INT4:
    return products_of<code4>(stream, *product);
  case GEMM_FORMAT_INT4A8:
    return products_of<code4, int8_t>(stream, *product);
  case GEMM_FORMAT_MXFP4:
  case GEMM_FORMAT_NVFP4:
    return products_of<code_e2m1>(stream, *product);
  default:
    return cudaErrorInvalidValue;
  }
}

static const load_early early(packed_products<code2, float, 1, 2>);
