// Launchers of quantize.cuh.
#include "../launch/launch_kernel.cuh"
#include "quantize.cuh"
#include "quantize.h"

// As few as leave multiprocessors idle if each row had one block of few threads.
constexpr int64_t few_rows = 256;

static bool keeps_most(int64_t rows, int64_t k_padded) {
  return rows > few_rows || k_padded > 8 * quantize_threads(1);
}

static int threads_for(int64_t k_padded, int kept) {
  const int64_t wanted = (k_padded + 8 * kept - 1) / (8 * kept), most = quantize_threads(kept);
  return static_cast<int>(wanted < most ? (wanted + 31) / 32 * 32 : most);
}

static launch_shape shape_of(int64_t blocks, int threads) {
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>(blocks));
  shape.block = dim3(static_cast<unsigned>(threads));
  return shape;
}

template <typename X, bool e4m3, int kKept> static cudaError_t rows_by(cudaStream_t stream, const quantize_pass &p) {
  launch_shape shape = shape_of(p.rows, threads_for(p.k_padded, kKept));
  shape.dependent = p.dependent;
  return launch_kernel(stream, shape, quantize_rows<X, e4m3, kKept>, static_cast<const uint8_t *>(p.x), p.x_stride, p.k,
                       p.k_padded, static_cast<uint8_t *>(p.codes), p.scales);
}

template <typename X> static cudaError_t rows_of(cudaStream_t stream, const quantize_pass &p) {
  if (keeps_most(p.rows, p.k_padded))
    return p.e4m3 ? rows_by<X, true, quantize_kept_most<X>>(stream, p)
                  : rows_by<X, false, quantize_kept_most<X>>(stream, p);
  return p.e4m3 ? rows_by<X, true, 1>(stream, p) : rows_by<X, false, 1>(stream, p);
}

extern "C" cudaError_t launch_quantize_rows(cudaStream_t stream, const struct quantize_pass *pass) {
  if (pass->x_type == GEMM_F32)
    return rows_of<float>(stream, *pass);
  if (pass->x_type == GEMM_F16)
    return rows_of<__half>(stream, *pass);
  return rows_of<__nv_bfloat16>(stream, *pass);
}

template <typename X, bool e4m3, int kKept>
static cudaError_t table_by(cudaStream_t stream, const row_table &x, int rows, int64_t k, int64_t k_padded, void *codes,
                            float *scales, const row_table &y, void **y_rows) {
  return launch_kernel(stream, shape_of(rows, threads_for(k_padded, kKept)), quantize_table<X, e4m3, kKept>, x, k,
                       k_padded, static_cast<uint8_t *>(codes), scales, y, y_rows);
}

template <typename X>
static cudaError_t table_of(cudaStream_t stream, const row_table &x, int rows, int64_t k, int64_t k_padded, bool e4m3,
                            void *codes, float *scales, const row_table &y, void **y_rows) {
  if (keeps_most(rows, k_padded))
    return e4m3 ? table_by<X, true, quantize_kept_most<X>>(stream, x, rows, k, k_padded, codes, scales, y, y_rows)
                : table_by<X, false, quantize_kept_most<X>>(stream, x, rows, k, k_padded, codes, scales, y, y_rows);
  return e4m3 ? table_by<X, true, 1>(stream, x, rows, k, k_padded, codes, scales, y, y_rows)
              : table_by<X, false, 1>(stream, x, rows, k, k_padded, codes, scales, y, y_rows);
}

extern "C" cudaError_t launch_quantize_table(cudaStream_t stream, const struct row_table *x, enum gemm_type x_type,
                                             int rows, int64_t k, int64_t k_padded, bool e4m3, void *codes,
                                             float *scales, const struct row_table *y, void **y_rows) {
  const row_table &to = y_rows != nullptr ? *y : *x;
  if (x_type == GEMM_F32)
    return table_of<float>(stream, *x, rows, k, k_padded, e4m3, codes, scales, to, y_rows);
  if (x_type == GEMM_F16)
    return table_of<__half>(stream, *x, rows, k, k_padded, e4m3, codes, scales, to, y_rows);
  return table_of<__nv_bfloat16>(stream, *x, rows, k, k_padded, e4m3, codes, scales, to, y_rows);
}

template <typename X> static cudaError_t blocks_of(cudaStream_t stream, const quantize_pass &p) {
  const int64_t threads = p.rows_padded * (p.k_padded / GEMM_GROUP) * 16;
  launch_shape shape =
      shape_of((threads + quantize_block_threads - 1) / quantize_block_threads, quantize_block_threads);
  shape.dependent = p.dependent;
  return launch_kernel(stream, shape, quantize_blocks<X>, static_cast<const uint8_t *>(p.x), p.x_stride, p.rows,
                       p.rows_padded, p.k, p.k_padded, static_cast<uint8_t *>(p.codes), p.scales);
}

extern "C" cudaError_t launch_quantize_blocks(cudaStream_t stream, const struct quantize_pass *pass) {
  if (pass->x_type == GEMM_F32)
    return blocks_of<float>(stream, *pass);
  if (pass->x_type == GEMM_F16)
    return blocks_of<__half>(stream, *pass);
  return blocks_of<__nv_bfloat16>(stream, *pass);
}

// One thread an element of the output.
static __global__ void scales_transpose(const float *in, int64_t rows, int64_t rows_padded, int64_t columns,
                                        float *out) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t row = index % rows_padded, column = index / rows_padded;
  if (column < columns)
    out[index] = row < rows ? in[row * columns + column] : 0.0f;
}

extern "C" cudaError_t launch_scales_transpose(cudaStream_t stream, const float *in, int64_t rows, int64_t rows_padded,
                                               int64_t columns, float *out) {
  return launch_kernel(stream, shape_of((rows_padded * columns + 255) / 256, 256), scales_transpose, in, rows,
                       rows_padded, columns, out);
}

extern "C" const void *kernel_of_quantize(void) {
  return reinterpret_cast<const void *>(&quantize_rows<float, false, 1>);
}
