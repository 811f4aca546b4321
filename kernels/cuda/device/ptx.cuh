// One instruction a wrapper, of Hopper (sm_90a) where nothing else is said. Addresses of shared memory are those of the
// shared window, 32 bits.
#pragma once

#include <cstdint>

namespace ptx {

__device__ inline uint32_t shared_address(const void *pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// ---- copies from global to shared memory that no thread waits for

// 16 bytes, past L1; zeros where `bytes` is 0.
__device__ inline void copy_async_16(uint32_t to, const void *from, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

// 4 bytes.
__device__ inline void copy_async_4(uint32_t to, const void *from, uint32_t bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

// The same of what is read once: it leaves the L2 first. ptxas 13.0 writes an instruction that the device refuses where
// it can split the shared address into a lane's part and one of the whole warp, so a mask that changes nothing keeps
// the two together; in a cluster the block's rank is in bits 24 to 27.
__device__ inline void copy_async_16_once(uint32_t to, const void *from, uint32_t bytes, uint64_t policy) {
  asm volatile("{\n.reg .b32 at;\nand.b32 at, %0, 0xfffffff;\n"
               "cp.async.cg.shared.global.L2::cache_hint [at], [%1], 16, %2, %3;\n}" ::"r"(to),
               "l"(from), "r"(bytes), "l"(policy)
               : "memory");
}

__device__ inline void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int kPending> __device__ inline void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// What this thread has written to shared memory becomes visible to the tensor cores.
__device__ inline void fence_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A barrier of shared memory that `count` arrivals complete.
__device__ inline void barrier_init(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

// Barriers that this thread has made may be used by copies.
__device__ inline void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives, and has the phase wait for so many bytes of copies, too.
__device__ inline void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Until the phase of this parity is complete.
__device__ inline void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile("{\n.reg .pred done;\nagain%=:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@!done bra again%=;\n}" ::"r"(barrier),
               "r"(parity)
               : "memory");
}

// For what is read once.
__device__ inline uint64_t policy_evict_first() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// For what is read again soon.
__device__ inline uint64_t policy_evict_normal() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// `bytes`, and both addresses, are multiples of 16; the barrier counts them.
__device__ inline void copy_bulk(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier, uint64_t policy) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], "
               "%4;" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
               : "memory");
}

// A box of a matrix from column `column` and row `row` on.
__device__ inline void copy_tensor(uint32_t to, const void *map, int column, int row, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          to),
      "l"(map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}

// The same of what is read once.
__device__ inline void copy_tensor_once(uint32_t to, const void *map, int column, int row, uint32_t barrier,
                                        uint64_t policy) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
               "[%1, {%2, %3}], [%4], %5;" ::"r"(to),
               "l"(map), "r"(column), "r"(row), "r"(barrier), "l"(policy)
               : "memory");
}

__device__ inline void prefetch_tensor_map(const void *map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// ---- warps of different trades

template <int kCount> __device__ inline void registers_increase() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

template <int kCount> __device__ inline void registers_decrease() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

// Until so many threads have come.
__device__ inline void named_barrier_sync(int name, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

// The same; whether any of them says so.
__device__ inline bool named_barrier_or(int name, int threads, bool says) {
  uint32_t any;
  asm volatile("{\n.reg .pred in, out;\nsetp.ne.u32 in, %3, 0;\nbarrier.cta.red.or.pred out, %1, %2, in;\n"
               "selp.u32 %0, 1, 0, out;\n}"
               : "=r"(any)
               : "r"(name), "r"(threads), "r"(static_cast<uint32_t>(says))
               : "memory");
  return any != 0;
}

// Comes to the same, and goes on.
__device__ inline void named_barrier_arrive(int name, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

// ---- words that blocks wait for, in the memory that they share

__device__ inline void store_relaxed(uint4 *to, uint4 value) {
  asm volatile("st.relaxed.gpu.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(value.x), "r"(value.y),
               "r"(value.z), "r"(value.w)
               : "memory");
}

__device__ inline uint4 load_relaxed(const uint4 *from) {
  uint4 value;
  asm volatile("ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
}

// ---- warpgroup matrix instructions; wgmma.cuh has the products themselves

__device__ inline void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int kPending> __device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// threadIdx.x, read here and now: it takes no register before.
__device__ inline uint32_t thread() {
  uint32_t index;
  asm volatile("mov.u32 %0, %tid.x;" : "=r"(index));
  return index;
}

// The same of blockIdx.x.
__device__ inline uint32_t block() {
  uint32_t index;
  asm volatile("mov.u32 %0, %ctaid.x;" : "=r"(index));
  return index;
}

// Keeps the compiler from moving uses of an accumulator across asynchronous instructions.
__device__ inline void keep(float &value) {
  asm volatile("" : "+f"(value)::"memory");
}

__device__ inline void keep(uint32_t &value) {
  asm volatile("" : "+r"(value)::"memory");
}

__device__ inline void keep(const uint8_t *&value) {
  asm volatile("" : "+l"(value)::"memory");
}

__device__ inline void keep(int &value) {
  asm volatile("" : "+r"(value)::"memory");
}

// Zero, which the assembler does not know: what it is added to stays in a register, where a constant or the number of a
// lane would be made again each time. All lanes of the warp.
__device__ inline uint32_t unknown_zero() {
  uint32_t lane;
  asm volatile("shfl.sync.idx.b32 %0, %1, %1, 31, 0xffffffff;" : "=r"(lane) : "r"(threadIdx.x % 32));
  return lane >> 5;
}

// The value, which the assembler does not know how to make again, so that it stays in a register. All lanes of the
// warp.
__device__ inline uint32_t held(uint32_t value) {
  uint32_t out;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;"
               : "=r"(out)
               : "r"(value + unknown_zero()), "r"(threadIdx.x % 32));
  return out;
}

// Of a K-major operand in rows of 128 bytes whose 16-byte units are swizzled by row % 8; each 8 rows follow the last.
// Adding 2 moves on by 32 bytes of K.
__device__ inline uint64_t swizzled_descriptor(uint32_t address) {
  constexpr uint64_t swizzle_128 = uint64_t(1) << 62, eight_rows = uint64_t(1024 >> 4) << 32, unused = 1 << 16;
  return swizzle_128 | eight_rows | unused | ((address & 0x3ffff) >> 4);
}

// Of an operand of 16-bit numbers whose rows of K are eight numbers long, eight of them a core matrix: bytes from one
// core matrix to the next along K, and to that of the next eight rows of the operand.
__device__ inline uint64_t core_descriptor(uint32_t address, uint32_t along_k, uint32_t across) {
  return uint64_t(across >> 4) << 32 | uint64_t(along_k >> 4) << 16 | (address & 0x3ffff) >> 4;
}

// ---- clusters of blocks

__device__ inline void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

// For what needs no order of memory: leaving.
__device__ inline void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

__device__ inline void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The address that `address` of this block has in block `rank` of the cluster.
__device__ inline uint32_t map_to_rank(uint32_t address, uint32_t rank) {
  uint32_t mapped;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

__device__ inline uint32_t load_cluster(uint32_t address) {
  uint32_t value;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

__device__ inline int4 load_cluster_int4(uint32_t address) {
  int4 value;
  asm volatile("ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address)
               : "memory");
  return value;
}

// 16 bytes to a block of the cluster, counted by a barrier there; whoever sends may end before they arrive.
__device__ inline void store_async(uint32_t to, int4 value, uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
               "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w), "r"(barrier)
               : "memory");
}

__device__ inline int4 load_shared_int4(uint32_t address) {
  int4 value;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address)
               : "memory");
  return value;
}

// ---- shared memory and registers

__device__ inline uint32_t load_shared(uint32_t address) {
  uint32_t value;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

__device__ inline uint2 load_shared_uint2(uint32_t address) {
  uint2 value;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "r"(address) : "memory");
  return value;
}

__device__ inline uint4 load_shared_uint4(uint32_t address) {
  const int4 value = load_shared_int4(address);
  return make_uint4(value.x, value.y, value.z, value.w);
}

__device__ inline void store_shared_int4(uint32_t address, int4 value) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value.x), "r"(value.y), "r"(value.z),
               "r"(value.w)
               : "memory");
}

__device__ inline void store_shared_int4(uint32_t address, const uint32_t (&value)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value[0]), "r"(value[1]), "r"(value[2]),
               "r"(value[3])
               : "memory");
}

__device__ inline void store_shared(uint32_t address, uint32_t value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

// 16 bytes, if `wanted`.
__device__ inline void load_shared_int4_if(uint32_t (&value)[4], uint32_t address, bool wanted) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n@p ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
               : "+r"(value[0]), "+r"(value[1]), "+r"(value[2]), "+r"(value[3])
               : "r"(address), "r"(static_cast<int>(wanted))
               : "memory");
}

__device__ inline void store_shared_byte(uint32_t address, uint32_t value) {
  asm volatile("st.shared.b8 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

// (word & mask) | bits as one instruction, where the compiler makes two of it for two constants.
__device__ inline uint32_t select_or(uint32_t word, uint32_t mask, uint32_t bits) {
  uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(word), "r"(mask), "r"(bits));
  return out;
}

// The same of (word & mask) ^ bits.
__device__ inline uint32_t select_xor(uint32_t word, uint32_t mask, uint32_t bits) {
  uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(out) : "r"(word), "r"(mask), "r"(bits));
  return out;
}

// NaN if either is.
__device__ inline float max_nan(float left, float right) {
  float out;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(left), "f"(right));
  return out;
}

// Into the L2: `bytes`, and the address, are multiples of 16.
__device__ inline void prefetch_bulk(const void *from, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// 16 bytes of what is read once, past L1, if `wanted`.
__device__ inline void load_once(uint4 &value, const void *from, bool wanted) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n"
               "@p ld.global.nc.L1::no_allocate.L2::128B.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
               : "+r"(value.x), "+r"(value.y), "+r"(value.z), "+r"(value.w)
               : "l"(from), "r"(static_cast<int>(wanted)));
}

// From sm_89 on: two of the four e4m3 codes of a word, the lower or the upper ones, as f16.
template <int kHalf> __device__ inline uint32_t e4m3_to_f16(uint32_t codes) {
  uint32_t out;
  if (kHalf == 0)
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.rn.f16x2.e4m3x2 %0, low;\n}" : "=r"(out) : "r"(codes));
  else
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.rn.f16x2.e4m3x2 %0, high;\n}" : "=r"(out) : "r"(codes));
  return out;
}

// ---- a warp's matrix instructions

// d[16, 8] += a[16, 32] * b[8, 32]^T.
__device__ inline void mma_s8(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four matrices of 8 x 8 of 16 bits; lane i has the address of row i % 8 of matrix i / 8.
__device__ inline void load_matrices(uint32_t (&out)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}

// The same, transposed.
__device__ inline void load_matrices_transposed(uint32_t (&out)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}

// Four matrices of 8 x 8 of 16 bits from registers; lane i has the address of row i % 8 of matrix i / 8.
__device__ inline void store_matrices(uint32_t address, const uint32_t (&value)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value[0]),
               "r"(value[1]), "r"(value[2]), "r"(value[3])
               : "memory");
}

// Two matrices of 8 x 8 of 16 bits from registers as matrix instructions have them, transposed; addresses as above.
__device__ inline void store_matrices_transposed(uint32_t address, const uint32_t *value) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(value[0]),
               "r"(value[1])
               : "memory");
}

// The same of four.
__device__ inline void store_four_matrices_transposed(uint32_t address, const uint32_t (&value)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value[0]),
               "r"(value[1]), "r"(value[2]), "r"(value[3])
               : "memory");
}

// d[16, 8] = a[16, 16] * b[8, 16]^T + c.
__device__ inline void mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

__device__ inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

// d[16, 8] = a[16, 32] * b[8, 32]^T + c of a 2:4 sparse a: 16 numbers a row, and metadata from the lanes that the
// selector says which of b's rows each takes.
template <int kSelector>
__device__ inline void mma_sparse_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[4],
                                      const float (&c)[4], uint32_t metadata) {
  asm("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9, %10, %11}, {%12, %13, %14, %15}, %16, %17;"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "f"(c[0]), "f"(c[1]),
        "f"(c[2]), "f"(c[3]), "r"(metadata), "n"(kSelector));
}

// ---- dependent launches

// Until the kernel before this one has ended and what it wrote can be read.
__device__ inline void wait_for_previous_grid() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// The next kernel of the stream may start, if it was launched as a dependent one.
__device__ inline void let_next_grid_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

} // namespace ptx
