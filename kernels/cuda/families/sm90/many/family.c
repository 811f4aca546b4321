#include "../../../runtime/tensor_map.h"
#include "../../call.h"
#include "../../table.h"
#include "config.h"
#include "launch.h"

const struct variant_family many_family = {
    .name = "many",
    .count = 2,
    .parameters =
        {
            {"columns", "rows of W a tile", 128, 256, 128, 256},
            {"group", "tiles of x for the same rows of W", 1, 64, 1, 16},
        },
};

static struct many_config config_of(const struct variant *variant) {
  return (struct many_config){.columns = variant->values[0], .group = variant->values[1]};
}

static struct variant variant_of(const struct many_config *config) {
  return (struct variant){.family = &many_family, .values = {config->columns, config->group}};
}

/* Where tiles leave many multiprocessors idle, the library cuts up K. */
static bool predict(const struct kernel_problem *problem, struct variant *out, double *us) {
  static const double BUSY_LEAST = 0.6;
  double busy;
  struct many_config config = many_configure(problem, &busy);
  *out = variant_of(&config);
  *us = many_us(&config, problem);
  return many_takes(problem) && busy >= BUSY_LEAST;
}

static int list(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out, int count,
                int most) {
  static const int groups[] = {4, 8, 16, 32};
  struct many_config config;
  if (!many_takes(problem))
    return count;
  for (config.columns = 128; config.columns <= 256; config.columns *= 2)
    for (size_t i = 0; i < sizeof groups / sizeof *groups && count < most; i++) {
      config.group = groups[i];
      out[count++] = variant_of(&config);
    }
  return count;
}

static enum status check(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                         struct variant *nearest, struct error *error) {
  if (many_takes(problem))
    return STATUS_OK;
  return error_set(error, STATUS_UNSUPPORTED,
                   "family many takes INT8, more than 128 rows of x, and y of f32, f16 or bf16, on compute capability "
                   "9.0");
}

/* A product that comes in several goes has fewer rows in each than the one that a variant was chosen for. */
static enum status launch(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                          struct error *error) {
  struct kernel_problem problem = kernel_call_problem(backend, call);
  if (!many_takes(&problem))
    return error_set(error, STATUS_UNSUPPORTED, "no kernel for this product");
  struct many_config config = config_of(variant);
  struct hopper_product product = kernel_call_rows(call);
  CUtensorMap w, x;
  enum status status =
      tensor_map_make(backend->driver, product.w, product.n, product.k, product.w_stride, config.columns, &w, error);
  if (status == STATUS_OK)
    status = tensor_map_make(backend->driver, product.x, product.m, product.k, product.x_stride, MANY_ROWS, &x, error);
  if (status != STATUS_OK)
    return status;
  cudaError_t result = many_launch(call->stream, &config, &product, &w, &x, problem.device.multiprocessors);
  return runtime_check(result, "computing a product", error);
}

const struct kernel_family many_kernels = {
    .variants = &many_family,
    .predict = predict,
    .candidates = list,
    .check = check,
    .launch = launch,
    .writes_rows = true,
};
