// Launchers of input.cuh.
#include "../launch/launch_kernel.cuh"
#include "input.cuh"

template <typename X> static cudaError_t rows_of(cudaStream_t stream, const quantize_pass &p) {
  const int64_t wanted = (p.k_padded + input_each - 1) / input_each;
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>(p.rows));
  // whole groups of 1024 elements, so that each is rotated by one block
  shape.block = dim3(static_cast<unsigned>(wanted < input_threads ? (wanted + 63) / 64 * 64 : input_threads));
  shape.dependent = p.dependent;
  const auto kernel = p.e4m3 ? quantize_input_rows<X, true> : quantize_input_rows<X, false>;
  return launch_kernel(stream, shape, kernel, static_cast<const uint8_t *>(p.x), p.x_stride, static_cast<int>(p.k),
                       static_cast<int>(p.k_padded), p.input, static_cast<uint8_t *>(p.codes), p.scales);
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
  shape.grid =
      dim3(static_cast<unsigned>(p.rows), static_cast<unsigned>((p.columns + order_columns - 1) / order_columns));
  shape.block = dim3(order_threads);
  shape.dependent = p.dependent;
  return launch_kernel(stream, shape, order_rows<X>, static_cast<const uint8_t *>(p.x), p.x_stride,
                       static_cast<uint32_t>(p.k), static_cast<uint32_t>(p.columns), p.order, static_cast<X *>(p.to));
}

extern "C" cudaError_t launch_order(cudaStream_t stream, const struct order_pass *pass) {
  return pass->type == GEMM_F32 ? order_of<uint32_t>(stream, *pass) : order_of<uint16_t>(stream, *pass);
}

extern "C" const void *kernel_of_input(void) {
  return reinterpret_cast<const void *>(&quantize_input_rows<float, false>);
}
