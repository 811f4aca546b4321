// The kernels for INT8.
#include "instances.cuh"

namespace sm80_rows {

using sm80::fragment;

namespace {

struct codes {
  using sum = int;
  struct left {
    uint32_t words[4];
  };
  using right = fragment;

  static __device__ left left_of(const uint32_t (&words)[4]) {
    return {words[0], words[1], words[2], words[3]};
  }
  static __device__ right right_of(const fragment &x) {
    return x;
  }
  static __device__ void multiply(int (&d)[4], const left &a, const right &b) {
    ptx::mma_s8(d, a.words, b.words);
  }
};

} // namespace

instance integer_instance(int columns, int rows) {
#define ROW(x_rows, w_rows, x, w, x_warps, w_warps, resident, fp8)                                                     \
  if (columns == x_rows && rows == w_rows)                                                                             \
    return instance_as<codes, shape<x, w, x_warps, w_warps>, x_rows, w_rows, resident>();
  SM80_ROWS_TILES(ROW)
#undef ROW
  return {};
}

} // namespace sm80_rows
