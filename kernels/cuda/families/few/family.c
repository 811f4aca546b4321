#include "../call.h"
#include "../table.h"
#include "launch.h"
#include "variants.h"

static enum status launch(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                          struct error *error) {
  struct kernel_problem problem = kernel_call_problem(backend, call);
  if (!few_takes(&problem))
    return error_set(error, STATUS_UNSUPPORTED, "no kernel for this product");
  struct few_config config = few_of(variant);
  struct hopper_product product = kernel_call_rows(call);
  cudaError_t result = few_launch(call->stream, &config, &product, problem.device.multiprocessors, call->follows);
  return runtime_check(result, "computing a product", error);
}

const struct kernel_family few_kernels = {
    .variants = &few_family,
    .predict = few_predict,
    .candidates = few_list,
    .check = few_check,
    .launch = launch,
    .writes_rows = true,
    .kernels = {kernel_of_few},
};
