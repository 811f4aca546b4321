// x in another order, rotated, or with a scale of the weight's own, on its way to codes. Sums are in the order of
// proto/rotate.h, so that codes are the same bits as on every other backend.
#pragma once

#include "input.h"
#include "quantize.cuh"

constexpr int input_threads = 256;
constexpr int input_each = 16; // neighbours that a thread takes of a row, two powers of 4
constexpr int input_chunk = input_threads * input_each;

// Elements of a chunk in shared memory: one of padding behind every 16 keeps both ways of reading apart in the banks.
__device__ inline int input_place(int i) {
  return i + i / input_each;
}

__device__ inline void input_rotate_four(float &a, float &b, float &c, float &d) {
  const float sum = a + b, gap = a - b, more = c + d, less = c - d;
  a = sum + less;
  b = sum - less;
  c = gap + more;
  d = more - gap;
}

// Two powers of 16 values, or the lower one of them.
__device__ inline void input_rotate_16(float (&values)[input_each], bool both) {
#pragma unroll
  for (int i = 0; i < input_each; i += 4)
    input_rotate_four(values[i], values[i + 1], values[i + 2], values[i + 3]);
  if (!both)
    return;
#pragma unroll
  for (int i = 0; i < 4; i++)
    input_rotate_four(values[i], values[i + 4], values[i + 8], values[i + 12]);
}

template <int kStep> __device__ inline void input_put(float *shared, const float (&values)[input_each]) {
#pragma unroll
  for (int i = 0; i < input_each; i++)
    shared[i * kStep] = values[i];
}

template <int kStep> __device__ inline void input_get(const float *shared, float (&values)[input_each]) {
#pragma unroll
  for (int i = 0; i < input_each; i++)
    values[i] = shared[i * kStep];
}

// All stages of the chunk whose neighbours 16 * threadIdx.x.. are in `values`, before and after.
__device__ inline void input_rotate(float *shared, float (&values)[input_each], int stages) {
  const int t = static_cast<int>(threadIdx.x);
  float *own = shared + input_place(t * input_each);
  if (stages > 0)
    input_rotate_16(values, stages > 1);
  if (stages > 2) {
    float *apart = shared + input_place(t / 16 * 256) + t % 16; // of 256, those of one place in each 16
    __syncthreads();
    input_put<1>(own, values);
    __syncthreads();
    input_get<input_each + 1>(apart, values);
    input_rotate_16(values, stages > 3);
    input_put<input_each + 1>(apart, values);
    __syncthreads();
    if (stages > 4) {
      // Of 1024, four that are 256 apart, four times: each thread's are its own.
      for (int i = t; i < static_cast<int>(blockDim.x) * 4; i += static_cast<int>(blockDim.x)) {
        constexpr int quarter = 256 + 256 / input_each;
        float *at = shared + input_place(i / 256 * 1024 + i % 256);
        input_rotate_four(at[0], at[quarter], at[2 * quarter], at[3 * quarter]);
      }
      __syncthreads();
    }
    input_get<1>(own, values);
  }
  const float by = __uint_as_float(static_cast<unsigned>(127 - stages) << 23);
#pragma unroll
  for (int i = 0; i < input_each; i++)
    values[i] *= by;
}

// A row as it comes, in shared memory, where reading it in another order costs little. Returns the largest magnitude of
// what this thread has put there, as the bits of an f32; the block has to meet before it reads.
template <typename X>
__device__ inline unsigned input_stage(const X *from, int k, bool aligned, quantize_eight<X> *staged) {
  unsigned most = 0;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); 8 * i < k; i += static_cast<int>(blockDim.x)) {
    const quantize_eight<X> eight = quantize_load8(from, 8 * i, k, aligned);
    most = quantize_magnitude<X>(eight, most);
    staged[i] = eight;
  }
  return quantize_widen<X>(most);
}

// 16 elements of the row, in the order wanted, from `first` on, which is below k. The order lies in memory that whoever
// has borrowed the weight can write to.
template <typename X>
__device__ inline void input_gather(const X *from, const uint32_t *order, int first, int k,
                                    float (&values)[input_each]) {
  union {
    uint4 four[input_each / 4];
    unsigned at[input_each];
  } places;
  if (first + input_each <= k) {
#pragma unroll
    for (int i = 0; i < input_each / 4; i++)
      places.four[i] = __ldg(reinterpret_cast<const uint4 *>(order + first) + i);
  } else {
#pragma unroll
    for (int i = 0; i < input_each; i++)
      places.at[i] = first + i < k ? __ldg(order + first + i) : 0;
  }
#pragma unroll
  for (int i = 0; i < input_each; i++) {
    const float value = number_load(from[places.at[i] < static_cast<unsigned>(k) ? places.at[i] : 0]);
    values[i] = first + i < k ? value : 0.0f;
  }
}

// 16 elements of the row from `first` on, in the order wanted, zeros from k on.
template <typename X>
__device__ inline void input_load(const X *from, const uint32_t *order, int first, int k, bool aligned,
                                  float (&values)[input_each]) {
  if (order != nullptr && first < k)
    return input_gather(from, order, first, k, values);
#pragma unroll
  for (int half = 0; half < input_each; half += 8) {
    const quantize_eight<X> eight = quantize_load8(from, first + half, k, aligned);
    const X *elements = reinterpret_cast<const X *>(&eight);
#pragma unroll
    for (int i = 0; i < 8; i++)
      values[half + i] = number_load(elements[i]);
  }
}

// A row's scale where the weight brings it.
__device__ inline float input_scale(unsigned magnitude, float fixed) {
  return magnitude >= 0x7f800000u ? __uint_as_float(0x7fffffffu) : fixed;
}

// What is beyond the codes of the scale has the code at their end.
__device__ inline void input_clamp(float (&values)[8], float most) {
#pragma unroll
  for (int i = 0; i < 8; i++)
    values[i] = fminf(fmaxf(values[i], -most), most);
}

// One row a block, by chunks of 16 elements a thread: one chunk stays in registers, of several each is made twice.
// `staged`: the row is kept in shared memory, which has room for it, and not read from the device's for every element.
template <typename X, bool e4m3>
__global__ void __launch_bounds__(input_threads, 4)
    quantize_input_rows(const uint8_t *x, int64_t x_stride, int k, int k_padded, quantize_input input, bool staged,
                        uint8_t *codes, float *scales) {
  extern __shared__ uint4 input_staged[];
  __shared__ float shared[input_chunk + input_chunk / input_each];
  __shared__ unsigned warps[32];
  quantize_let_reader_start();
  quantize_wait_for_x();
  const X *from = reinterpret_cast<const X *>(x + blockIdx.x * x_stride);
  const bool aligned = k % 8 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0;
  const int chunk = static_cast<int>(blockDim.x) * input_each, own = static_cast<int>(threadIdx.x) * input_each;
  const uint32_t *order = input.order;
  const float *fixed = input.scale;
  const int stages = static_cast<int>(input.stages);
  union {
    float values[input_each];
    float halves[2][8];
  } row;
  unsigned most = 0;
  if (staged) {
    most = input_stage(from, k, aligned, reinterpret_cast<quantize_eight<X> *>(input_staged));
    from = reinterpret_cast<const X *>(input_staged);
    __syncthreads();
  }
  const bool known = staged && stages == 0; // an order changes no magnitude
  const bool kept = k_padded <= chunk && !known;
  for (int first = 0; !known && first < k_padded; first += chunk) {
    input_load(from, order, first + own, k, aligned, row.values);
    input_rotate(shared, row.values, stages);
    most = quantize_magnitude(row.halves[1], quantize_magnitude(row.halves[0], most));
  }
  most = __reduce_max_sync(0xffffffffu, most);
  if (threadIdx.x % 32 == 0)
    warps[threadIdx.x / 32] = most;
  __syncthreads();
  most = __reduce_max_sync(0xffffffffu, threadIdx.x % 32 < blockDim.x / 32 ? warps[threadIdx.x % 32] : 0);
  const quantize_factors factors(fixed != nullptr ? input_scale(most, *fixed) : quantize_scale<e4m3>(most));
  if (threadIdx.x == 0)
    scales[blockIdx.x] = factors.scale;
  uint8_t *to = codes + static_cast<int64_t>(blockIdx.x) * k_padded;
  for (int first = 0; first < k_padded; first += chunk) {
    if (!kept) {
      input_load(from, order, first + own, k, aligned, row.values);
      input_rotate(shared, row.values, stages);
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
      if (!e4m3 && fixed != nullptr)
        input_clamp(row.halves[half], 127.0f * factors.scale);
      if (first + own + 8 * half < k_padded)
        *reinterpret_cast<uint2 *>(to + first + own + 8 * half) = quantize_codes<e4m3>(row.halves[half], factors);
    }
  }
}

constexpr int order_threads = 256;
constexpr int order_columns = 4 * order_threads; // that a block moves of one row, unless it has the row staged

template <typename X>
__global__ void __launch_bounds__(order_threads)
    order_rows(const uint8_t *x, uint64_t x_stride, uint32_t k, uint32_t columns, const uint32_t *order, bool staged,
               X *to) {
  extern __shared__ uint4 input_staged[];
  quantize_let_reader_start();
  quantize_wait_for_x();
  const X *from = reinterpret_cast<const X *>(x + blockIdx.x * x_stride);
  X *row = to + static_cast<uint64_t>(blockIdx.x) * columns;
  const uint32_t begin = blockIdx.y * order_columns, end = staged ? columns : min(begin + order_columns, columns);
  if (staged) {
    const bool aligned = k % 8 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0;
    input_stage(from, static_cast<int>(k), aligned, reinterpret_cast<quantize_eight<X> *>(input_staged));
    from = reinterpret_cast<const X *>(input_staged);
    __syncthreads();
  }
#pragma unroll 4
  for (uint32_t i = begin + threadIdx.x; i < end; i += order_threads) {
    const uint32_t at = i < k ? __ldg(order + i) : 0;
    row[i] = i < k ? from[at < k ? at : 0] : X(0);
  }
}
