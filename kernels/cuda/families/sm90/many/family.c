#include "../../../runtime/tensor_map.h"
#include "../../call.h"
#include "../../table.h"
#include "launch.h"
#include "variants.h"

/* A product that comes in several goes has fewer rows in each than the one that a variant was chosen for. */
static enum status launch(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                          struct error *error) {
  struct kernel_problem problem = kernel_call_problem(backend, call);
  if (!many_takes(&problem))
    return error_set(error, STATUS_UNSUPPORTED, "no kernel for this product");
  struct many_config config = many_of(variant);
  struct hopper_product product = kernel_call_rows(call);
  CUtensorMap w, x;
  enum status status =
      tensor_map_make(backend->driver, product.w, product.n, product.k, product.w_stride, config.columns, &w, error);
  if (status == STATUS_OK)
    status = tensor_map_make(backend->driver, product.x, product.m, product.k, product.x_stride, MANY_ROWS, &x, error);
  if (status != STATUS_OK)
    return status;
  cudaError_t result = many_launch(call->stream, &config, &product, &w, &x, problem.device.multiprocessors);
  return runtime_check(result, "computing a product", error);
}

const struct kernel_family many_kernels = {
    .variants = &many_family,
    .predict = many_predict,
    .candidates = many_list,
    .check = many_check,
    .launch = launch,
    .writes_rows = true,
    .kernels = {kernel_of_many},
};
