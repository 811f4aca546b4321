// Which kernels there are: those of INT8 and of FP8, in files of their own, which are compiled at the same time.
#pragma once

#include "kernel.cuh"

namespace sm80_rows {

struct instance {
  void (*kernel)(work); // NULL: there is none
  void (*adder)(work);  // of parts
  struct tile tile;
};

instance integer_instance(int columns, int rows);
instance float_instance(int columns, int rows);

template <typename O, typename S, int kColumns, int kRows, int kBlocks> inline instance instance_as() {
  static_assert(S::columns == kColumns && S::rows == kRows, "the table says what its warps have");
  return {run<O, S, kBlocks>, add_parts<typename O::sum>, S::own};
}

} // namespace sm80_rows
