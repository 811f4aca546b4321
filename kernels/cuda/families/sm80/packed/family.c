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

#define PARAMETERS                                                                                                     \
  {                                                                                                                    \
    {"units", "of 16 rows of W a warp", 1, SM80_PACKED_UNITS_MOST, 1, 2},                                              \
        {"n_warps", "that share what they read of x", 1, SM80_PACKED_WARPS_MOST, 1, 4},                                \
        {"k_warps", "such teams of a block, which share K", 1, SM80_PACKED_WARPS_MOST, 1, 2},                          \
        {"blocks", "that share all steps of K of all rows of W", 1, SM80_PACKED_BLOCKS_MOST, 1, 132},                  \
  }

const struct variant_family sm80_int2_family = {.name = "sm80_int2", .count = 4, .parameters = PARAMETERS};
const struct variant_family sm80_int4_family = {.name = "sm80_int4", .count = 4, .parameters = PARAMETERS};

static const struct variant_family *family_of(const struct kernel_problem *problem) {
  return gemm_is_int2(problem->format) ? &sm80_int2_family : &sm80_int4_family;
}

static struct sm80_packed_config config_of(const struct variant *variant) {
  const int32_t *values = variant->values;
  return (struct sm80_packed_config){
      .units = values[0], .n_warps = values[1], .k_warps = values[2], .blocks = values[3]};
}

static struct variant variant_of(const struct kernel_problem *problem, const struct sm80_packed_config *config) {
  return (struct variant){.family = family_of(problem),
                          .values = {config->units, config->n_warps, config->k_warps, config->blocks}};
}

static bool takes(const struct variant_family *family, const struct kernel_problem *problem) {
  return sm80_packed_takes(problem) && family == family_of(problem);
}

/* Hopper's own instructions are faster in all sizes. */
static bool predict(const struct variant_family *family, const struct kernel_problem *problem, struct variant *out,
                    double *us) {
  struct sm80_packed_config config;
  if (problem->device.capability == 90 || !takes(family, problem) || sm80_packed_candidates(problem, &config, 1) < 1)
    return false;
  *out = variant_of(problem, &config);
  *us = sm80_packed_us(&config, problem);
  return true;
}

static int list(const struct variant_family *family, const struct kernel_problem *problem, bool all,
                struct variant *out, int count, int most) {
  struct sm80_packed_config configs[BEST_OF_ALL];
  bool beside = problem->device.capability == 90 && !all;
  if (!takes(family, problem) || problem->m > (beside ? BESIDE_ROWS : ROWS_LISTED))
    return count;
  int room = most - count, wanted = all ? BEST_OF_ALL : beside ? BEST_BESIDE : BEST_MOST;
  int found = sm80_packed_candidates(problem, configs, room < wanted ? room : wanted);
  for (int i = 0; i < found; i++)
    out[count++] = variant_of(problem, &configs[i]);
  return count;
}

static enum status check(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                         struct variant *nearest, struct error *error) {
  struct sm80_packed_config config = config_of(variant), close;
  if (!takes(variant->family, problem))
    return error_set(error, STATUS_UNSUPPORTED, "family %s takes %s, without experts", variant->family->name,
                     variant->family == &sm80_int2_family ? "INT2 of 128 rows or more and INT2A8"
                                                          : "INT4, MXFP4 and NVFP4 in tiles");
  if (sm80_packed_fits(&config, problem))
    return STATUS_OK;
  if (nearest && sm80_packed_candidates(problem, &close, 1) > 0)
    *nearest = variant_of(problem, &close);
  return error_set(
      error, STATUS_UNSUPPORTED,
      "n_warps * k_warps is at most 16, or 12 or 8 with many rows and units; units are 2, or of INT2 with x of 16 bits "
      "4 with up to 32 rows, else 1 or, with f16 x and one team of 4 to 8 warps, 4; two turns of each team and its "
      "sums "
      "fit into shared memory, sums of parts of K into the workspace; and each block has a step");
}

static void needs(struct backend *backend, const struct kernel_problem *problem, const struct variant *variant,
                  struct backend_needs *out) {
  struct sm80_packed_config config = config_of(variant);
  int64_t most = sm80_packed_rows_most(problem), m = problem->m < most ? problem->m : most;
  struct sm80_packed_plan plan;
  if (sm80_packed_plan_for(&config, problem, m, &plan))
    out->workspace_bytes = sm80_packed_parts_bytes(&plan, m);
}

static enum status launch(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                          struct error *error) {
  struct kernel_problem problem = kernel_call_problem(backend, call);
  struct sm80_packed_config config = config_of(variant);
  problem.m = call->m;
  if (!sm80_packed_takes(&problem) || !sm80_packed_fits(&config, &problem))
    return error_set(error, STATUS_UNSUPPORTED, "no kernel for this product");
  struct tiles_product product = kernel_call_tiles(call);
  product.sums = call->workspace;
  struct sm80_packed_plan plan;
  int64_t most = sm80_packed_rows_most(&problem);
  bool early = problem.device.capability >= 90;
  cudaError_t result = cudaSuccess;
  for (int64_t row = 0; row < call->m && result == cudaSuccess; row += most) {
    const struct tiles_product part = kernel_call_part(&product, row, most);
    if (!sm80_packed_plan_for(&config, &problem, part.m, &plan))
      result = cudaErrorInvalidConfiguration;
    else
      result = sm80_packed_launch(call->stream, &config, &plan, &part, call->follows || (early && row > 0), early);
  }
  return runtime_check(result, "computing a product", error);
}

#define ROW(name)                                                                                                      \
  static bool predict_##name(const struct kernel_problem *problem, struct variant *out, double *us) {                  \
    return predict(&name##_family, problem, out, us);                                                                  \
  }                                                                                                                    \
  static int list_##name(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out, \
                         int count, int most) {                                                                        \
    return list(&name##_family, problem, all, out, count, most);                                                       \
  }                                                                                                                    \
  const struct kernel_family name##_kernels = {                                                                        \
      .variants = &name##_family,                                                                                      \
      .predict = predict_##name,                                                                                       \
      .candidates = list_##name,                                                                                       \
      .check = check,                                                                                                  \
      .needs = needs,                                                                                                  \
      .launch = launch,                                                                                                \
  };

ROW(sm80_int2)
ROW(sm80_int4)
