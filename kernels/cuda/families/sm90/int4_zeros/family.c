#include "../../call.h"
#include "../../table.h"
#include "../int4/rests.h"
#include "launch.h"

const struct variant_family int4_zeros_family = {.name = "int4_zeros", .count = 0};

/* Rows of y whose sums the workspace has room for. */
static int64_t rows_of(uint64_t workspace_bytes, int64_t n, int64_t groups) {
  return (int64_t)(workspace_bytes / (((uint64_t)n + (uint64_t)groups) * sizeof(float)));
}

/* The sums that other families make, of the same weight with integers for zero points. */
static struct kernel_problem sums_problem(const struct kernel_problem *problem) {
  struct kernel_problem sums = *problem;
  sums.scale = int4_integer_zeros(problem->scale);
  sums.y_type = GEMM_F32;
  sums.bias_type = GEMM_TYPE_NONE;
  return sums;
}

static const struct kernel_family *sums_family(const struct kernel_problem *problem, struct variant *out, double *us) {
  struct kernel_problem sums = sums_problem(problem);
  struct variant few, many;
  double few_us, many_us;
  bool has_few = int4_few_kernels.predict(&sums, &few, &few_us);
  bool has_many = int4_many_kernels.predict(&sums, &many, &many_us);
  if (!has_few && !has_many)
    return NULL;
  bool by_few = has_few && (!has_many || few_us <= many_us);
  *out = by_few ? few : many;
  *us = by_few ? few_us : many_us;
  return by_few ? &int4_few_kernels : &int4_many_kernels;
}

static bool predict(const struct kernel_problem *problem, struct variant *out, double *us) {
  static const double LAUNCHES_US = 5, ELEMENTS_A_US = 2e5; /* of y */
  struct variant sums;
  if (!problem->tiled || problem->device.capability != 90 || problem->experts > 0 ||
      !gemm_scale_facts(problem->scale)->zeros_f16 || sums_family(problem, &sums, us) == NULL)
    return false;
  *out = variant_default(&int4_zeros_family);
  *us += LAUNCHES_US + (double)problem->m * (double)problem->n / ELEMENTS_A_US;
  return true;
}

/* y of `m` rows from `row` on, of their sums. */
static cudaError_t finish(const struct kernel_call *call, int64_t row, int64_t m, const float *sums, float *x_sums) {
  const struct gemm_weight *weight = &call->weight->weight;
  const struct int4_zeros_product product = {
      .m = m,
      .n = weight->n,
      .k = weight->k,
      .groups = (int64_t)call->weight->layout.canonical.scale_columns,
      .group = gemm_scale_group(weight),
      .x = (const uint8_t *)call->x + (uint64_t)row * call->x_stride,
      .x_type = gemm_quantizes_x(weight->format) ? GEMM_INT8 : call->x_type,
      .x_stride = call->x_stride,
      .x_scale = call->x_scale ? call->x_scale + row : NULL,
      .rests = (const uint32_t *)(const void *)call->weight->scales,
      .rests_stride = call->weight->layout.n,
      .bf16_scales = gemm_scale_type(weight) == GEMM_BF16,
      .x_sums = x_sums,
      .sums = sums,
      .bias = call->bias,
      .bias_type = call->bias_type,
      .y = (uint8_t *)call->y + (uint64_t)row * call->y_stride,
      .y_type = call->y_type,
      .y_stride = call->y_stride,
  };
  return int4_zeros_launch(call->stream, &product);
}

/* The call for `m` rows from `row` on, whose sums go to the workspace. */
static struct kernel_call sums_call(const struct kernel_call *call, int64_t row, int64_t m) {
  struct kernel_call part = *call;
  part.m = part.m_padded = m;
  part.x = (const uint8_t *)call->x + (uint64_t)row * call->x_stride;
  part.x_scale = call->x_scale ? call->x_scale + row : NULL;
  part.y = call->workspace;
  part.y_type = GEMM_F32;
  part.y_stride = (uint64_t)call->weight->weight.n * sizeof(float);
  part.bias = NULL;
  part.follows = call->follows && row == 0;
  return part;
}

static enum status launch(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                          struct error *error) {
  const struct gemm_weight *weight = &call->weight->weight;
  int64_t groups = (int64_t)call->weight->layout.canonical.scale_columns;
  int64_t most = rows_of(backend->gpu.workspace_bytes, weight->n, groups);
  float *x_sums = (float *)call->workspace + most * weight->n;
  enum status status = STATUS_OK;
  if (!layout_is_tiled(&call->weight->layout) || !gemm_scale_facts(weight->scale)->zeros_f16 || most < 1)
    return error_set(error, STATUS_UNSUPPORTED, "no kernel for this product");
  for (int64_t row = 0; row < call->m && status == STATUS_OK; row += most) {
    const struct kernel_call part = sums_call(call, row, call->m - row < most ? call->m - row : most);
    const struct kernel_problem problem = kernel_call_problem(backend, &part);
    struct variant by;
    double us;
    const struct kernel_family *family = sums_family(&problem, &by, &us);
    status = family != NULL ? family->launch(backend, &part, &by, error)
                            : error_set(error, STATUS_UNSUPPORTED, "no kernel for this product");
    if (status == STATUS_OK)
      status = runtime_check(finish(call, row, part.m, call->workspace, x_sums), "computing a product", error);
  }
  return status;
}

const struct kernel_family int4_zeros_kernels = {
    .variants = &int4_zeros_family,
    .predict = predict,
    .launch = launch,
};
