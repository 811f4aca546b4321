// The kernels of int4_few for one type of x.
#pragma once

#include "../int4/form.h"
#include "kernel.cuh"

namespace int4_few {

using kernel = void (*)(work);

template <typename X, typename Form> kernel kernel_by(int columns) {
  return columns <= 8 ? run<Form, X, 1> : run<Form, X, 2>;
}

template <typename X, int kGroups> kernel kernel_by(const int4_form &form, int columns) {
  return form.zeros ? kernel_by<X, int4_few::form<false, kGroups, true>>(columns)
                    : kernel_by<X, int4_few::form<false, kGroups, false>>(columns);
}

template <typename X> kernel kernel_by(const int4_form &form, int columns, bool scaled) {
  if (form.groups == INT4_GROUPS_MOST)
    return kernel_by<X, int4_few::form<true, INT4_GROUPS_MOST, false, true>>(columns);
  if (form.e2m1)
    return scaled ? kernel_by<X, int4_few::form<true, 4, false, std::is_same_v<X, __nv_bfloat16>>>(columns)
                  : kernel_by<X, int4_few::form<true, 4, false>>(columns);
  return form.groups == 1   ? kernel_by<X, 1>(form, columns)
         : form.groups == 2 ? kernel_by<X, 2>(form, columns)
                            : kernel_by<X, 4>(form, columns);
}

// Each in a file of its own. scaled: MXFP4's scales are such that numbers of bf16 are multiplied by them.
kernel kernel_f16(const int4_form &form, int columns);
kernel kernel_bf16(const int4_form &form, int columns, bool scaled);

} // namespace int4_few
