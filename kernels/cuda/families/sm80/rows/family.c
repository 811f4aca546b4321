#include "../../call.h"
#include "../../table.h"
#include "launch.h"

enum {
  BEST_MOST = 8,     /* of the cost model's guesses */
  ROWS_OFFERED = 64, /* of x, where the library has a kernel, too */
};

const struct variant_family sm80_rows_family = {
    .name = "sm80_rows",
    .count = 3,
    .parameters =
        {
            {"columns", "rows of x a tile: 16, 32, 64 or 128", 16, 128, 16, 128},
            {"rows", "of W a tile: 64, 128 or 256, not all with all columns", 64, 256, 64, 256},
            {"blocks", "that share all steps of K of all tiles", 1, SM80_ROWS_BLOCKS_MOST, 1, 132},
        },
};

static struct sm80_rows_config config_of(const struct variant *variant) {
  const int32_t *values = variant->values;
  return (struct sm80_rows_config){.columns = values[0], .rows = values[1], .blocks = values[2]};
}

static struct variant variant_of(const struct sm80_rows_config *config) {
  return (struct variant){.family = &sm80_rows_family, .values = {config->columns, config->rows, config->blocks}};
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
  struct sm80_rows_config configs[SM80_ROWS_CONFIGS];
  bool asked = problem->device.capability != 90 || all;
  if (!asked || !sm80_rows_takes(problem))
    return count;
  int room = most - count, wanted = all ? SM80_ROWS_CONFIGS : BEST_MOST;
  int found = sm80_rows_candidates(problem, configs, room < wanted ? room : wanted);
  for (int i = 0; i < found; i++)
    out[count++] = variant_of(&configs[i]);
  return count;
}

static enum status check(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                         struct variant *nearest, struct error *error) {
  struct sm80_rows_config config = config_of(variant), close;
  struct sm80_rows_plan plan;
  if (!sm80_rows_takes(problem))
    return error_set(error, STATUS_UNSUPPORTED, "family sm80_rows takes INT8 and FP8 with one scale or one a row");
  if (sm80_rows_plan_for(&config, problem, &plan))
    return STATUS_OK;
  if (nearest && sm80_rows_candidates(problem, &close, 1) > 0)
    *nearest = variant_of(&close);
  return error_set(error, STATUS_UNSUPPORTED,
                   "columns x rows is 64 or 128 x 64, 16, 32 or 128 x 128, 64 or 128 x 256, of FP8 16, 32 or 128 "
                   "x 128, 64 x 64 or 64 x 256; blocks are no more than steps of K, two of which fit into shared "
                   "memory, and sums of parts into the workspace");
}

static void needs(struct backend *backend, const struct kernel_problem *problem, const struct variant *variant,
                  struct backend_needs *out) {
  struct sm80_rows_config config = config_of(variant);
  struct sm80_rows_plan plan;
  if (sm80_rows_plan_for(&config, problem, &plan))
    out->workspace_bytes = sm80_rows_parts_bytes(&config, &plan);
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
};
