// Launchers of activate.cuh.
#include "../launch/launch_kernel.cuh"
#include "activate.cuh"
#include "activate.h"

namespace {

// So many blocks share a row where there are clusters; more than that is not portable.
constexpr int64_t ranks_most = 8;

template <typename Kernel>
cudaError_t launch(cudaStream_t stream, Kernel kernel, const activate_pass &p, dim3 grid, int threads, int ranks) {
  launch_shape shape;
  shape.grid = grid;
  shape.block = dim3(static_cast<unsigned>(threads));
  if (ranks > 1)
    shape.cluster = dim3(static_cast<unsigned>(ranks));
  shape.dependent = p.dependent;
  return launch_kernel(stream, shape, kernel, p);
}

template <typename T> cudaError_t rows_of(cudaStream_t stream, const activate_pass &p, bool e4m3) {
  const int64_t wanted = (p.k_padded / 8 + activate_threads_most - 1) / activate_threads_most;
  const int64_t ranks = !p.clusters || wanted < 1 ? 1 : wanted < ranks_most ? wanted : ranks_most;
  const int64_t part = (p.k_padded / 8 + ranks - 1) / ranks, threads = (part + 31) / 32 * 32;
  const dim3 grid(static_cast<unsigned>(ranks), static_cast<unsigned>(p.m));
  return launch(stream, e4m3 ? activate_rows<T, true> : activate_rows<T, false>, p, grid,
                static_cast<int>(threads < activate_threads_most ? threads : activate_threads_most),
                static_cast<int>(ranks));
}

template <typename T> cudaError_t blocks_of(cudaStream_t stream, const activate_pass &p) {
  const int64_t threads = p.rows_padded * (p.k_padded / GEMM_GROUP) * 16;
  const dim3 grid(static_cast<unsigned>((threads + quantize_block_threads - 1) / quantize_block_threads));
  return launch(stream, activate_blocks<T>, p, grid, quantize_block_threads, 1);
}

template <typename T> cudaError_t values_of(cudaStream_t stream, const activate_pass &p) {
  const int64_t blocks = (p.k_padded + 8 * activate_values_threads - 1) / (8 * activate_values_threads);
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(p.m < 65535 ? p.m : 65535));
  return launch(stream, activate_values<T>, p, grid, activate_values_threads, 1);
}

template <typename T> cudaError_t pass_of(cudaStream_t stream, const activate_pass &p) {
  switch (p.to) {
  case ACTIVATE_TO_INT8:
    return rows_of<T>(stream, p, false);
  case ACTIVATE_TO_E4M3:
    return rows_of<T>(stream, p, true);
  case ACTIVATE_TO_E4M3_BLOCKS:
    return blocks_of<T>(stream, p);
  default:
    return values_of<T>(stream, p);
  }
}

} // namespace

extern "C" cudaError_t launch_activate(cudaStream_t stream, const struct activate_pass *pass) {
  if (pass->type == GEMM_F32)
    return pass_of<float>(stream, *pass);
  if (pass->type == GEMM_F16)
    return pass_of<__half>(stream, *pass);
  return pass_of<__nv_bfloat16>(stream, *pass);
}

static const load_early early(activate_rows<float, false>);
