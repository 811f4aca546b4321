// The pass behind a product whose sums still lack scales, bias or y's type. y may be mapped host memory: a warp
// writes whole runs of it, and reads none.
#pragma once

#include "../device/number.cuh"
#include "epilogue.h"

#include <type_traits>

constexpr int epilogue_threads = 256;
constexpr int epilogue_width = 4; // columns a thread

template <typename Y> struct alignas(epilogue_width * sizeof(Y)) epilogue_vector { Y elements[epilogue_width]; };

template <typename Y, typename Sum>
__device__ inline float epilogue_value(const epilogue &e, Sum sum, int64_t column, float x_scale) {
  const float w_scale = e.w_scale ? e.w_scale[column] : 1.0f;
  const float bias = e.bias ? number_load_as(e.bias, column, e.bias_type) : 0.0f;
  if constexpr (std::is_same_v<Sum, int32_t> && std::is_same_v<Y, float>)
    return number_scaled_exactly(sum, w_scale, x_scale, bias);
  return number_scaled(static_cast<float>(sum), w_scale, x_scale, bias);
}

// `vectors`: y and its stride are aligned to epilogue_width elements, and so is n.
template <typename Sum, typename Y>
__global__ void __launch_bounds__(epilogue_threads) epilogue_pass(const epilogue e, bool vectors) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * epilogue_threads + threadIdx.x) * epilogue_width;
  if (column >= e.n)
    return;
  for (int64_t row = blockIdx.y; row < e.m; row += gridDim.y) {
    const Sum *sums = static_cast<const Sum *>(e.sums) + row * e.sums_stride + column;
    Y *y = reinterpret_cast<Y *>(static_cast<uint8_t *>(e.y) + row * e.y_stride) + column;
    const float x_scale = e.x_scale ? e.x_scale[row] : 1.0f;
    // Rows of sums are padded to 16: the last vector of a row may be read whole.
    const epilogue_vector<Sum> in = *reinterpret_cast<const epilogue_vector<Sum> *>(sums);
    epilogue_vector<Y> out;
#pragma unroll
    for (int j = 0; j < epilogue_width; j++) {
      if (column + j < e.n)
        number_store(&out.elements[j], epilogue_value<Y>(e, in.elements[j], column + j, x_scale));
    }
    if (vectors) {
      *reinterpret_cast<epilogue_vector<Y> *>(y) = out;
      continue;
    }
#pragma unroll
    for (int j = 0; j < epilogue_width; j++) {
      if (column + j < e.n)
        y[j] = out.elements[j];
    }
  }
}
