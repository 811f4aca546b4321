/* Products, and the kernels that calls may name. */
#include "product.h"
#include "error.h"
#include "tuned.h"

#include <stdlib.h>

static uint64_t address(const void *pointer) {
  return (uint64_t)(uintptr_t)pointer;
}

/* What is wrong with an address is said without it. */
static enum status check(const struct gemm_product *product, const struct gemm_weight *whole,
                         struct gemm_extent *extent, struct error *error) {
  enum status status = gemm_product_check(product, whole, 0, UINT64_MAX, extent, error);
  if (status == STATUS_OK)
    return status;
  const char *name = error->field == FIELD_X_OFFSET         ? "x"
                     : error->field == FIELD_Y_OFFSET       ? "y"
                     : error->field == FIELD_BIAS_OFFSET    ? "bias"
                     : error->field == FIELD_X_SCALE_OFFSET ? "x_scale"
                     : error->field == FIELD_IDS_OFFSET     ? "ids"
                     : error->field == FIELD_ROUTING_OFFSET ? "routing"
                                                            : NULL;
  if (name == NULL)
    return status;
  if (error->field == FIELD_ROUTING_OFFSET && error->low == 0)
    return error_set(error, STATUS_INVALID, "routing must be NULL where there is no sum");
  if (error->low == 1 && (error->field == FIELD_IDS_OFFSET || error->field == FIELD_ROUTING_OFFSET))
    return error_set(error, STATUS_INVALID, "y overlaps %s", name);
  return error->low == GEMM_ALIGN ? error_set(error, STATUS_INVALID, "%s must be aligned to %d bytes", name, GEMM_ALIGN)
                                  : error_set(error, STATUS_INVALID, "y overlaps x, bias or x_scale");
}

/* What the caller says of experts, for the check and for the backend. */
static enum status take_experts(const gemmd_direct_experts *experts, struct gemm_choice *choice,
                                struct backend_experts *chosen, struct error *error) {
  if (experts == NULL)
    return STATUS_OK;
  if (experts->bytes < sizeof *experts)
    return error_set(error, STATUS_INVALID, "bytes of the experts must be at least %zu, got %zu", sizeof *experts,
                     experts->bytes);
  if (experts->ids == NULL)
    return error_set(error, STATUS_INVALID, "ids must not be NULL");
  if (experts->top == 0)
    return error_field(error, STATUS_INVALID, FIELD_TOP, 0, 1, LIMIT_EXPERTS);
  if (address(experts->skipped) % sizeof *experts->skipped != 0)
    return error_set(error, STATUS_INVALID, "skipped must be aligned to 4 bytes");
  *choice = (struct gemm_choice){.top = experts->top,
                                 .x_pairs = experts->x_pairs,
                                 .sum = experts->sum,
                                 .routed = experts->routing != NULL,
                                 .ids_offset = address(experts->ids),
                                 .routing_offset = address(experts->routing)};
  *chosen = (struct backend_experts){.ids = experts->ids,
                                     .routing = experts->routing,
                                     .top = experts->top,
                                     .x_pairs = experts->x_pairs,
                                     .sum = experts->sum,
                                     .skipped = experts->skipped};
  return STATUS_OK;
}

enum status product_job(const struct gemmd_direct *direct, const gemmd_direct_product *product,
                        const gemmd_direct_experts *experts, const struct gemm_weight *whole,
                        struct backend_experts *chosen, struct backend_job *out, struct error *error) {
  struct gemm_choice choice = {.top = 0};
  struct gemm_extent extent;
  if (product->bytes < sizeof *product)
    return error_set(error, STATUS_INVALID, "bytes of the product must be at least %zu, got %zu", sizeof *product,
                     product->bytes);
  if (product->m < 1 || product->m > direct->rows_most)
    return error_field(error, STATUS_INVALID, FIELD_M, product->m, 1, direct->rows_most);
  if (product->x == NULL || product->y == NULL)
    return error_set(error, STATUS_INVALID, "%s must not be NULL", product->x == NULL ? "x" : "y");
  enum status status = take_experts(experts, &choice, chosen, error);
  if (status != STATUS_OK)
    return status;
  const struct gemm_product checked = {.m = product->m,
                                       .n = whole->n,
                                       .k = whole->k,
                                       .x_type = (enum gemm_type)product->x_type,
                                       .y_type = (enum gemm_type)product->y_type,
                                       .bias_type =
                                           product->bias != NULL ? (enum gemm_type)product->bias_type : GEMM_TYPE_NONE,
                                       .x_offset = address(product->x),
                                       .y_offset = address(product->y),
                                       .x_stride = product->x_stride,
                                       .y_stride = product->y_stride,
                                       .bias_offset = address(product->bias),
                                       .x_scale_offset = address(product->x_scale),
                                       .choice = choice};
  status = check(&checked, whole, &extent, error);
  if (status != STATUS_OK)
    return status;
  if (product->bias != NULL && checked.bias_type == GEMM_TYPE_NONE)
    return error_set(error, STATUS_INVALID, "bias type must be that of bias, got none");
  if (extent.x_scale_bytes > 0 && product->x_scale == NULL)
    return error_set(error, STATUS_INVALID, "x of type %s needs x_scale", gemm_type_name(checked.x_type));
  *out = (struct backend_job){.m = checked.m,
                              .x_type = checked.x_type,
                              .y_type = checked.y_type,
                              .bias_type = checked.bias_type,
                              .x = product->x,
                              .bias = product->bias,
                              .x_scale = extent.x_scale_bytes > 0 ? product->x_scale : NULL,
                              .y = product->y,
                              .x_stride = extent.x_stride,
                              .y_stride = extent.y_stride,
                              .experts = experts != NULL ? chosen : NULL};
  return STATUS_OK;
}

/* One that was found for other types or another number of rows may not be able to compute this. */
static enum status kernel_check(const struct gemmd_direct_kernel *kernel, const struct gemmd_direct_weight *weight,
                                const struct backend_job *job, struct error *error) {
  const struct variant_problem *problem = &kernel->problem;
  if (kernel->weight != weight)
    return error_set(error, STATUS_INVALID, "the kernel was found for another weight");
  if (problem->x_type != job->x_type || problem->y_type != job->y_type || problem->bias_type != job->bias_type)
    return error_set(error, STATUS_INVALID, "the kernel was found for other types than x %s, y %s, bias %s",
                     gemm_type_name(job->x_type), gemm_type_name(job->y_type), gemm_type_name(job->bias_type));
  return variant_bucket(job->m) == problem->m
             ? STATUS_OK
             : error_set(error, STATUS_INVALID, "the kernel was found for M of the bucket that ends at %lld, M is %lld",
                         (long long)problem->m, (long long)job->m);
}

int gemmd_direct_matmul(gemmd_direct_weight *weight, const gemmd_direct_product *product, void *stream) {
  struct gemmd_direct *direct = weight->direct;
  struct backend_job job;
  struct error error;
  enum status status = product_job(direct, product, NULL, &weight->shape, NULL, &job, &error);
  if (status == STATUS_OK && product->kernel != NULL) {
    status = kernel_check(product->kernel, weight, &job, &error);
    job.variant = &product->kernel->variant;
  }
  if (status == STATUS_OK) {
    job.weight = weight->handle;
    if (product->kernel == NULL)
      job.variant = tuned_find(weight, job.m, job.x_type, job.y_type, job.bias_type);
    tuned_computes(weight);
    status = direct->ops->enqueue(direct->backend, product->lane, &job, stream, &error);
  }
  return direct_result(status, &error);
}

int gemmd_direct_experts_matmul(gemmd_direct_weight *weight, const gemmd_direct_product *product,
                                const gemmd_direct_experts *experts, void *stream) {
  struct gemmd_direct *direct = weight->direct;
  struct backend_experts chosen;
  struct backend_job job;
  struct error error;
  enum status status = product_job(direct, product, experts, &weight->shape, &chosen, &job, &error);
  if (status == STATUS_OK && product->kernel != NULL)
    status = error_set(&error, STATUS_INVALID, "kernel must be NULL: experts have the backend's own choice");
  if (status == STATUS_OK) {
    job.weight = weight->handle;
    tuned_computes(weight);
    status = direct->ops->enqueue(direct->backend, product->lane, &job, stream, &error);
  }
  return direct_result(status, &error);
}

static enum status kernel_make(struct gemmd_direct_weight *weight, const char *text, struct gemmd_direct_kernel *kernel,
                               struct error *error) {
  struct gemmd_direct *direct = weight->direct;
  enum status status = variant_parse(direct->ops->families, text, &kernel->variant, error);
  if (status == STATUS_OK && kernel->variant.family == NULL)
    return error_set(error, STATUS_INVALID, "'%.100s' names no kernel", text);
  void *saved = direct_enter(direct);
  if (status == STATUS_OK)
    status = direct->ops->variant_check(direct->backend, &kernel->problem, &kernel->variant, NULL, error);
  if (status == STATUS_OK) {
    kernel->next = weight->kernels;
    weight->kernels = kernel;
  }
  direct_leave(direct, saved);
  return status;
}

static enum status problem_check(const struct variant_problem *problem, struct error *error) {
  if (problem->m < 1 || problem->m > LIMIT_M)
    return error_field(error, STATUS_INVALID, FIELD_M, problem->m, 1, LIMIT_M);
  if (!gemm_takes_x(problem->weight.format, problem->x_type))
    return error_field(error, STATUS_UNSUPPORTED, FIELD_X_TYPE, problem->x_type, 1, 0);
  if (!gemm_takes_y(problem->weight.format, problem->x_type, problem->y_type))
    return error_field(error, STATUS_UNSUPPORTED, FIELD_Y_TYPE, problem->y_type, 1, 0);
  return STATUS_OK;
}

int gemmd_direct_kernel_find(gemmd_direct_weight *weight, int64_t m, enum gemmd_type x_type, enum gemmd_type y_type,
                             enum gemmd_type bias_type, const char *text, gemmd_direct_kernel **out) {
  struct error error = {0};
  *out = NULL;
  struct gemmd_direct_kernel *kernel = calloc(1, sizeof *kernel);
  if (kernel == NULL)
    return direct_result(error_set(&error, STATUS_NOMEM, "no memory for a kernel's name"), &error);
  kernel->weight = weight;
  kernel->problem = (struct variant_problem){.weight = weight->shape,
                                             .m = m,
                                             .x_type = (enum gemm_type)x_type,
                                             .y_type = (enum gemm_type)y_type,
                                             .bias_type = (enum gemm_type)bias_type};
  enum status status = problem_check(&kernel->problem, &error);
  if (status == STATUS_OK) {
    kernel->problem.m = variant_bucket(m);
    status = kernel_make(weight, text, kernel, &error);
  }
  if (status == STATUS_OK)
    *out = kernel;
  else
    free(kernel);
  return direct_result(status, &error);
}
