// The kernels for FP8.
#include "../../../device/e4m3.cuh"
#include "instances.cuh"

namespace sm80_rows {

using sm80::fragment;

namespace {

// FP8 codes as f16: of four neighbours of K the first two are one instruction's, the others the next's, on both sides.
struct codes {
  using sum = float;
  struct left {
    uint32_t words[2][4];
  };
  struct right {
    uint32_t words[2][2];
  };

  static __device__ left left_of(const uint32_t (&words)[4]) {
    left out;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      out.words[i / 2][i % 2] = e4m3_low(words[i]);
      out.words[i / 2][i % 2 + 2] = e4m3_high(words[i]);
    }
    return out;
  }
  static __device__ right right_of(const fragment &x) {
    return {{{e4m3_low(x.words[0]), e4m3_high(x.words[0])}, {e4m3_low(x.words[1]), e4m3_high(x.words[1])}}};
  }
  static __device__ void multiply(float (&d)[4], const left &a, const right &b) {
    ptx::mma_f16(d, a.words[0], b.words[0], d);
    ptx::mma_f16(d, a.words[1], b.words[1], d);
  }
};

} // namespace

instance float_instance(int columns, int rows) {
#define ROW(x_rows, w_rows, x, w, x_warps, w_warps, resident, fp8)                                                     \
  if constexpr (fp8)                                                                                                   \
    if (columns == x_rows && rows == w_rows)                                                                           \
      return instance_as<codes, shape<x, w, x_warps, w_warps>, x_rows, w_rows, resident>();
  SM80_ROWS_TILES(ROW)
#undef ROW
  return {};
}

} // namespace sm80_rows
