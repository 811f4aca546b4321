// Launcher of sm80/rows/kernel.cuh.
#include "../../../launch/launch_kernel.cuh"
#include "instances.cuh"
#include "launch.h"

extern "C" cudaError_t sm80_rows_launch(cudaStream_t stream, const struct sm80_rows_config *config,
                                        const struct sm80_rows_plan *plan, const struct hopper_product *product,
                                        void *parts, bool dependent, bool early) {
  const sm80_rows::instance run = product->format == GEMM_FORMAT_INT8
                                      ? sm80_rows::integer_instance(config->columns, config->rows)
                                      : sm80_rows::float_instance(config->columns, config->rows);
  if (!run.kernel)
    return cudaErrorInvalidConfiguration;
  sm80_rows::work work = {};
  work.product = *product;
  work.tiles = plan->tiles;
  work.ends = plan->ends;
  work.shares = plan->shares;
  work.stages = plan->stages;
  work.tile = run.tile;
  work.parts = parts;
  work.dependent = dependent;
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>(config->blocks));
  shape.block = dim3(static_cast<unsigned>(work.tile.threads()));
  shape.shared_bytes = static_cast<size_t>(plan->shared_bytes);
  shape.dependent = dependent;
  cudaError_t result = launch_kernel(stream, shape, run.kernel, work);
  if (result != cudaSuccess || plan->shares.parts == 0)
    return result;
  launch_shape adding;
  adding.grid = dim3(static_cast<unsigned>(work.tiles * (config->columns * config->rows / 8 / sm80_rows::adders)));
  adding.block = dim3(sm80_rows::adders);
  adding.dependent = early;
  return launch_kernel(stream, adding, run.adder, work);
}

static const load_early early[] = {sm80_rows::integer_instance(64, 64).kernel,
                                   sm80_rows::float_instance(64, 64).kernel};
