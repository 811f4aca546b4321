#include "../../call.h"
#include "../../table.h"
#include "launch.h"
#include "variants.h"

static enum status launch(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                          struct error *error) {
  struct kernel_problem problem = kernel_call_problem(backend, call);
  if (!hopper_takes(&problem))
    return error_set(error, STATUS_UNSUPPORTED, "no kernel for this product");
  struct hopper_config config = hopper_of(variant);
  struct hopper_product product = kernel_call_rows(call);
  cudaError_t result = hopper_launch(call->stream, &config, &product, call->follows);
  return runtime_check(result, "computing a product", error);
}

const struct kernel_family hopper_kernels = {
    .variants = &hopper_family,
    .predict = hopper_predict,
    .candidates = hopper_list,
    .lists_last = true,
    .neighbours = hopper_neighbours,
    .check = hopper_check,
    .launch = launch,
    .writes_rows = true,
    .kernels = {kernel_of_hopper},
};
