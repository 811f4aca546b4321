// Which kernels there are, by type of x: in files of their own, which are compiled at the same time.
#pragma once

#include "instance.cuh"
#include "kernel.cuh"

namespace int2_many {

// pairs: where there are such of so many columns. The columns are some that config.h has for the type with 256 rows of
// W or, more than 64 but of f16, 192, or with `rows` of the fewer ones.
instance f16_instance(int columns, bool pairs);
instance f16_fewer_instance(int columns, int rows, bool pairs);
instance bf16_instance(int columns, bool pairs);
instance bf16_fewer_instance(int rows, bool pairs);
instance int8_instance(int columns);

template <typename X, int kColumns, bool kPairs, int kRows> inline instance instance_as() {
  using shape_of = shape<X, kColumns / 8, kPairs, kRows / 64>;
  static_assert(1024 + sizeof(shared<shape_of>) <= 227 * 1024, "a block fits");
  return {run<shape_of>, 1024 + sizeof(shared<shape_of>), shape_of::threads};
}

// The type's most rows of W: sums of wide tiles that are scaled leave registers for 192.
template <typename X, int kColumns, bool kPairs> inline instance instance_of_most() {
  return instance_as < X, kColumns, kPairs, (kColumns > 64 && !std::is_same_v<X, __half>) ? 192 : 256 > ();
}

// 16 columns.
template <typename X> inline instance narrowest_of(int rows, bool pairs) {
  if (rows == 128)
    return pairs ? instance_as<X, 16, true, 128>() : instance_as<X, 16, false, 128>();
  return pairs ? instance_as<X, 16, true, 192>() : instance_as<X, 16, false, 192>();
}

template <typename X> inline instance instance_of(int columns, bool pairs) {
  switch (columns) {
  case 16:
    return pairs ? instance_of_most<X, 16, true>() : instance_of_most<X, 16, false>();
  case 24:
    return pairs ? instance_of_most<X, 24, true>() : instance_of_most<X, 24, false>();
  case 32:
    return pairs ? instance_of_most<X, 32, true>() : instance_of_most<X, 32, false>();
  case 48:
    return instance_of_most<X, 48, false>();
  case 64:
    return instance_of_most<X, 64, false>();
  case 96:
    return instance_of_most<X, 96, false>();
  case 104:
    return instance_of_most<X, 104, false>();
  default:
    return instance_of_most<X, 128, false>();
  }
}

} // namespace int2_many
