#include "../../call.h"
#include "../../table.h"
#include "../int2_few/config.h"
#include "launch.h"

const struct variant_family grouped_int2_family = {
    .name = "grouped_int2",
    .count = 1,
    .parameters = {{"rows", "rows of x in a tile", 1, 8, 1, 8}},
};

static struct variant variant_of(int rows) {
  return (struct variant){.family = &grouped_int2_family, .values = {rows}};
}

static bool splits_of(const struct kernel_problem *problem) {
  return int2_few_splits(problem->x_type, problem->y_type);
}

static bool predict(const struct kernel_problem *problem, struct variant *out, double *us) {
  if (!grouped_int2_takes(problem))
    return false;
  *out = variant_of(grouped_int2_rows_for(problem));
  *us = grouped_int2_us(problem);
  return true;
}

static int list(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out, int count,
                int most) {
  if (!grouped_int2_takes(problem))
    return count;
  for (int rows = grouped_int2_rows(splits_of(problem), problem->k); rows > 0 && count < most; rows /= 2)
    out[count++] = variant_of(rows);
  return count;
}

static enum status check(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                         struct variant *nearest, struct error *error) {
  struct grouped_int2_plan plan;
  if (!grouped_int2_takes(problem))
    return error_set(error, STATUS_UNSUPPORTED,
                     "family grouped_int2 takes experts of INT2 in tiles, on "
                     "compute capability 9.0");
  if (grouped_int2_plan_for(variant->values[0], splits_of(problem), problem->k, &plan))
    return STATUS_OK;
  if (nearest)
    *nearest = variant_of(grouped_int2_rows_for(problem));
  return error_set(error, STATUS_UNSUPPORTED, "so many rows of x do not fit into shared memory");
}

static enum status launch(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                          struct error *error) {
  struct kernel_problem problem = kernel_call_problem(backend, call);
  struct grouped_int2_plan plan;
  if (!grouped_int2_takes(&problem) ||
      !grouped_int2_plan_for(call->groups->tile_rows, splits_of(&problem), problem.k, &plan))
    return error_set(error, STATUS_UNSUPPORTED, "no kernel for this product");
  const struct tiles_product product = kernel_call_tiles(call);
  cudaError_t result = grouped_int2_launch(call->stream, &plan, &product, backend->gpu.multiprocessors, call->follows);
  return runtime_check(result, "computing a product over experts", error);
}

const struct kernel_family grouped_int2_kernels = {
    .variants = &grouped_int2_family,
    .predict = predict,
    .candidates = list,
    .check = check,
    .launch = launch,
    .experts = true,
};
