// Which kernels there are, by type of x: in files of their own, which are compiled at the same time.
#pragma once

#include "kernel.cuh"

namespace grouped_int2_many {

struct instance {
  void (*kernel)(work);
  size_t shared_bytes;
  int threads, groups;
};

// The columns are some that config.h has.
instance f16_instance(int columns);
instance bf16_instance(int columns);
instance int8_instance(int columns);

template <typename X, int kColumns> inline instance instance_as() {
  constexpr bool pairs = sizeof(X) == 2 && kColumns <= GROUPED_INT2_MANY_PAIRS;
  // 128 columns whose sums are scaled leave registers for three blocks of 64 rows of W.
  constexpr int groups = kColumns > 64 && !std::is_same_v<X, __half> ? 3 : 4;
  using shape_of = int2_many::shape<X, kColumns / 8, pairs, groups>;
  static_assert(1024 + sizeof(shared<shape_of>) <= 227 * 1024, "a block fits");
  return {run<shape_of>, 1024 + sizeof(shared<shape_of>), shape_of::threads, shape_of::groups};
}

template <typename X, int kMost> inline instance instance_of(int columns) {
  switch (columns) {
  case 32:
    return instance_as<X, 32>();
  case 64:
    return instance_as<X, 64>();
  default:
    return instance_as<X, kMost>();
  }
}

} // namespace grouped_int2_many
