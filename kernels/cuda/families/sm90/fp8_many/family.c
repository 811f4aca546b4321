#include "../../../runtime/tensor_map.h"
#include "../../call.h"
#include "../../table.h"
#include "../hopper/config.h"
#include "config.h"
#include "launch.h"

const struct variant_family fp8_many_family = {
    .name = "fp8_many",
    .count = 4,
    .parameters =
        {
            {"rows", "of W in a tile", 128, 256, 64, 128},
            {"columns", "rows of x in a tile", 80, 128, 8, 128},
            {"split_k", "blocks that share K", 1, FP8_MANY_SPLIT_MOST, 1, 1},
            {"group", "tiles of x for the same rows of W", 1, 64, 1, 16},
        },
};

static struct fp8_many_config config_of(const struct variant *variant) {
  return (struct fp8_many_config){.rows = variant->values[0],
                                  .columns = variant->values[1],
                                  .split_k = variant->values[2],
                                  .group = variant->values[3]};
}

static struct variant variant_of(const struct fp8_many_config *config) {
  return (struct variant){.family = &fp8_many_family,
                          .values = {config->rows, config->columns, config->split_k, config->group}};
}

/* Up to 128 rows of x and y in bf16 it stands behind the kernel for fewer rows where both models say the same, also
 * where the library is about as fast as either. */
static bool predict(const struct kernel_problem *problem, struct variant *out, double *us) {
  enum { FEWER_ROWS = 128 };
  if (!fp8_many_takes(problem))
    return false;
  struct fp8_many_config config = fp8_many_configure(problem, us);
  *out = variant_of(&config);
  if (problem->m > FEWER_ROWS || problem->y_type != GEMM_BF16 || problem->format == GEMM_FORMAT_INT2A8)
    return true;
  const struct hopper_config fewer = hopper_configure(problem);
  return *us < hopper_us(&fewer, problem);
}

static int list(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out, int count,
                int most) {
  struct fp8_many_config configs[FP8_MANY_ALL];
  if (!fp8_many_takes(problem))
    return count;
  int found = fp8_many_candidates(problem, all, configs, most - count);
  for (int i = 0; i < found && count < most; i++)
    out[count++] = variant_of(&configs[i]);
  return count;
}

static enum status check(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                         struct variant *nearest, struct error *error) {
  struct fp8_many_config config = config_of(variant);
  struct fp8_many_plan plan;
  double us;
  if (!fp8_many_takes(problem))
    return error_set(
        error, STATUS_UNSUPPORTED,
        "family fp8_many takes FP8 with one scale or one a row and 128 rows of W or more, INT8, and INT2A8, with more "
        "than 64 rows of x, on compute capability 9.0");
  if (fp8_many_plan_for(&config, problem, &plan))
    return STATUS_OK;
  if (nearest) {
    config = fp8_many_configure(problem, &us);
    *nearest = variant_of(&config);
  }
  return error_set(error, STATUS_UNSUPPORTED,
                   "no such kernel for this product: 192 and 256 rows take no INT2A8, and bf16 y of FP8, 256 no "
                   "split_k; what clusters of split_k blocks share is no more than a tile for each");
}

static enum status launch(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                          struct error *error) {
  struct kernel_problem problem = kernel_call_problem(backend, call);
  struct fp8_many_config config = config_of(variant);
  struct fp8_many_plan plan;
  CUtensorMap w, x;
  bool tiled = problem.format == GEMM_FORMAT_INT2A8 && problem.tiled;
  if ((problem.format != GEMM_FORMAT_FP8 && problem.format != GEMM_FORMAT_INT8 && !tiled) ||
      problem.scale == GEMM_SCALE_BLOCK || problem.y_type == GEMM_S32 || !fp8_many_plan_for(&config, &problem, &plan))
    return error_set(error, STATUS_UNSUPPORTED, "no kernel for this product");
  struct hopper_product product = kernel_call_rows(call);
  enum status status = STATUS_OK;
  if (tiled)
    product.w_scale = NULL; /* they lie in the tiles */
  else
    status =
        tensor_map_make(backend->driver, product.w, product.n, product.k, product.w_stride, config.rows, &w, error);
  if (status == STATUS_OK)
    status = tensor_map_make(backend->driver, product.x, product.m, kernel_call_x_bytes(call), product.x_stride,
                             plan.columns, &x, error);
  if (status != STATUS_OK)
    return status;
  cudaError_t result = fp8_many_launch(call->stream, &config, &plan, &product, tiled ? NULL : &w, &x, call->follows);
  return runtime_check(result, "computing a product", error);
}

const struct kernel_family fp8_many_kernels = {
    .variants = &fp8_many_family,
    .predict = predict,
    .candidates = list,
    .check = check,
    .launch = launch,
    .writes_rows = true,
};
