// Launcher of pairs/kernel.cuh.
#include "../../launch/launch_kernel.cuh"
#include "kernel.cuh"
#include "launch.h"

namespace {

using kernel = void (*)(pairs_product);

template <typename W, bool kScaled> kernel kernel_by(gemm_type x_type) {
  if (x_type == GEMM_F32)
    return pairs::run<W, float, kScaled>;
  return x_type == GEMM_F16 ? pairs::run<W, __half, kScaled> : pairs::run<W, __nv_bfloat16, kScaled>;
}

kernel kernel_of(const pairs_product &p) {
  switch (p.format) {
  case GEMM_FORMAT_INT8:
    return pairs::run<int8_t, int8_t, false>;
  case GEMM_FORMAT_FP8:
    if (p.scale == GEMM_SCALE_BLOCK)
      return pairs::run<__nv_fp8_e4m3, __nv_fp8_e4m3, true>;
    return pairs::run<__nv_fp8_e4m3, __nv_fp8_e4m3, false>;
  case GEMM_FORMAT_INT2A8:
    return pairs::run<code2, int8_t, true>;
  case GEMM_FORMAT_INT2:
    return kernel_by<code2, true>(p.x_type);
  case GEMM_FORMAT_INT4A8:
    return pairs::run<code4, int8_t, true>;
  case GEMM_FORMAT_INT4:
    return kernel_by<code4, true>(p.x_type);
  case GEMM_FORMAT_MXFP4:
  case GEMM_FORMAT_NVFP4:
    return kernel_by<code_e2m1, true>(p.x_type);
  case GEMM_FORMAT_F16:
    return pairs::run<__half, __half, false>;
  case GEMM_FORMAT_BF16:
    return pairs::run<__nv_bfloat16, __nv_bfloat16, false>;
  default:
    return nullptr;
  }
}

} // namespace

extern "C" cudaError_t launch_pairs(cudaStream_t stream, const struct pairs_product *product) {
  constexpr int wide = pairs::warps * pairs::columns;
  const kernel run = kernel_of(*product);
  if (run == nullptr || product->pairs > 65535)
    return cudaErrorInvalidConfiguration;
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>((product->n + wide - 1) / wide), static_cast<unsigned>(product->pairs));
  shape.block = dim3(32 * pairs::warps);
  return launch_kernel(stream, shape, run, *product);
}

static const load_early early(pairs::run<int8_t, int8_t, false>);
