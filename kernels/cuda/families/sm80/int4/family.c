#include "../../call.h"
#include "../../table.h"
#include "launch.h"

enum { ROWS_LISTED = 512 /* of x, beyond which a search leaves it out: so many goes are no news */ };

const struct variant_family sm80_int4_family = {
    .name = "sm80_int4",
    .count = 1,
    .parameters = {{"split_k", "blocks that share K: a power of two", 1, SM80_INT4_SPLIT_MOST, 1, 1}},
};

static struct variant variant_of(int split_k) {
  return (struct variant){.family = &sm80_int4_family, .values = {split_k}};
}

static bool fits(const struct kernel_problem *problem, int split_k) {
  struct sm80_int4_plan plan;
  int64_t m = problem->m < SM80_INT4_COLUMNS ? problem->m : SM80_INT4_COLUMNS;
  return (split_k & (split_k - 1)) == 0 && sm80_int4_plan_for(split_k, problem, m, &plan);
}

/* Of powers of two, the fastest by the cost model; 0: none fits. */
static int best(const struct kernel_problem *problem) {
  int out = 0;
  for (int split_k = 1; split_k <= SM80_INT4_SPLIT_MOST; split_k *= 2)
    if (fits(problem, split_k) && (out == 0 || sm80_int4_us(split_k, problem) < sm80_int4_us(out, problem)))
      out = split_k;
  return out;
}

/* Hopper's own instructions are faster in all sizes. */
static bool predict(const struct kernel_problem *problem, struct variant *out, double *us) {
  int split_k = problem->device.capability != 90 && sm80_int4_takes(problem) ? best(problem) : 0;
  if (split_k == 0)
    return false;
  *out = variant_of(split_k);
  *us = sm80_int4_us(split_k, problem);
  return true;
}

static int list(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out, int count,
                int most) {
  (void)backend;
  if (!sm80_int4_takes(problem) || problem->m > ROWS_LISTED || (problem->device.capability == 90 && !all))
    return count;
  for (int split_k = 1; split_k <= SM80_INT4_SPLIT_MOST && count < most; split_k *= 2)
    if (fits(problem, split_k))
      out[count++] = variant_of(split_k);
  return count;
}

static enum status check(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                         struct variant *nearest, struct error *error) {
  (void)backend;
  if (!sm80_int4_takes(problem))
    return error_set(error, STATUS_UNSUPPORTED,
                     "family sm80_int4 takes INT4, MXFP4 and NVFP4 in tiles, without experts");
  if (fits(problem, variant->values[0]))
    return STATUS_OK;
  if (nearest && best(problem) > 0)
    *nearest = variant_of(best(problem));
  return error_set(
      error, STATUS_UNSUPPORTED,
      "split_k is a power of two, no more than a quarter of the tiles of K, and sums of its parts fit into "
      "the workspace");
}

static void needs(struct backend *backend, const struct kernel_problem *problem, const struct variant *variant,
                  struct backend_needs *out) {
  (void)backend;
  int64_t m = problem->m < SM80_INT4_COLUMNS ? problem->m : SM80_INT4_COLUMNS;
  out->workspace_bytes = sm80_int4_parts_bytes(variant->values[0], problem, m);
}

static enum status launch(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                          struct error *error) {
  const struct backend_weight *weight = call->weight;
  struct kernel_problem problem = kernel_call_problem(backend, call);
  problem.m = call->m;
  if (!sm80_int4_takes(&problem) || !fits(&problem, variant->values[0]))
    return error_set(error, STATUS_UNSUPPORTED, "no kernel for this product");
  struct sm80_int4_product product = {
      .n = weight->weight.n,
      .tiles = weight->codes,
      .bf16_scales = gemm_scale_type(&weight->weight) == GEMM_BF16,
      .factors = weight->factors,
      .x_type = call->x_type,
      .x_stride = (int64_t)call->x_stride,
      .bias = call->bias,
      .bias_type = call->bias_type,
      .y_type = call->y_type,
      .y_stride = call->y_stride,
      .parts = call->workspace,
  };
  struct sm80_int4_plan plan;
  bool early = problem.device.capability >= 90;
  cudaError_t result = cudaSuccess;
  for (int64_t row = 0; row < call->m && result == cudaSuccess; row += product.m) {
    product.m = call->m - row < SM80_INT4_COLUMNS ? call->m - row : SM80_INT4_COLUMNS;
    product.x = (const uint8_t *)call->x + row * product.x_stride;
    product.y = (uint8_t *)call->y + (uint64_t)row * product.y_stride;
    if (sm80_int4_plan_for(variant->values[0], &problem, product.m, &plan))
      result = sm80_int4_launch(call->stream, weight->weight.format, &plan, &product,
                                call->follows || (early && row > 0), early);
    else
      result = cudaErrorInvalidConfiguration;
  }
  return runtime_check(result, "computing a product", error);
}

const struct kernel_family sm80_int4_kernels = {
    .variants = &sm80_int4_family,
    .predict = predict,
    .candidates = list,
    .check = check,
    .needs = needs,
    .launch = launch,
    .kernels = {kernel_of_sm80_int4},
};
