#include "../../call.h"
#include "../../listing.h"
#include "../../table.h"
#include "../int2_many/config.h"
#include "launch.h"

_Static_assert(INT2_MANY_NOTHING == INT4_FEW_NOTHING, "both leave sums in the same memory");

enum { BEST_MOST = 8, /* of the cost model's guesses, where a search does not try all */ ROWS_MOST_LISTED = 64 };

const struct variant_family int4_few_family = {
    .name = "int4_few",
    .count = 2,
    .parameters =
        {
            {"split_k", "blocks that share K: a power of two", 1, INT4_FEW_SPLIT_MOST, 1, 1},
            {"rows", "of W, for those that share K", INT4_FEW_ROWS, INT4_FEW_BLOCKS_MOST *INT4_FEW_ROWS,
             INT4_FEW_ROWS_STEP, INT4_BLOCK_ROWS},
        },
};

static struct variant variant_of(const struct int4_few_config *config) {
  return (struct variant){.family = &int4_few_family, .values = {config->split_k, config->rows}};
}

static bool takes(const struct kernel_problem *problem) {
  return problem->tiled && problem->device.capability == 90 && problem->experts == 0 &&
         int4_form_keeps_x(problem->format) && !gemm_scale_facts(problem->scale)->zeros_f16;
}

static struct int4_form form_of(const struct kernel_problem *problem) {
  return int4_form_of(problem->format, problem->scale);
}

/* Columns of x that go at a time, by what fits with some configuration. */
static int columns_of(const struct kernel_problem *problem) {
  struct int4_few_config config;
  struct int4_form form = form_of(problem);
  int64_t wanted = problem->m * int4_few_columns_a_row(problem->x_type);
  int columns = 1;
  while (columns < wanted && columns < INT4_FEW_COLUMNS_MOST &&
         int4_few_candidates(2 * columns, &form, problem->n, problem->k, problem->device.multiprocessors, &config, 1) ==
             1)
    columns *= 2;
  return columns;
}

static bool fits(const struct kernel_problem *problem, const struct variant *variant) {
  struct int4_few_config config = {
      .columns = columns_of(problem), .split_k = variant->values[0], .rows = variant->values[1]};
  struct int4_form form = form_of(problem);
  struct int4_few_plan plan;
  return int4_few_plan_for(&config, &form, problem->n, problem->k, &plan);
}

static bool predict(const struct kernel_problem *problem, struct variant *out, double *us) {
  struct int4_few_config config;
  struct int4_few_plan plan;
  if (!takes(problem))
    return false;
  struct int4_form form = form_of(problem);
  int columns = columns_of(problem), sms = problem->device.multiprocessors;
  if (int4_few_candidates(columns, &form, problem->n, problem->k, sms, &config, 1) < 1 ||
      !int4_few_plan_for(&config, &form, problem->n, problem->k, &plan))
    return false;
  int64_t rows = columns / int4_few_columns_a_row(problem->x_type);
  *out = variant_of(&config);
  *us = (double)((problem->m + rows - 1) / rows) * int4_few_us(&config, &form, &plan, sms);
  return true;
}

static enum status check(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                         struct variant *nearest, struct error *error) {
  if (!takes(problem))
    return error_set(
        error, STATUS_UNSUPPORTED,
        "family int4_few takes INT4, MXFP4 and NVFP4 of K up to %d, without experts, on compute capability 9.0",
        INT4_FEW_K_MOST);
  if (fits(problem, variant))
    return STATUS_OK;
  return error_set(
      error, STATUS_UNSUPPORTED,
      "split_k is a power of two and no more than a quarter of the tiles of K, and its share of x with the sums "
      "of W's rows fits into shared memory");
}

/* ---- listing */

static const struct listing_rules rules = {.fits = fits};

static int list(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out, int count,
                int most) {
  struct int4_few_config configs[INT4_FEW_CONFIGS];
  struct int4_form form = form_of(problem);
  if (!takes(problem) || problem->m > ROWS_MOST_LISTED)
    return count;
  int found = int4_few_candidates(columns_of(problem), &form, problem->n, problem->k, problem->device.multiprocessors,
                                  configs, all ? INT4_FEW_CONFIGS : BEST_MOST);
  for (int i = 0; i < found; i++) {
    struct variant variant = variant_of(&configs[i]);
    count = listing_add(&rules, problem, &variant, out, count, most);
  }
  return count;
}

static int neighbours(struct backend *backend, const struct kernel_problem *problem, const struct variant *base,
                      bool all, struct variant *out, int most) {
  return listing_neighbours(&rules, problem, base, out, most);
}

/* ---- launching */

/* The weight's way for so many columns, or `spare` with the variant's in its place, where that fits. */
static const struct int4_few_way *way_for(const struct backend_weight *weight, const struct int4_form *form,
                                          int columns, const struct variant *variant, struct int4_few_way *spare) {
  const struct int4_few_way *way = weight->few4;
  while (way->config.columns != columns)
    way++;
  *spare =
      (struct int4_few_way){.config = {.columns = columns, .split_k = variant->values[0], .rows = variant->values[1]}};
  bool same = spare->config.split_k == way->config.split_k && spare->config.rows == way->config.rows;
  bool other = !same && int4_few_plan_for(&spare->config, form, weight->weight.n, weight->weight.k, &spare->plan);
  return other ? spare : way;
}

static enum status launch(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                          struct error *error) {
  const struct backend_weight *weight = call->weight;
  const struct int4_form form = int4_form_of(weight->weight.format, weight->weight.scale);
  struct int4_few_way spare;
  if (weight->layout.layout != LAYOUT_TILES4 || weight->weight.experts > 0)
    return error_set(error, STATUS_UNSUPPORTED, "no kernel for this product");
  int columns = int4_few_columns(weight->few4, call->x_type, call->m);
  const struct int4_few_way *way = way_for(weight, &form, columns, variant, &spare);
  struct tiles_product product = kernel_call_tiles(call);
  product.sums = call->int2_sums;
  int64_t most = columns / int4_few_columns_a_row(call->x_type);
  cudaError_t result = cudaSuccess;
  for (int64_t row = 0; row < call->m && result == cudaSuccess; row += most) {
    const struct tiles_product part = kernel_call_part(&product, row, most);
    result = int4_few_launch(call->stream, &form, way, &part, call->follows || row > 0);
  }
  return runtime_check(result, "computing a product", error);
}

const struct kernel_family int4_few_kernels = {
    .variants = &int4_few_family,
    .predict = predict,
    .candidates = list,
    .neighbours = neighbours,
    .check = check,
    .launch = launch,
};
