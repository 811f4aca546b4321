// Which kernels there are, by type of x: in files of their own, which are compiled at the same time.
#pragma once

#include "kernel.cuh"

namespace int2_many {

struct instance {
  void (*kernel)(work);
  size_t shared_bytes;
  int threads;
};

// pairs: where there are such of so many columns. The columns are some that config.h has for the type.
instance f16_instance(int columns, bool pairs);
instance bf16_instance(int columns, bool pairs);
instance int8_instance(int columns);

template <typename X, int kColumns, bool kPairs> inline instance instance_as() {
  using shape_of = shape<X, kColumns / 8, kPairs>;
  static_assert(1024 + sizeof(shared<shape_of>) <= 227 * 1024, "a block fits");
  return {run<shape_of>, 1024 + sizeof(shared<shape_of>), shape_of::threads};
}

template <typename X> inline instance instance_of(int columns, bool pairs) {
  switch (columns) {
  case 16:
    return pairs ? instance_as<X, 16, true>() : instance_as<X, 16, false>();
  case 24:
    return pairs ? instance_as<X, 24, true>() : instance_as<X, 24, false>();
  case 32:
    return pairs ? instance_as<X, 32, true>() : instance_as<X, 32, false>();
  case 48:
    return instance_as<X, 48, false>();
  case 64:
    return instance_as<X, 64, false>();
  case 96:
    return instance_as<X, 96, false>();
  case 104:
    return instance_as<X, 104, false>();
  default:
    return instance_as<X, 128, false>();
  }
}

} // namespace int2_many
