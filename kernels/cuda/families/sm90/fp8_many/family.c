#include "../../../runtime/tensor_map.h"
#include "../../call.h"
#include "../../table.h"
#include "launch.h"
#include "variants.h"

static enum status launch(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                          struct error *error) {
  struct kernel_problem problem = kernel_call_problem(backend, call);
  struct fp8_many_config config = fp8_many_of(variant);
  struct fp8_many_plan plan;
  CUtensorMap w, x;
  if (problem.format != GEMM_FORMAT_FP8 || problem.scale == GEMM_SCALE_BLOCK ||
      !fp8_many_plan_for(&config, &problem, &plan))
    return error_set(error, STATUS_UNSUPPORTED, "no kernel for this product");
  struct hopper_product product = kernel_call_rows(call);
  enum status status =
      tensor_map_make(backend->driver, product.w, product.n, product.k, product.w_stride, config.rows, &w, error);
  if (status == STATUS_OK)
    status =
        tensor_map_make(backend->driver, product.x, product.m, product.k, product.x_stride, plan.columns, &x, error);
  if (status != STATUS_OK)
    return status;
  cudaError_t result = fp8_many_launch(call->stream, &config, &plan, &product, &w, &x, call->follows);
  return runtime_check(result, "computing a product", error);
}

const struct kernel_family fp8_many_kernels = {
    .variants = &fp8_many_family,
    .predict = fp8_many_predict,
    .candidates = fp8_many_list,
    .check = fp8_many_check,
    .launch = launch,
    .writes_rows = true,
    .kernels = {kernel_of_fp8_many},
};
