#include "../../call.h"
#include "../../table.h"
#include "launch.h"

enum {
  BEST_MOST = 8,     /* of the cost model's guesses */
  BEST_OF_ALL = 64,  /* where everything is asked for */
  BEST_BESIDE = 2,   /* beside Hopper's own, whose slices of K are too few for a W of few rows */
  BESIDE_ROWS = 64,  /* of x, up to which that may be */
  ROWS_LISTED = 512, /* rows of x beyond which a search leaves them out: so many goes are no news */
};

const struct variant_family sm80_int2_family = {
    .name = "sm80_int2",
    .count = 4,
    .parameters =
        {
            {"units", "of 16 rows of W a warp", 1, SM80_INT2_UNITS_MOST, 1, 2},
            {"n_warps", "that share what they read of x", 1, SM80_INT2_WARPS_MOST, 1, 4},
            {"k_warps", "such teams of a block, which share K", 1, SM80_INT2_WARPS_MOST, 1, 2},
            {"blocks", "that share all steps of K of all rows of W", 1, SM80_INT2_BLOCKS_MOST, 1, 132},
        },
};

static struct sm80_int2_config config_of(const struct variant *variant) {
  const int32_t *values = variant->values;
  return (struct sm80_int2_config){.units = values[0], .n_warps = values[1], .k_warps = values[2], .blocks = values[3]};
}

static struct variant variant_of(const struct sm80_int2_config *config) {
  return (struct variant){.family = &sm80_int2_family,
                          .values = {config->units, config->n_warps, config->k_warps, config->blocks}};
}

/* Hopper's own instructions are faster in all sizes. */
static bool predict(const struct kernel_problem *problem, struct variant *out, double *us) {
  struct sm80_int2_config config;
  if (problem->device.capability == 90 || !sm80_int2_takes(problem) || sm80_int2_candidates(problem, &config, 1) < 1)
    return false;
  *out = variant_of(&config);
  *us = sm80_int2_us(&config, problem);
  return true;
}

static int list(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out, int count,
                int most) {
  struct sm80_int2_config configs[BEST_OF_ALL];
  (void)backend;
  bool beside = problem->device.capability == 90 && !all;
  if (!sm80_int2_takes(problem) || problem->m > (beside ? BESIDE_ROWS : ROWS_LISTED))
    return count;
  int room = most - count, wanted = all ? BEST_OF_ALL : beside ? BEST_BESIDE : BEST_MOST;
  int found = sm80_int2_candidates(problem, configs, room < wanted ? room : wanted);
  for (int i = 0; i < found; i++)
    out[count++] = variant_of(&configs[i]);
  return count;
}

static enum status check(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                         struct variant *nearest, struct error *error) {
  struct sm80_int2_config config = config_of(variant), close;
  (void)backend;
  if (!sm80_int2_takes(problem))
    return error_set(error, STATUS_UNSUPPORTED,
                     "family sm80_int2 takes INT2 of 128 rows or more and INT2A8, without experts");
  if (sm80_int2_fits(&config, problem))
    return STATUS_OK;
  if (nearest && sm80_int2_candidates(problem, &close, 1) > 0)
    *nearest = variant_of(&close);
  return error_set(
      error, STATUS_UNSUPPORTED,
      "n_warps * k_warps is at most 16, with more than 16 rows of x 12, with more than 32 and 2 units 8; "
      "units are 2, or 4 with up to 8 rows, or 1 with more than 32, of f32 2 alone; two turns of each team "
      "and its sums fit into shared memory, sums of parts of K into the workspace; and each block has a step");
}

static void needs(struct backend *backend, const struct kernel_problem *problem, const struct variant *variant,
                  struct backend_needs *out) {
  struct sm80_int2_config config = config_of(variant);
  (void)backend;
  int64_t most = sm80_int2_rows_most(problem), m = problem->m < most ? problem->m : most;
  struct sm80_int2_plan plan;
  if (sm80_int2_plan_for(&config, problem, m, &plan))
    out->workspace_bytes = sm80_int2_parts_bytes(&plan, m);
}

static struct sm80_int2_product product_of(const struct kernel_call *call, const struct kernel_problem *problem) {
  const struct backend_weight *weight = call->weight;
  return (struct sm80_int2_product){
      .n = weight->weight.n,
      .k = weight->layout.k,
      .tiles = weight->codes,
      .x_type = sm80_int2_x_type(problem),
      .x_stride = (int64_t)call->x_stride,
      .bias = call->bias,
      .bias_type = call->bias_type,
      .y_type = call->y_type,
      .y_stride = call->y_stride,
      .parts = call->workspace,
  };
}

static enum status launch(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                          struct error *error) {
  struct kernel_problem problem = kernel_call_problem(backend, call);
  struct sm80_int2_config config = config_of(variant);
  problem.m = call->m;
  if (!sm80_int2_takes(&problem) || !sm80_int2_fits(&config, &problem))
    return error_set(error, STATUS_UNSUPPORTED, "no kernel for this product");
  struct sm80_int2_product product = product_of(call, &problem);
  struct sm80_int2_plan plan;
  const uint8_t *x = call->x;
  uint8_t *y = call->y;
  int64_t most = sm80_int2_rows_most(&problem);
  bool early = problem.device.capability >= 90;
  cudaError_t result = cudaSuccess;
  for (int64_t row = 0; row < call->m && result == cudaSuccess; row += product.m) {
    product.m = call->m - row < most ? call->m - row : most;
    product.x = x + row * product.x_stride;
    product.x_scale = call->x_scale ? call->x_scale + row : NULL;
    product.y = y + (uint64_t)row * product.y_stride;
    if (!sm80_int2_plan_for(&config, &problem, product.m, &plan))
      result = cudaErrorInvalidConfiguration;
    else
      result = sm80_int2_launch(call->stream, &config, &plan, &product, call->follows || (early && row > 0), early);
  }
  return runtime_check(result, "computing a product", error);
}

const struct kernel_family sm80_int2_kernels = {
    .variants = &sm80_int2_family,
    .predict = predict,
    .candidates = list,
    .check = check,
    .needs = needs,
    .launch = launch,
    .kernels = {kernel_of_sm80_int2},
};
