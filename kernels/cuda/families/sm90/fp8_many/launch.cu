// Launcher of fp8_many/kernel.cuh.
#include "../../../launch/launch_kernel.cuh"
#include "instances.cuh"
#include "launch.h"

extern "C" cudaError_t fp8_many_launch(cudaStream_t stream, const struct fp8_many_config *config,
                                       const struct fp8_many_plan *plan, const struct hopper_product *product,
                                       const CUtensorMap *w, const CUtensorMap *x, bool dependent) {
  const unsigned split = static_cast<unsigned>(plan->split_k), blocks = static_cast<unsigned>(plan->blocks);
  fp8_many::work work = {};
  work.product = *product;
  work.plan = *plan;
  if (w)
    work.w = *w;
  work.x = *x;
  const fp8_many::instance run =
      product->format == GEMM_FORMAT_INT2A8 ? fp8_many::coded_instance(plan->width, product->y_type)
      : product->format == GEMM_FORMAT_INT8 ? fp8_many::integer_instance(config->rows, plan->width, product->y_type)
                                            : fp8_many::float_instance(config->rows, plan->width, product->y_type);
  if (!run.kernel)
    return cudaErrorInvalidConfiguration;
  launch_shape shape;
  shape.grid = split > 1 ? dim3(split, blocks / split) : dim3(blocks);
  shape.block = dim3(run.threads);
  shape.shared_bytes = run.shared_bytes;
  shape.dependent = dependent;
  if (split > 1)
    shape.cluster = dim3(split, 1, 1);
  return launch_kernel(stream, shape, run.kernel, work);
}

static const load_early early[] = {fp8_many::float_instance(128, 128, GEMM_F32).kernel,
                                   fp8_many::coded_instance(128, GEMM_F16).kernel,
                                   fp8_many::integer_instance(128, 128, GEMM_F32).kernel};
