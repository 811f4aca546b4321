// Launcher of epilogue.cuh.
#include "epilogue.cuh"

template <typename Sum, typename Y> static void pass_of(cudaStream_t stream, const epilogue &e) {
  const uint64_t alignment = epilogue_width * sizeof(Y);
  const bool vectors =
      e.n % epilogue_width == 0 && e.y_stride % alignment == 0 && reinterpret_cast<uintptr_t>(e.y) % alignment == 0;
  const int64_t wide = epilogue_threads * epilogue_width;
  const dim3 grid(static_cast<unsigned>((e.n + wide - 1) / wide), static_cast<unsigned>(e.m < 65535 ? e.m : 65535));
  epilogue_pass<Sum, Y><<<grid, epilogue_threads, 0, stream>>>(e, vectors);
}

template <typename Sum> static void pass_to(cudaStream_t stream, const epilogue &e) {
  if (e.y_type == GEMM_F32)
    pass_of<Sum, float>(stream, e);
  else if (e.y_type == GEMM_F16)
    pass_of<Sum, __half>(stream, e);
  else
    pass_of<Sum, __nv_bfloat16>(stream, e);
}

extern "C" cudaError_t launch_epilogue(cudaStream_t stream, const struct epilogue *e) {
  if (e->integers)
    pass_to<int32_t>(stream, *e);
  else
    pass_to<float>(stream, *e);
  return cudaGetLastError();
}
