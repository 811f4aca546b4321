#include "../call.h"
#include "../table.h"
#include "config.h"
#include "launch.h"

const struct variant_family few_family = {
    .name = "few",
    .count = 2,
    .parameters =
        {
            {"k_warps", "of 16 that share K", 1, 16, 1, 16},
            {"rows", "of W in a tile", 2, 256, 2, 16},
        },
};

static struct few_config config_of(const struct variant *variant) {
  return (struct few_config){.k_warps = variant->values[0], .rows = variant->values[1]};
}

static struct variant variant_of(const struct few_config *config) {
  return (struct variant){.family = &few_family, .values = {config->k_warps, config->rows}};
}

/* Hopper's own instructions are faster, but for FP8 rows that are too short for them. Devices before it have INT8
 * alone. */
static bool predict(const struct kernel_problem *problem, struct variant *out, double *us) {
  if ((problem->device.capability == 90 && !kernel_problem_cancels(problem)) || !few_takes(problem))
    return false;
  struct few_config config = few_configure(problem);
  *out = variant_of(&config);
  *us = few_us(&config, problem);
  return true;
}

static int list(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out, int count,
                int most) {
  enum { BEST = 8 };
  struct few_config configs[FEW_CONFIGS];
  int room = most - count;
  if (room == 0 || !few_takes(problem))
    return count;
  int found = few_candidates(problem, configs, !all && room > BEST ? BEST : room);
  for (int i = 0; i < found; i++)
    out[count++] = variant_of(&configs[i]);
  return count;
}

static enum status check(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                         struct variant *nearest, struct error *error) {
  struct few_config config = config_of(variant);
  if (!few_takes(problem))
    return error_set(error, STATUS_UNSUPPORTED,
                     "family few takes INT8, and FP8 on compute capability 9.0, with one scale or one a row and up to "
                     "%d rows of x that fit into shared memory",
                     FEW_COLUMNS_MOST);
  if (few_config_valid(&config))
    return STATUS_OK;
  if (nearest) {
    struct few_config close = few_configure(problem);
    *nearest = variant_of(&close);
  }
  return error_set(error, STATUS_UNSUPPORTED, "k_warps is a power of two, rows an even number up to %d / k_warps",
                   FEW_ROWS * FEW_WARPS);
}

static enum status launch(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                          struct error *error) {
  struct kernel_problem problem = kernel_call_problem(backend, call);
  if (!few_takes(&problem))
    return error_set(error, STATUS_UNSUPPORTED, "no kernel for this product");
  struct few_config config = config_of(variant);
  struct hopper_product product = kernel_call_rows(call);
  cudaError_t result = few_launch(call->stream, &config, &product, problem.device.multiprocessors, call->follows);
  return runtime_check(result, "computing a product", error);
}

const struct kernel_family few_kernels = {
    .variants = &few_family,
    .predict = predict,
    .candidates = list,
    .check = check,
    .launch = launch,
    .writes_rows = true,
};
