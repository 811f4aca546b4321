#include "../../../heuristics/clusters.h"
#include "../../call.h"
#include "../../cublaslt/config.h"
#include "../../table.h"
#include "config.h"
#include "launch.h"

const struct variant_family hopper_family = {
    .name = "hopper",
    .count = 5,
    .parameters =
        {
            {"columns", "rows of x at a time", 8, 128, 8, 8},
            {"groups", "warpgroups, each 64 rows of W", 1, 3, 1, 1},
            {"rows", "of W in a block", 8, 192, 8, 64},
            {"split_k", "blocks that share K", 1, 8, 1, 1},
            {"ahead", "steps of 256 bytes of K under way", 2, 6, 1, 3},
        },
};

static struct hopper_config config_of(const struct variant *variant) {
  const int32_t *values = variant->values;
  return (struct hopper_config){
      .columns = values[0], .groups = values[1], .rows = values[2], .split_k = values[3], .ahead = values[4]};
}

static struct variant variant_of(const struct hopper_config *config) {
  return (struct variant){.family = &hopper_family,
                          .values = {config->columns, config->groups, config->rows, config->split_k, config->ahead}};
}

/* How much longer than its model says the kernel takes where sums leave the tensor cores after every instruction: 1.1
 * to 1.2 times up to 128 rows of x, 1.4 to 1.8 with 256, 2.2 to 2.4 with 1024. */
static double finely(const struct kernel_problem *problem) {
  enum { FEW = 128, MORE = 256 };
  if (problem->format != GEMM_FORMAT_FP8 || problem->y_type == GEMM_BF16)
    return 1;
  return problem->m <= FEW ? 1.15 : problem->m <= MORE ? 1.5 : 2.2;
}

/* What the model foretells of its own pick, which compares with other families'. */
static double usual_us(const struct kernel_problem *problem) {
  struct kernel_problem alone = *problem;
  alone.x_type = GEMM_TYPE_NONE;
  const struct hopper_config usual = hopper_configure(&alone);
  return hopper_us(&usual, problem);
}

/* Up to 128 rows of x; of FP8 any number where y is not rounded to bf16, since cuBLASLt's FP8 meets the contract in
 * bf16 alone. (Its INT8 is exact.) Where what the library takes is known and less, it does not stand in its way. */
static bool predict(const struct kernel_problem *problem, struct variant *out, double *us) {
  enum { ROWS_MOST = 128 };
  bool finer = problem->format == GEMM_FORMAT_FP8 && problem->y_type != GEMM_BF16;
  if ((problem->m > ROWS_MOST && !finer) || !hopper_takes(problem))
    return false;
  struct hopper_config config = hopper_configure(problem);
  double model = usual_us(problem);
  *out = variant_of(&config);
  *us = finely(problem) * model;
  return !library_has_model(problem) || library_us(problem) >= model;
}

static int list(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out, int count,
                int most) {
  struct hopper_config configs[HOPPER_ALL];
  int room = most - count < HOPPER_ALL ? most - count : HOPPER_ALL;
  if (room == 0 || !hopper_takes(problem))
    return count;
  int found = hopper_candidates(problem, all, configs, room);
  for (int i = 0; i < found; i++)
    out[count++] = variant_of(&configs[i]);
  return count;
}

static int neighbours(struct backend *backend, const struct kernel_problem *problem, const struct variant *base,
                      bool all, struct variant *out, int most) {
  struct hopper_config config = config_of(base), near[HOPPER_NEAR];
  int found = hopper_near(&config, problem->scale, near), count = 0;
  for (; count < found && count < most; count++)
    out[count] = variant_of(&near[count]);
  return count;
}

static enum status check(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                         struct variant *nearest, struct error *error) {
  struct hopper_config config = config_of(variant);
  if (!hopper_takes(problem))
    return error_set(error, STATUS_UNSUPPORTED,
                     "family hopper takes INT8 and FP8 of 128 rows or more, on compute capability 9.0");
  if (hopper_config_valid(&config, problem->scale))
    return STATUS_OK;
  if (nearest) {
    struct hopper_config close = hopper_configure(problem);
    *nearest = variant_of(&close);
  }
  return error_set(error, STATUS_UNSUPPORTED,
                   "there is no such kernel, or it needs %d KiB of shared memory where a block has 227",
                   hopper_shared_bytes(&config, problem->scale) / 1024);
}

/* A block a multiprocessor. */
static void needs(struct backend *backend, const struct kernel_problem *problem, const struct variant *variant,
                  struct backend_needs *out) {
  static const int slices[] = {1, 2, 3, 4, 6, 8};
  struct hopper_config config = config_of(variant);
  int64_t tiles = (problem->n + config.rows - 1) / config.rows * ((problem->m + config.columns - 1) / config.columns);
  for (size_t i = 0; i < sizeof slices / sizeof *slices; i++)
    if (i == 0 || (double)(tiles * slices[i]) <= clusters_usable(problem->device.multiprocessors, slices[i]))
      out->filling = (uint32_t)slices[i];
}

static enum status launch(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                          struct error *error) {
  struct kernel_problem problem = kernel_call_problem(backend, call);
  if (!hopper_takes(&problem))
    return error_set(error, STATUS_UNSUPPORTED, "no kernel for this product");
  struct hopper_config config = config_of(variant);
  struct hopper_product product = kernel_call_rows(call);
  struct hopper_start start = hopper_start_of(&config, &problem, call->follows);
  cudaError_t result = hopper_launch(call->stream, &config, &product, &start);
  return runtime_check(result, "computing a product", error);
}

const struct kernel_family hopper_kernels = {
    .variants = &hopper_family,
    .predict = predict,
    .candidates = list,
    .lists_last = true,
    .neighbours = neighbours,
    .check = check,
    .needs = needs,
    .launch = launch,
    .writes_rows = true,
};
