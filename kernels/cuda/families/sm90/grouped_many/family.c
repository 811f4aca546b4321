#include "../../../runtime/tensor_map.h"
#include "../../call.h"
#include "../../table.h"
#include "config.h"
#include "launch.h"

const struct variant_family grouped_many_family = {
    .name = "grouped_many",
    .count = 1,
    .parameters = {{"columns", "rows of x in a tile", GROUPED_MANY_COLUMNS_LEAST, GROUPED_MANY_COLUMNS, 16,
                    GROUPED_MANY_COLUMNS}},
};

static struct variant variant_of(int columns) {
  return (struct variant){.family = &grouped_many_family, .values = {columns}};
}

static bool predict(const struct kernel_problem *problem, struct variant *out, double *us) {
  if (!grouped_many_takes(problem))
    return false;
  *out = variant_of(grouped_many_columns(problem));
  *us = grouped_many_us(problem);
  return true;
}

static int list(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out, int count,
                int most) {
  static const int columns[] = {GROUPED_MANY_COLUMNS, 128, GROUPED_MANY_COLUMNS_LEAST};
  if (!grouped_many_takes(problem))
    return count;
  for (size_t i = 0; i < sizeof columns / sizeof *columns && count < most; i++)
    out[count++] = variant_of(columns[i]);
  return count;
}

static enum status check(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                         struct variant *nearest, struct error *error) {
  if (!grouped_many_takes(problem))
    return error_set(error, STATUS_UNSUPPORTED,
                     "family grouped_many takes experts of INT8 and FP8 without blocks' scales, with y of 16 bits, on "
                     "compute capability 9.0");
  return STATUS_OK;
}

/* Tiles are the route's, however many rows the variant would like. */
static enum status launch(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                          struct error *error) {
  struct kernel_problem problem = kernel_call_problem(backend, call);
  if (!grouped_many_takes(&problem) || call->groups->tile_rows > GROUPED_MANY_COLUMNS)
    return error_set(error, STATUS_UNSUPPORTED, "no kernel for this product");
  const struct hopper_product product = kernel_call_rows(call);
  int64_t rows = product.n * product.experts, x_rows = call->m + GROUPED_MANY_COLUMNS;
  CUtensorMap w, x[GROUPED_MANY_BOXES];
  enum status status =
      tensor_map_make(backend->driver, call->weight->codes, rows, product.k, product.k, GROUPED_MANY_ROWS, &w, error);
  for (int i = 0; i < GROUPED_MANY_BOXES && status == STATUS_OK; i++)
    status = tensor_map_make(backend->driver, call->x, x_rows, product.k, (int64_t)call->x_stride, GROUPED_MANY_BOX(i),
                             &x[i], error);
  if (status != STATUS_OK)
    return status;
  cudaError_t result = grouped_many_launch(call->stream, call->groups->tile_rows, &product, &w, x,
                                           problem.device.multiprocessors, call->follows);
  return runtime_check(result, "computing a product over experts", error);
}

const struct kernel_family grouped_many_kernels = {
    .variants = &grouped_many_family,
    .predict = predict,
    .candidates = list,
    .check = check,
    .launch = launch,
    .experts = true,
};
