// Launchers of convert_kernels.cuh.
#include "../runtime/load.cuh"
#include "convert_kernels.cuh"
#include "convert_kernels.h"

// Enough to fill any device; rows beyond are a block's next ones.
constexpr int64_t grid_most = 4096;

static unsigned grid_of(int64_t rows) {
  return static_cast<unsigned>(rows < grid_most ? rows : grid_most);
}

template <typename X> static void magnitude_of(cudaStream_t stream, const convert_slice &p) {
  convert_magnitude<X><<<grid_of(p.rows), convert_threads, 0, stream>>>(static_cast<const uint8_t *>(p.x), p.x_stride,
                                                                        p.rows, p.k, p.greatest);
}

extern "C" cudaError_t launch_convert_magnitude(cudaStream_t stream, const convert_slice *slice) {
  if (slice->x_type == GEMM_F32)
    magnitude_of<float>(stream, *slice);
  else if (slice->x_type == GEMM_F16)
    magnitude_of<__half>(stream, *slice);
  else
    magnitude_of<__nv_bfloat16>(stream, *slice);
  return cudaGetLastError();
}

template <typename X> static void scaled(cudaStream_t stream, const convert_slice &p) {
  const auto kernel = p.format == GEMM_FORMAT_FP8 ? convert_scaled<X, true> : convert_scaled<X, false>;
  kernel<<<grid_of(p.rows), convert_threads, 0, stream>>>(static_cast<const uint8_t *>(p.x), p.x_stride, p.rows, p.k,
                                                          p.one_scale, static_cast<uint8_t *>(p.codes), p.row_bytes);
}

template <typename X> static void squares(cudaStream_t stream, const convert_slice &p) {
  const dim3 grid(static_cast<unsigned>((p.k + GEMM_GROUP - 1) / GEMM_GROUP),
                  static_cast<unsigned>((p.rows + GEMM_GROUP - 1) / GEMM_GROUP));
  convert_squares<X><<<grid, convert_threads, 0, stream>>>(static_cast<const uint8_t *>(p.x), p.x_stride, p.rows, p.k,
                                                           static_cast<uint8_t *>(p.codes), p.row_bytes,
                                                           static_cast<float *>(p.scales));
}

template <typename X> static void groups(cudaStream_t stream, const convert_slice &p) {
  convert_groups q = {};
  q.x = static_cast<const uint8_t *>(p.x);
  q.stride = p.x_stride;
  q.rows = p.rows;
  q.k = p.k;
  q.groups = (p.k + GEMM_GROUP - 1) / GEMM_GROUP;
  q.ternary = p.ternary;
  q.codes = static_cast<uint8_t *>(p.codes);
  q.row_bytes = p.row_bytes;
  q.scales = static_cast<__half *>(p.scales);
  q.flawed = p.flawed;
  const int64_t blocks = (q.rows * q.groups + fit_groups - 1) / fit_groups;
  convert_int2<X><<<static_cast<unsigned>(blocks), fit_groups, 0, stream>>>(q);
}

template <typename X> static cudaError_t convert_of(cudaStream_t stream, const convert_slice &p) {
  if (p.scale == GEMM_SCALE_ONE)
    scaled<X>(stream, p);
  else if (p.scale == GEMM_SCALE_BLOCK)
    squares<X>(stream, p);
  else
    groups<X>(stream, p);
  return cudaGetLastError();
}

static cudaError_t rows(cudaStream_t stream, const convert_slice &p) {
  quantize_pass pass = {};
  pass.x = p.x;
  pass.x_type = p.x_type;
  pass.x_stride = p.x_stride;
  pass.rows = pass.rows_padded = p.rows;
  pass.k = p.k;
  pass.k_padded = p.row_bytes;
  pass.e4m3 = p.format == GEMM_FORMAT_FP8;
  pass.codes = p.codes;
  pass.scales = static_cast<float *>(p.scales);
  return launch_quantize_rows(stream, &pass);
}

extern "C" cudaError_t launch_convert(cudaStream_t stream, const convert_slice *slice) {
  if (slice->scale == GEMM_SCALE_ROW)
    return rows(stream, *slice);
  if (slice->x_type == GEMM_F32)
    return convert_of<float>(stream, *slice);
  if (slice->x_type == GEMM_F16)
    return convert_of<__half>(stream, *slice);
  return convert_of<__nv_bfloat16>(stream, *slice);
}

static const load_early early(convert_magnitude<float>);
