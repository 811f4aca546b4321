// Launchers of quantize.cuh.
#include "../launch/launch_kernel.cuh"
#include "quantize.cuh"
#include "quantize.h"

// How many times eight elements a thread keeps: more where there are more of them than the device has threads for.
static int kept_for(int64_t rows, int64_t k_padded) {
  constexpr int64_t few = 160 << 10, some = 1200 << 10, many = 2200 << 10, most_of_row = 8 * quantize_threads(1);
  const int64_t eights = rows * (k_padded / 8);
  if (k_padded > 2 * most_of_row)
    return 8;
  if (k_padded > most_of_row)
    return eights <= few ? 2 : eights <= some ? 4 : 8;
  return eights <= few ? 1 : eights <= some ? 2 : eights <= many ? 4 : 8;
}

// As few rows of a table as leave multiprocessors idle if each had one block of few threads.
constexpr int few_rows = 256;

static bool keeps_most(int rows, int64_t k_padded) {
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

template <typename X, bool e4m3> static cudaError_t rows_of(cudaStream_t stream, const quantize_pass &p) {
  switch (kept_for(p.rows, p.k_padded)) {
  case 1:
    return rows_by<X, e4m3, 1>(stream, p);
  case 2:
    return rows_by<X, e4m3, 2>(stream, p);
  case 4:
    return rows_by<X, e4m3, 4>(stream, p);
  default:
    return rows_by<X, e4m3, quantize_kept_most<X>>(stream, p);
  }
}

template <typename X> static cudaError_t rows_of(cudaStream_t stream, const quantize_pass &p) {
  return p.e4m3 ? rows_of<X, true>(stream, p) : rows_of<X, false>(stream, p);
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

static const load_early early(quantize_rows<float, false, 1>);
