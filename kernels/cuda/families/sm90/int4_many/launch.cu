// Launcher of int4_many/kernel.cuh.
#include "instances.cuh"
#include "launch.h"

static int4_many::instance instance_for(const tiles_product &product, int columns, const int4_form &form,
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
                                        const struct int4_form *form, const struct tiles_product *product,
                                        const CUtensorMap *x, bool dependent, bool together) {
  return int2_many::launch(stream, instance_for(*product, config->columns, *form, kind), *config, *plan, *product, *x,
                           dependent, together);
}

static int4_form form_of(bool zeros) {
  int4_form form = {};
  form.groups = 1;
  form.zeros = zeros;
  return form;
}

static const load_early early[] = {
    int4_many::int8_instance(INT4_MANY_COLUMNS_MOST, form_of(false)).kernel,
    int4_many::int8_zeros_instance(INT4_MANY_COLUMNS_MOST, form_of(true)).kernel,
    int4_many::f16_instance(INT4_MANY_COLUMNS_MOST, form_of(false), INT4_MANY_SCALED).kernel,
    int4_many::bf16_instance(INT4_MANY_COLUMNS_MOST, form_of(false), INT4_MANY_SUMS).kernel,
    int4_many::f16_zeros_instance(INT4_MANY_COLUMNS_MOST, form_of(true), INT4_MANY_SCALED).kernel,
    int4_many::bf16_zeros_instance(INT4_MANY_COLUMNS_MOST, form_of(true), INT4_MANY_SUMS).kernel};
