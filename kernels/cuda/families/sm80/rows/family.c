#include "../../call.h"
#include "../../table.h"
#include "launch.h"

enum {
  BEST_MOST = 8,     /* of the cost model's guesses */
  BEST_OF_ALL = 64,  /* where everything is asked for */
  ROWS_OFFERED = 64, /* of x, where the library has a kernel, too */
};

const struct variant_family sm80_rows_family = {
    .name = "sm80_rows",
    .count = 4,
    .parameters =
        {
            {"columns", "rows of x a tile: a power of two", 16, SM80_ROWS_COLUMNS_MOST, 16, 64},
            {"n_warps", "of 32 rows of W, that share what they read of x", 1, SM80_ROWS_WARPS_MOST, 1, 4},
            {"k_warps", "such teams of a block, which share K", 1, SM80_ROWS_WARPS_MOST, 1, 2},
            {"split_k", "blocks that share K", 1, SM80_ROWS_SPLIT_MOST, 1, 1},
        },
};

static struct sm80_rows_config config_of(const struct variant *variant) {
  const int32_t *values = variant->values;
  return (struct sm80_rows_config){
      .columns = values[0], .n_warps = values[1], .k_warps = values[2], .split_k = values[3]};
}

static struct variant variant_of(const struct sm80_rows_config *config) {
  return (struct variant){.family = &sm80_rows_family,
                          .values = {config->columns, config->n_warps, config->k_warps, config->split_k}};
}

/* Hopper's own instructions are faster in all sizes, and so is the library with INT8, on an H200: tuning may find
 * otherwise elsewhere. FP8 is left to the library where y is bf16, on devices that have it, for many rows. */
static bool offered(const struct kernel_problem *problem) {
  int capability = problem->device.capability;
  bool library = capability >= 89 && problem->y_type == GEMM_BF16;
  return capability != 90 && problem->format == GEMM_FORMAT_FP8 && (!library || problem->m <= ROWS_OFFERED);
}

static bool predict(const struct kernel_problem *problem, struct variant *out, double *us) {
  struct sm80_rows_config config;
  struct sm80_rows_plan plan;
  if (!offered(problem) || !sm80_rows_takes(problem) || sm80_rows_candidates(problem, &config, 1) < 1 ||
      !sm80_rows_plan_for(&config, problem, &plan))
    return false;
  *out = variant_of(&config);
  *us = sm80_rows_us(&config, &plan, problem);
  return true;
}

static int list(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out, int count,
                int most) {
  struct sm80_rows_config configs[BEST_OF_ALL];
  (void)backend;
  bool asked = problem->device.capability != 90 || all;
  if (!asked || !sm80_rows_takes(problem))
    return count;
  int room = most - count, wanted = all ? BEST_OF_ALL : BEST_MOST;
  int found = sm80_rows_candidates(problem, configs, room < wanted ? room : wanted);
  for (int i = 0; i < found; i++)
    out[count++] = variant_of(&configs[i]);
  return count;
}

static enum status check(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                         struct variant *nearest, struct error *error) {
  struct sm80_rows_config config = config_of(variant), close;
  struct sm80_rows_plan plan;
  (void)backend;
  if (!sm80_rows_takes(problem))
    return error_set(error, STATUS_UNSUPPORTED, "family sm80_rows takes INT8 and FP8 with one scale or one a row");
  if (sm80_rows_plan_for(&config, problem, &plan))
    return STATUS_OK;
  if (nearest && sm80_rows_candidates(problem, &close, 1) > 0)
    *nearest = variant_of(&close);
  return error_set(error, STATUS_UNSUPPORTED,
                   "columns is a power of two, FP8's at most 64; n_warps * k_warps is at most 16, with 64 columns 12, "
                   "with 128 8; two steps of each team and its sums fit into shared memory, and sums of slices into "
                   "the workspace");
}

static void needs(struct backend *backend, const struct kernel_problem *problem, const struct variant *variant,
                  struct backend_needs *out) {
  struct sm80_rows_config config = config_of(variant);
  (void)backend;
  out->workspace_bytes = sm80_rows_parts_bytes(&config, problem);
}

static enum status launch(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                          struct error *error) {
  struct kernel_problem problem = kernel_call_problem(backend, call);
  struct sm80_rows_config config = config_of(variant);
  struct sm80_rows_plan plan;
  problem.m = call->m;
  if (!sm80_rows_takes(&problem) || !sm80_rows_plan_for(&config, &problem, &plan))
    return error_set(error, STATUS_UNSUPPORTED, "no kernel for this product");
  struct hopper_product product = kernel_call_rows(call);
  cudaError_t result = sm80_rows_launch(call->stream, &config, &plan, &product, call->workspace, call->follows,
                                        problem.device.capability >= 90);
  return runtime_check(result, "computing a product", error);
}

const struct kernel_family sm80_rows_kernels = {
    .variants = &sm80_rows_family,
    .predict = predict,
    .candidates = list,
    .check = check,
    .needs = needs,
    .launch = launch,
    .writes_rows = true,
    .kernels = {kernel_of_sm80_rows},
};
