// Launchers of input.cuh.
#include "../launch/launch_kernel.cuh"
#include "input.cuh"

// Of a block's shared memory every device has this much beside what quantize_input_rows has for itself.
constexpr int64_t input_staged_bytes = 80 * 1024;
constexpr int64_t order_staged_rows = 64; // of fewer, several blocks share one

// What a row takes there; 0: it is too long.
template <typename X> static size_t staged_bytes(int64_t k) {
  const int64_t bytes = (k + 7) / 8 * 8 * static_cast<int64_t>(sizeof(X));
  return bytes <= input_staged_bytes ? static_cast<size_t>(bytes) : 0;
}

template <typename X> static cudaError_t rows_of(cudaStream_t stream, const quantize_pass &p) {
  const int64_t wanted = (p.k_padded + input_each - 1) / input_each;
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>(p.rows));
  // whole groups of 1024 elements, so that each is rotated by one block
  shape.block = dim3(static_cast<unsigned>(wanted < input_threads ? (wanted + 63) / 64 * 64 : input_threads));
  shape.dependent = p.dependent;
  shape.shared_bytes = p.input.order != nullptr ? staged_bytes<X>(p.k) : 0;
  const auto kernel = p.e4m3 ? quantize_input_rows<X, true> : quantize_input_rows<X, false>;
  return launch_kernel(stream, shape, kernel, static_cast<const uint8_t *>(p.x), p.x_stride, static_cast<int>(p.k),
                       static_cast<int>(p.k_padded), p.input, shape.shared_bytes > 0, static_cast<uint8_t *>(p.codes),
                       p.scales);
}

extern "C" cudaError_t launch_quantize_input(cudaStream_t stream, const struct quantize_pass *pass) {
  if (pass->input.order == nullptr && pass->input.stages == 0 && pass->input.scale == nullptr)
    return launch_quantize_rows(stream, pass);
  if (pass->x_type == GEMM_F32)
    return rows_of<float>(stream, *pass);
  if (pass->x_type == GEMM_F16)
    return rows_of<__half>(stream, *pass);
  return rows_of<__nv_bfloat16>(stream, *pass);
}

// An element is moved as what has as many bytes.
template <typename X> static cudaError_t order_of(cudaStream_t stream, const order_pass &p) {
  launch_shape shape;
  const int64_t pieces = (p.columns + order_columns - 1) / order_columns;
  shape.shared_bytes = p.rows >= order_staged_rows ? staged_bytes<X>(p.k) : 0;
  shape.grid = dim3(static_cast<unsigned>(p.rows), shape.shared_bytes > 0 ? 1 : static_cast<unsigned>(pieces));
  shape.block = dim3(order_threads);
  shape.dependent = p.dependent;
  return launch_kernel(stream, shape, order_rows<X>, static_cast<const uint8_t *>(p.x), p.x_stride,
                       static_cast<uint32_t>(p.k), static_cast<uint32_t>(p.columns), p.order, shape.shared_bytes > 0,
                       static_cast<X *>(p.to));
}

extern "C" cudaError_t launch_order(cudaStream_t stream, const struct order_pass *pass) {
  return pass->type == GEMM_F32 ? order_of<uint32_t>(stream, *pass) : order_of<uint16_t>(stream, *pass);
}

static const load_early early(quantize_input_rows<float, false>);
