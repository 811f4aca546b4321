// Launcher of grouped_int4/kernel.cuh.
#include "../../../launch/launch_kernel.cuh"
#include "kernel.cuh"
#include "launch.h"

namespace {

using grouped_int4::multiply, grouped_int4::shape;

struct instance {
  void (*kernel)(grouped_int4::work);
  int threads;
};

template <typename Form, typename X = __half> instance instance_by(int warps) {
  using narrow = shape<Form, X, 16, 1>;
  using wide = shape<Form, X, 8, 2>;
  return warps == narrow::warps ? instance{multiply<narrow>, narrow::threads} : instance{multiply<wide>, wide::threads};
}

template <int kGroups> instance instance_by(const int4_form &form, int warps) {
  return form.zeros ? instance_by<int4_few::form<false, kGroups, true>>(warps)
                    : instance_by<int4_few::form<false, kGroups, false>>(warps);
}

// scaled: MXFP4's numbers are of bf16 and multiplied by scales, which are such that they can be.
instance instance_of(const int4_form &form, bool scaled, int warps) {
  if (form.groups == INT4_GROUPS_MOST)
    return instance_by<int4_few::form<true, INT4_GROUPS_MOST, false, true>>(warps);
  if (form.e2m1)
    return scaled ? instance_by<int4_few::form<true, 4, false, true>, __nv_bfloat16>(warps)
                  : instance_by<int4_few::form<true, 4, false>>(warps);
  return form.groups == 1   ? instance_by<1>(form, warps)
         : form.groups == 2 ? instance_by<2>(form, warps)
                            : instance_by<4>(form, warps);
}

} // namespace

extern "C" cudaError_t grouped_int4_launch(cudaStream_t stream, const struct int4_form *form,
                                           const struct grouped_int4_plan *plan, const struct tiles_product *product,
                                           int sms, bool dependent) {
  const grouped_int4::work work = {*product, *plan, static_cast<int>(product->n / INT4_HALF_ROWS)};
  const instance with = instance_of(*form, product->x_type == GEMM_BF16 && !product->large_scales, plan->warps);
  launch_shape shape;
  shape.dependent = dependent;
  shape.grid = dim3(static_cast<unsigned>(sms));
  shape.block = dim3(static_cast<unsigned>(with.threads));
  shape.shared_bytes = static_cast<size_t>(plan->shared_bytes);
  return launch_kernel(stream, shape, with.kernel, work);
}

static const load_early early(instance_of({.e2m1 = true}, true, 16).kernel);
