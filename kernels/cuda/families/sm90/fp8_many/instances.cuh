// Which kernels there are: those of INT8, of FP8 and of INT2A8, in files of their own, which are compiled at the same
// time.
#pragma once

#include "kernel.cuh"

namespace fp8_many {

struct instance {
  void (*kernel)(work); // NULL: there is none
  unsigned threads;
  size_t shared_bytes;
};

instance integer_instance(int rows, int columns, gemm_type y_type);
instance float_instance(int rows, int columns, gemm_type y_type);
instance coded_instance(int columns, gemm_type y_type);

template <typename T> inline instance instance_as() {
  static_assert(sizeof(shared<T>) + 1024 <= block_shared_most, "a block fits");
  return {run<T>, T::threads, 1024 + sizeof(shared<T>)};
}

// Integer products take columns by sixteens.
template <sums kSums> constexpr int middle_columns = kSums == sums::integers ? 112 : 104;

template <typename Out, sums kSums, int kRows> inline instance instance_of(int columns) {
  switch (columns) {
  case 80:
    return instance_as<tile_of<Out, kSums, kRows, 80>>();
  case 96:
    return instance_as<tile_of<Out, kSums, kRows, 96>>();
  case middle_columns<kSums>:
    return instance_as<tile_of<Out, kSums, kRows, middle_columns<kSums>>>();
  case 128:
    return instance_as<tile_of<Out, kSums, kRows, 128>>();
  default:
    return {};
  }
}

template <typename Out, sums kSums> inline instance instance_of(int rows, int columns) {
  switch (rows) {
  case 128:
    return instance_of<Out, kSums, 128>(columns);
  case 192:
    return instance_of<Out, kSums, 192>(columns);
  case 256:
    return instance_of<Out, kSums, 256>(columns);
  default:
    return {};
  }
}

} // namespace fp8_many
