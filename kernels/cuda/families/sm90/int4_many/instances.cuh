// Which kernels there are, by type of x: in files of their own, which are compiled at the same time.
#pragma once

#include "../int2_many/instance.cuh"
#include "../int4/form.h"
#include "kernel.cuh"

namespace int4_many {

using int2_many::instance;

// Each of one of the widths that config.h has for the kind.
instance int8_instance(int columns, const int4_form &form);
instance int8_zeros_instance(int columns, const int4_form &form);
instance f16_instance(int columns, const int4_form &form, int4_many_kind kind);
instance bf16_instance(int columns, const int4_form &form, int4_many_kind kind);
instance f16_zeros_instance(int columns, const int4_form &form, int4_many_kind kind);
instance bf16_zeros_instance(int columns, const int4_form &form, int4_many_kind kind);

template <typename Shape> inline instance instance_as() {
  static_assert(1024 + sizeof(shared<Shape>) <= 227 * 1024, "a block fits");
  return {run<Shape>, 1024 + sizeof(shared<Shape>), Shape::threads};
}

template <typename X, typename Weight, int4_many_kind kKind> inline instance instance_of(int columns) {
  if constexpr (kKind == INT4_MANY_EXACT) {
    return instance_as<shape<X, 8, Weight, kKind>>();
  } else {
    switch (columns) {
    case 16:
      return instance_as<shape<X, std::is_same_v<X, int8_t> ? 4 : 2, Weight, kKind>>();
    case 32:
      return instance_as<shape<X, 4, Weight, kKind>>();
    case 64:
      return instance_as<shape<X, 8, Weight, kKind>>();
    default:
      return instance_as<shape<X, kKind == INT4_MANY_INT8_FINE ? 8 : 16, Weight, kKind>>();
    }
  }
}

template <typename X, int4_many_kind kKind, bool kZeros> inline instance int4_instance(int columns, int groups) {
  switch (groups) {
  case 1:
    return instance_of<X, weight_of<false, 1, kZeros>, kKind>(columns);
  case 2:
    return instance_of<X, weight_of<false, 2, kZeros>, kKind>(columns);
  default:
    return instance_of<X, weight_of<false, 4, kZeros>, kKind>(columns);
  }
}

} // namespace int4_many
