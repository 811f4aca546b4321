// Launcher of int4_many/kernel.cuh.
#include "../../../launch/launch_kernel.cuh"
#include "instances.cuh"
#include "launch.h"

static int4_many::instance instance_for(const int2_many_product &product, int columns, const int4_form &form,
                                        int4_many_kind kind) {
  switch (product.x_type) {
  case GEMM_F16:
    return form.zeros ? int4_many::f16_zeros_instance(columns, form, kind)
                      : int4_many::f16_instance(columns, form, kind);
  case GEMM_BF16:
    return form.zeros ? int4_many::bf16_zeros_instance(columns, form, kind)
                      : int4_many::bf16_instance(columns, form, kind);
  default:
    return form.zeros ? int4_many::int8_zeros_instance(columns, form) : int4_many::int8_instance(columns, form);
  }
}

extern "C" cudaError_t int4_many_launch(cudaStream_t stream, const struct int2_many_config *config,
                                        const struct int2_many_plan *plan, enum int4_many_kind kind,
                                        const struct int4_form *form, const struct int2_many_product *product,
                                        const CUtensorMap *x, bool dependent, bool together) {
  int2_many::work work = {};
  work.product = *product;
  work.plan = *plan;
  work.split_k = config->split_k;
  work.group = config->group;
  work.x = *x;
  const int4_many::instance run = instance_for(*product, config->columns, *form, kind);
  launch_shape shape;
  shape.grid = dim3(static_cast<unsigned>(plan->blocks));
  shape.block = dim3(static_cast<unsigned>(run.threads));
  shape.shared_bytes = run.shared_bytes;
  shape.dependent = dependent;
  shape.cooperative = together && config->split_k > 1;
  return launch_kernel(stream, shape, run.kernel, work);
}

static int4_form form_of(bool zeros) {
  int4_form form = {};
  form.groups = 1;
  form.zeros = zeros;
  return form;
}

extern "C" const void *kernel_of_int4_many_int8(void) {
  return reinterpret_cast<const void *>(int4_many::int8_instance(INT4_MANY_COLUMNS_MOST, form_of(false)).kernel);
}

extern "C" const void *kernel_of_int4_many_int8_zeros(void) {
  return reinterpret_cast<const void *>(int4_many::int8_zeros_instance(INT4_MANY_COLUMNS_MOST, form_of(true)).kernel);
}

extern "C" const void *kernel_of_int4_many_f16(void) {
  return reinterpret_cast<const void *>(
      int4_many::f16_instance(INT4_MANY_COLUMNS_MOST, form_of(false), INT4_MANY_SCALED).kernel);
}

extern "C" const void *kernel_of_int4_many_bf16(void) {
  return reinterpret_cast<const void *>(
      int4_many::bf16_instance(INT4_MANY_COLUMNS_MOST, form_of(false), INT4_MANY_SUMS).kernel);
}

extern "C" const void *kernel_of_int4_many_f16_zeros(void) {
  return reinterpret_cast<const void *>(
      int4_many::f16_zeros_instance(INT4_MANY_COLUMNS_MOST, form_of(true), INT4_MANY_SCALED).kernel);
}

extern "C" const void *kernel_of_int4_many_bf16_zeros(void) {
  return reinterpret_cast<const void *>(
      int4_many::bf16_zeros_instance(INT4_MANY_COLUMNS_MOST, form_of(true), INT4_MANY_SUMS).kernel);
}
