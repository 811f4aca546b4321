#include "../../../runtime/tensor_map.h"
#include "../../call.h"
#include "../../table.h"
#include "launch.h"

#include <math.h>

const struct variant_family grouped_int2_many_family = {
    .name = "grouped_int2_many",
    .count = 1,
    .parameters = {{"columns", "rows of x in a tile", 32, GROUPED_INT2_MANY_COLUMNS_MOST, 32, 32}},
};

static struct variant variant_of(int columns) {
  return (struct variant){.family = &grouped_int2_many_family, .values = {columns}};
}

static bool predict(const struct kernel_problem *problem, struct variant *out, double *us) {
  const int *columns = grouped_int2_many_columns(kernel_problem_x_type(problem));
  if (!grouped_int2_many_takes(problem))
    return false;
  *us = INFINITY;
  for (int i = 0; columns[i] > 0; i++) {
    double would = grouped_int2_many_us(problem, columns[i]);
    if (would < *us)
      *us = would, *out = variant_of(columns[i]);
  }
  return true;
}

static int list(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out, int count,
                int most) {
  const int *columns = grouped_int2_many_columns(kernel_problem_x_type(problem));
  if (!grouped_int2_many_takes(problem))
    return count;
  for (int i = 0; columns[i] > 0 && count < most; i++)
    out[count++] = variant_of(columns[i]);
  return count;
}

static enum status check(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                         struct variant *nearest, struct error *error) {
  if (!grouped_int2_many_takes(problem))
    return error_set(error, STATUS_UNSUPPORTED,
                     "family grouped_int2_many takes experts of INT2 in tiles, x and y of 16 bits, and of INT2A8, on "
                     "compute capability 9.0");
  int columns = grouped_int2_many_columns_for(kernel_problem_x_type(problem), variant->values[0]);
  if (columns == variant->values[0])
    return STATUS_OK;
  if (nearest)
    *nearest = variant_of(columns);
  return error_set(error, STATUS_UNSUPPORTED, "there is no such kernel");
}

/* Tiles are the route's, however many rows the variant would like. */
static enum status launch(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                          struct error *error) {
  struct kernel_problem problem = kernel_call_problem(backend, call);
  if (!grouped_int2_many_takes(&problem))
    return error_set(error, STATUS_UNSUPPORTED, "no kernel for this product");
  int columns = grouped_int2_many_columns_for(kernel_problem_x_type(&problem), call->groups->tile_rows);
  if (call->groups->tile_rows > columns)
    return error_set(error, STATUS_UNSUPPORTED, "no kernel for such tiles");
  const struct tiles_product product = kernel_call_tiles(call);
  CUtensorMap x[GROUPED_INT2_MANY_BOXES];
  enum status status = STATUS_OK;
  for (int i = 0; i < GROUPED_INT2_MANY_BOXES && status == STATUS_OK; i++)
    status = tensor_map_make(backend->driver, call->x, call->m, kernel_call_x_bytes(call), (int64_t)call->x_stride,
                             GROUPED_INT2_MANY_BOX(i), &x[i], error);
  if (status != STATUS_OK)
    return status;
  cudaError_t result =
      grouped_int2_many_launch(call->stream, columns, &product, x, problem.device.multiprocessors, call->follows);
  return runtime_check(result, "computing a product over experts", error);
}

const struct kernel_family grouped_int2_many_kernels = {
    .variants = &grouped_int2_many_family,
    .predict = predict,
    .candidates = list,
    .check = check,
    .launch = launch,
    .experts = true,
};
