// Products y = x * W^T by tiles of block_m rows of x and block_n rows of W on the matrix instructions of a warp, for
// compute capability 8.0 and later. Compiled at run time: the host defines
//
//   BLOCK_M, BLOCK_N, BLOCK_K   the tile, in elements
//   WARPS_M, WARPS_N, STAGES    how warps share it, and how many steps of K are under way
//   ELEMENT                     0: s8, 1: e4m3, 2: f16, 3: bf16; with W of 2-bit codes x of 4: f16, 5: bf16, 6: s8
//
// Operands of 8 and 16 bits differ in the instruction alone: fragments are 32 bytes of K wide in all of them, and rows
// in shared memory are 16 bytes longer than their data, so that eight rows never meet in a bank.
#include "params.h"

typedef unsigned int u32;
typedef unsigned short u16;

#if ELEMENT < 4
#define OPERAND ELEMENT
#else
#define OPERAND (ELEMENT == 6 ? 0 : ELEMENT - 2)
#endif

constexpr int kBytes = OPERAND < 2 ? 1 : 2; // an element
constexpr int kWarps = WARPS_M * WARPS_N, kThreads = 32 * kWarps;
constexpr int kRowBytes = BLOCK_K * kBytes, kPitch = kRowBytes + 16, kUnits = kRowBytes / 16;
constexpr int kSlotX = BLOCK_M * kPitch; // rows of x, and then W
constexpr int kSlot = kSlotX + (ELEMENT < 4 ? BLOCK_N * kPitch : BLOCK_N / 16 * (BLOCK_K / 128) * 544);
constexpr int kWarpM = BLOCK_M / WARPS_M, kWarpN = BLOCK_N / WARPS_N;
constexpr int kStripPitch = kWarpN + 4, kStrip = 16 * kStripPitch; // words: 16 rows of a warp's sums

static_assert(kRowBytes % 32 == 0, "a fragment is 32 bytes of K wide");
static_assert(kWarpM * WARPS_M == BLOCK_M && kWarpM % 16 == 0, "warps share the rows of x evenly");
static_assert(kWarpN * WARPS_N == BLOCK_N && kWarpN % 16 == 0, "warps share the rows of W evenly");

template <int kElement> struct sum_of { typedef float type; };
template <> struct sum_of<0> { typedef int type; };
typedef sum_of<ELEMENT>::type sum_t;
typedef sum_of<OPERAND>::type part_t; // of one instruction

struct four {
  sum_t v[4];
};

// ---- instructions

__device__ inline void copy_async_16(u32 to, const void *from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

__device__ inline void copies_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int kPending> __device__ inline void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ inline void load_matrices(u32 (&out)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}

// d += a[16, 32 bytes] * b[8, 32 bytes]^T
__device__ inline void multiply(part_t (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if OPERAND == 0
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#elif OPERAND == 1
  // Tensor cores cut off small products of 8 bits: their sums leave after every instruction.
  float part[4] = {};
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(part[0]), "+f"(part[1]), "+f"(part[2]), "+f"(part[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#pragma unroll
  for (int i = 0; i < 4; i++)
    d[i] += part[i];
#elif OPERAND == 2
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

__device__ inline u16 to_half(float value) {
  u16 out;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out) : "f"(value));
  return out;
}

__device__ inline u16 to_bfloat(float value) {
  u16 out;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out) : "f"(value));
  return out;
}

__device__ inline float from_half(u16 value) {
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(value));
  return out;
}

#if ELEMENT >= 4
#include "codes.cuh"
#endif

__device__ inline int load_acquire(const int *at) {
  int value;
  asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}

__device__ inline void store_release(int *at, int value) {
  asm volatile("st.release.gpu.global.b32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}

// ---- elements

__device__ inline float load_as(const void *data, long long i, int type) {
  if (type == TILE_F32)
    return static_cast<const float *>(data)[i];
  const u16 bits = static_cast<const u16 *>(data)[i];
  return type == TILE_F16 ? from_half(bits) : __uint_as_float(static_cast<u32>(bits) << 16);
}

__device__ inline void store_as(void *data, long long i, int type, float value) {
  if (type == TILE_F32)
    static_cast<float *>(data)[i] = value;
  else
    static_cast<u16 *>(data)[i] = type == TILE_F16 ? to_half(value) : to_bfloat(value);
}

// Up to four neighbours of a row; one store where they lie on a boundary of four.
__device__ inline void store_row(void *data, long long i, int type, const float (&value)[4], int count) {
  const unsigned long long at = reinterpret_cast<unsigned long long>(data) + i * (type == TILE_F32 ? 4 : 2);
  if (count == 4 && type == TILE_F32 && at % 16 == 0) {
    *reinterpret_cast<float4 *>(at) = make_float4(value[0], value[1], value[2], value[3]);
  } else if (count == 4 && type != TILE_F32 && at % 8 == 0) {
    u16 out[4];
    for (int j = 0; j < 4; j++)
      out[j] = type == TILE_F16 ? to_half(value[j]) : to_bfloat(value[j]);
    *reinterpret_cast<uint2 *>(at) =
        make_uint2(out[0] | static_cast<u32>(out[1]) << 16, out[2] | static_cast<u32>(out[3]) << 16);
  } else {
    for (int j = 0; j < count; j++)
      store_as(data, i + j, type, value[j]);
  }
}

// sum * w_scale * x_scale + bias, in this order: the sum times W's scale is of W's magnitude. Sums of integers are
// exact, and where y is f32 they stay so up to the last rounding.
__device__ inline float scaled(int sum, float w_scale, float x_scale, float bias, bool exactly) {
  if (exactly)
    return static_cast<float>(
        fma(static_cast<double>(sum) * w_scale, static_cast<double>(x_scale), static_cast<double>(bias)));
  return fmaf(static_cast<float>(sum) * w_scale, x_scale, bias);
}

__device__ inline float scaled(float sum, float w_scale, float x_scale, float bias, bool) {
  return fmaf(sum * w_scale, x_scale, bias);
}

__device__ inline void scale_four(const tile_params &p, const four &sum, int m, int n, int count, bool biased,
                                  float (&value)[4]) {
  const float x_scale = p.x_scale ? p.x_scale[m] : 1.0f;
  for (int j = 0; j < 4; j++) {
    const int at = j < count ? n + j : n;
    const float w_scale = p.w_scale ? p.w_scale[at] : 1.0f;
    const float bias = biased && p.bias ? load_as(p.bias, at, p.bias_type) : 0.0f;
    value[j] = scaled(sum.v[j], w_scale, x_scale, bias, p.y_type == TILE_F32);
  }
}

__device__ inline void write_y(const tile_params &p, const four &sum, int m, int n) {
  char *row = static_cast<char *>(p.y) + m * p.y_stride;
  const int count = min(4, p.n - n);
  if (p.y_type == TILE_S32) {
    for (int j = 0; j < count; j++)
      reinterpret_cast<sum_t *>(row)[n + j] = sum.v[j];
    return;
  }
  float value[4];
  scale_four(p, sum, m, n, count, true, value);
  store_row(row, n, p.y_type, value, count);
}

// ---- sums of slices in global memory, past L1, which other blocks' stores do not reach

__device__ inline four load_four(const void *from, long long i) {
  const int4 bits = __ldcg(reinterpret_cast<const int4 *>(static_cast<const int *>(from) + i));
  four out;
  memcpy(&out, &bits, sizeof out);
  return out;
}

__device__ inline void store_four(void *to, long long i, const four &sum) {
  int4 bits;
  memcpy(&bits, &sum, sizeof bits);
  __stcg(reinterpret_cast<int4 *>(static_cast<int *>(to) + i), bits);
}

__device__ inline void add(four &sum, const four &part) {
  for (int j = 0; j < 4; j++)
    sum.v[j] += part.v[j];
}

// Four sums of slice `slice` to where they belong.
__device__ inline void leave(const tile_params &p, four sum, int slice, int m, int n) {
  const bool parallel = p.split_k > 1 && p.split_k_mode != TILE_SERIAL;
  if (!parallel) {
    const long long at = m * p.sums_stride + n;
    if (slice > 0)
      add(sum, load_four(p.sums, at));
    if (slice < p.split_k - 1)
      store_four(p.sums, at, sum);
    else
      write_y(p, sum, m, n);
    return;
  }
  const long long at = (static_cast<long long>(slice) * p.m + m) * p.sums_stride + n;
  if (p.split_k_mode == TILE_PARALLEL || p.y_type == TILE_S32) {
    store_four(p.sums, at, sum);
    return;
  }
  float value[4];
  scale_four(p, sum, m, n, min(4, p.n - n), false, value);
  store_row(p.sums, at, p.y_type, value, 4);
}

// ---- the product

struct place {
  int m, n;        // first row of x and of W
  int slice, tile; // of K, of y
  int begin, end;  // steps of K
};

// Tiles come in groups of group_size_m rows of tiles, so that neighbours share rows of W in L2. Slices of a tile that
// wait for each other must have begun in order: they take numbers when they start.
__device__ inline place find_place(const tile_params &p, int *number) {
  const int tiles = p.tiles_m * p.tiles_n;
  int id = blockIdx.x;
  if (p.split_k > 1 && p.split_k_mode == TILE_SERIAL) {
    if (threadIdx.x == 0)
      *number = atomicAdd(p.turns + tiles, 1);
    __syncthreads();
    id = *number;
    __syncthreads();
  }
  place out;
  out.slice = id / tiles;
  out.tile = id % tiles;
  const int width = p.group_size_m * p.tiles_n, first = out.tile / width * p.group_size_m;
  const int high = min(p.tiles_m - first, p.group_size_m), within = out.tile % width;
  out.m = (first + within % high) * BLOCK_M;
  out.n = within / high * BLOCK_N;
  out.begin = static_cast<int>(static_cast<long long>(p.steps) * out.slice / p.split_k);
  out.end = static_cast<int>(static_cast<long long>(p.steps) * (out.slice + 1) / p.split_k);
  return out;
}

// One step of K, of rows of x and then of W; zeros behind the last row and the last byte.
__device__ inline void load_step(const tile_params &p, const place &at, int step, u32 slot) {
  constexpr int units = (ELEMENT < 4 ? BLOCK_M + BLOCK_N : BLOCK_M) * kUnits;
  const int first_byte = step * kRowBytes;
#pragma unroll 4
  for (int u = threadIdx.x; u < units; u += kThreads) {
    const int row = u / kUnits, byte = first_byte + u % kUnits * 16;
    const bool of_x = row < BLOCK_M;
    const int from = of_x ? at.m + row : at.n + row - BLOCK_M, rows = of_x ? p.m : p.n;
    const bool there = from < rows && byte < p.row_bytes;
    const char *base = static_cast<const char *>(of_x ? p.x : p.w);
    const char *source = there ? base + from * (of_x ? p.x_stride : p.w_stride) + byte : base;
    copy_async_16(slot + row * kPitch + u % kUnits * 16, source, there ? 16 : 0);
  }
#if ELEMENT >= 4
  load_codes(p, at.n, step, slot + kSlotX);
#endif
}

__device__ inline void multiply_step(sum_t (&sum)[kWarpM / 16][kWarpN / 8][4], u32 slot, int warp_m, int warp_n,
                                     int lane) {
  const u32 x = slot + (warp_m * kWarpM + lane % 16) * kPitch + lane / 16 * 16;
#if ELEMENT >= 4
  multiply_codes(sum, x, slot + kSlotX + warp_n * (kWarpN / 16) * kGroups * kUnitSlot, lane);
#else
  const u32 w = slot + (BLOCK_M + warp_n * kWarpN + lane / 16 * 8 + lane % 8) * kPitch + lane / 8 % 2 * 16;
#pragma unroll
  for (int k = 0; k < kRowBytes; k += 32) {
    u32 a[kWarpM / 16][4];
#pragma unroll
    for (int i = 0; i < kWarpM / 16; i++)
      load_matrices(a[i], x + i * 16 * kPitch + k);
#pragma unroll
    for (int j = 0; j < kWarpN / 16; j++) {
      u32 b[4];
      load_matrices(b, w + j * 16 * kPitch + k);
#pragma unroll
      for (int i = 0; i < kWarpM / 16; i++) {
        multiply(sum[i][2 * j], a[i], b[0], b[1]);
        multiply(sum[i][2 * j + 1], a[i], b[2], b[3]);
      }
    }
  }
#endif
}

// 16 rows of a warp's sums at a time go through shared memory, so that whole runs of a row are written.
__device__ inline void leave_sums(const tile_params &p, const place &at, const sum_t (&sum)[kWarpM / 16][kWarpN / 8][4],
                                  sum_t *strip, int warp_m, int warp_n, int lane) {
  constexpr int fours = kWarpN / 4;
#pragma unroll
  for (int i = 0; i < kWarpM / 16; i++) {
    sum_t *to = strip + lane / 4 * kStripPitch + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < kWarpN / 8; j++) {
      to[8 * j] = sum[i][j][0];
      to[8 * j + 1] = sum[i][j][1];
      to[8 * j + 8 * kStripPitch] = sum[i][j][2];
      to[8 * j + 8 * kStripPitch + 1] = sum[i][j][3];
    }
    __syncwarp();
    for (int item = lane; item < 16 * fours; item += 32) {
      const int row = item / fours, column = item % fours * 4;
      const int m = at.m + warp_m * kWarpM + 16 * i + row, n = at.n + warp_n * kWarpN + column;
      four value;
      memcpy(&value, strip + row * kStripPitch + column, sizeof value);
      if (m < p.m && n < p.n)
        leave(p, value, at.slice, m, n);
    }
    __syncwarp();
  }
}

__device__ inline void multiply_slice(const tile_params &p, const place &at, u32 ring,
                                      sum_t (&sum)[kWarpM / 16][kWarpN / 8][4], int warp_m, int warp_n, int lane) {
  if (STAGES == 1) {
    for (int step = at.begin; step < at.end; step++) {
      load_step(p, at, step, ring);
      copies_commit();
      copies_wait<0>();
      __syncthreads();
      multiply_step(sum, ring, warp_m, warp_n, lane);
      __syncthreads();
    }
    return;
  }
  constexpr int ahead = STAGES > 1 ? STAGES - 1 : 1;
#pragma unroll
  for (int i = 0; i < ahead; i++) {
    if (at.begin + i < at.end)
      load_step(p, at, at.begin + i, ring + i * kSlot);
    copies_commit();
  }
  int slot = 0, next = ahead;
  for (int step = at.begin; step < at.end; step++) {
    copies_wait<ahead - 1>();
    __syncthreads();
    if (step + ahead < at.end)
      load_step(p, at, step + ahead, ring + next * kSlot);
    copies_commit();
    multiply_step(sum, ring + slot * kSlot, warp_m, warp_n, lane);
    slot = slot + 1 == STAGES ? 0 : slot + 1;
    next = next + 1 == STAGES ? 0 : next + 1;
  }
  copies_wait<0>();
  __syncthreads();
}

// With codes, and FP8, the compiler would rather spill a few registers to have more blocks on a multiprocessor.
#if ELEMENT < 4 && ELEMENT != 1
#define BOUNDS kThreads
#else
#define BOUNDS kThreads, 1
#endif

extern "C" __global__ void __launch_bounds__(BOUNDS) tile_product(const tile_params p) {
  extern __shared__ __align__(16) char shared[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warp_m = warp % WARPS_M, warp_n = warp / WARPS_M;
  const place at = find_place(p, reinterpret_cast<int *>(shared));
  sum_t sum[kWarpM / 16][kWarpN / 8][4] = {};
  multiply_slice(p, at, static_cast<u32>(__cvta_generic_to_shared(shared)), sum, warp_m, warp_n, lane);
  const bool turns = p.split_k > 1 && p.split_k_mode == TILE_SERIAL;
  if (turns && threadIdx.x == 0)
    while (load_acquire(p.turns + at.tile) != at.slice)
      __nanosleep(100);
  if (turns)
    __syncthreads();
  leave_sums(p, at, sum, reinterpret_cast<sum_t *>(shared) + warp * kStrip, warp_m, warp_n, lane);
  if (!turns)
    return;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0)
    store_release(p.turns + at.tile, at.slice + 1);
}

// Behind slices that wrote sums of their own.
extern "C" __global__ void __launch_bounds__(256) tile_join(const tile_params p) {
  const long long fours = p.sums_stride / 4, slice = p.m * p.sums_stride;
  const long long item = static_cast<long long>(blockIdx.x) * 256 + threadIdx.x;
  const int m = static_cast<int>(item / fours), n = static_cast<int>(item % fours) * 4;
  if (m >= p.m || n >= p.n)
    return;
  const long long at = m * p.sums_stride + n;
  if (p.split_k_mode == TILE_PARALLEL || p.y_type == TILE_S32) {
    four sum = {};
    for (int z = 0; z < p.split_k; z++)
      add(sum, load_four(p.sums, z * slice + at));
    write_y(p, sum, m, n);
    return;
  }
  float value[4];
  const int count = min(4, p.n - n);
  for (int j = 0; j < 4; j++)
    value[j] = p.bias && j < count ? load_as(p.bias, n + j, p.bias_type) : 0.0f;
  for (int z = 0; z < p.split_k; z++)
    for (int j = 0; j < 4; j++)
      value[j] += load_as(p.sums, z * slice + at + j, p.y_type);
  store_row(static_cast<char *>(p.y) + m * p.y_stride, n, p.y_type, value, count);
}
