#include "../../call.h"
#include "../../table.h"
#include "launch.h"

const struct variant_family grouped_int4_family = {
    .name = "grouped_int4",
    .count = 1,
    .parameters = {{"rows", "rows of x in a tile", 1, GROUPED_INT4_COLUMNS, 1, 8}},
};

static struct variant variant_of(int rows) {
  return (struct variant){.family = &grouped_int4_family, .values = {rows}};
}

static int rows_of(const struct kernel_problem *problem) {
  struct int4_form form = int4_form_of(problem->format, problem->scale);
  return grouped_int4_rows(&form, grouped_int4_splits(problem->x_type), problem->k);
}

static bool predict(const struct kernel_problem *problem, struct variant *out, double *us) {
  if (!grouped_int4_takes(problem))
    return false;
  int rows = rows_of(problem);
  *out = variant_of(rows);
  *us = grouped_int4_us(problem, rows);
  double narrow = grouped_int4_us(problem, GROUPED_INT4_NARROW);
  if (rows > GROUPED_INT4_NARROW && narrow < *us)
    *out = variant_of(GROUPED_INT4_NARROW), *us = narrow;
  return true;
}

static int list(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out, int count,
                int most) {
  if (!grouped_int4_takes(problem))
    return count;
  for (int rows = rows_of(problem); rows > 0 && count < most; rows /= 2)
    out[count++] = variant_of(rows);
  return count;
}

static enum status check(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                         struct variant *nearest, struct error *error) {
  if (!grouped_int4_takes(problem))
    return error_set(error, STATUS_UNSUPPORTED,
                     "family grouped_int4 takes experts of INT4, MXFP4 and NVFP4 in tiles, on compute capability 9.0");
  int rows = rows_of(problem);
  if (variant->values[0] <= rows)
    return STATUS_OK;
  if (nearest)
    *nearest = variant_of(rows);
  return error_set(error, STATUS_UNSUPPORTED, "so many rows of x do not fit into shared memory");
}

/* Tiles are the route's, however many rows the variant would like. */
static enum status launch(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                          struct error *error) {
  struct kernel_problem problem = kernel_call_problem(backend, call);
  const struct backend_weight *weight = call->weight;
  const struct int4_form form = int4_form_of(weight->weight.format, weight->weight.scale);
  struct grouped_int4_plan plan;
  if (!grouped_int4_takes(&problem) ||
      !grouped_int4_plan_for(&form, call->groups->tile_rows, grouped_int4_splits(call->x_type), problem.k, &plan))
    return error_set(error, STATUS_UNSUPPORTED, "no kernel for this product");
  const struct tiles_product product = kernel_call_tiles(call);
  cudaError_t result =
      grouped_int4_launch(call->stream, &form, &plan, &product, backend->gpu.multiprocessors, call->follows);
  return runtime_check(result, "computing a product over experts", error);
}

const struct kernel_family grouped_int4_kernels = {
    .variants = &grouped_int4_family,
    .predict = predict,
    .candidates = list,
    .check = check,
    .launch = launch,
    .experts = true,
};
