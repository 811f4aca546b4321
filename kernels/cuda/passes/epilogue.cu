// Launcher of epilogue.cuh.
#include "../launch/launch_kernel.cuh"
#include "epilogue.cuh"
#include "epilogue.h"

template <typename Sum, typename Y> static cudaError_t pass_of(cudaStream_t stream, const epilogue &e) {
  const uint64_t alignment = epilogue_width * sizeof(Y);
  const bool vectors =
      e.n % epilogue_width == 0 && e.y_stride % alignment == 0 && reinterpret_cast<uintptr_t>(e.y) % alignment == 0;
  const int64_t wide = epilogue_threads * epilogue_width;
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>((e.n + wide - 1) / wide), static_cast<unsigned>(e.m < 65535 ? e.m : 65535));
  shape.block = dim3(epilogue_threads);
  return launch_kernel(stream, shape, epilogue_pass<Sum, Y>, e, vectors);
}

template <typename Sum> static cudaError_t pass_to(cudaStream_t stream, const epilogue &e) {
  if (e.y_type == GEMM_F32)
    return pass_of<Sum, float>(stream, e);
  if (e.y_type == GEMM_F16)
    return pass_of<Sum, __half>(stream, e);
  return pass_of<Sum, __nv_bfloat16>(stream, e);
}

extern "C" cudaError_t launch_epilogue(cudaStream_t stream, const struct epilogue *e) {
  return e->integers ? pass_to<int32_t>(stream, *e) : pass_to<float>(stream, *e);
}

static const load_early early(epilogue_pass<float, float>);
