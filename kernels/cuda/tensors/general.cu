// Launchers of general.cuh.
#include "../launch/launch_kernel.cuh"

#include <cuda_fp16.h>

#include "general.cuh"

namespace {

using kernel = void (*)(general::work);

template <bool kXTurned, bool kWTurned, int kVector> kernel of_type(gemm_type type) {
  return type == GEMM_BF16 ? general::run<kXTurned, kWTurned, kVector, true>
                           : general::run<kXTurned, kWTurned, kVector, false>;
}

template <bool kXTurned, bool kWTurned> kernel of_vector(gemm_type type, int vector) {
  return vector == 8   ? of_type<kXTurned, kWTurned, 8>(type)
         : vector == 4 ? of_type<kXTurned, kWTurned, 4>(type)
         : vector == 2 ? of_type<kXTurned, kWTurned, 2>(type)
                       : of_type<kXTurned, kWTurned, 1>(type);
}

kernel of_form(const tensors_product &p, int vector) {
  if (p.x_turned)
    return p.w_turned ? of_vector<true, true>(p.type, vector) : of_vector<true, false>(p.type, vector);
  return p.w_turned ? of_vector<false, true>(p.type, vector) : of_vector<false, false>(p.type, vector);
}

general::work work_of(const tensors_product &p) {
  general::work work = {};
  work.x = {static_cast<const uint8_t *>(p.x), p.x_stride, p.m};
  work.w = {static_cast<const uint8_t *>(p.w), p.w_stride, p.n};
  work.k = p.k;
  work.pitch = tensors_padded_columns(p.n);
  work.slice = tensors_padded_rows(p.m) * work.pitch;
  work.partials = p.partials;
  work.m_tiles = static_cast<int>((p.m + general::tile - 1) / general::tile);
  work.n_tiles = static_cast<int>((p.n + general::tile - 1) / general::tile);
  work.steps = (p.k + general::step - 1) / general::step;
  work.slices = p.slices;
  return work;
}

} // namespace

extern "C" cudaError_t general_launch(cudaStream_t stream, const struct tensors_product *product, int vector) {
  const general::work work = work_of(*product);
  const int64_t blocks = int64_t(1) * work.m_tiles * work.n_tiles * work.slices;
  if (blocks > INT32_MAX || work.slices > work.steps)
    return cudaErrorInvalidConfiguration;
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>(blocks));
  shape.block = dim3(general::threads);
  return launch_kernel(stream, shape, of_form(*product, vector), work);
}

extern "C" cudaError_t general_plain_launch(cudaStream_t stream, const struct tensors_product *product) {
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>(product->n), static_cast<unsigned>(product->m < 65535 ? product->m : 65535));
  shape.block = dim3(256);
  return launch_kernel(stream, shape, product->type == GEMM_BF16 ? general::plain<true> : general::plain<false>,
                       work_of(*product), product->x_turned, product->w_turned);
}

static const load_early early(general::run<false, false, 8, false>);
