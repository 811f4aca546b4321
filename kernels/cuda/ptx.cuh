// One instruction of Hopper (sm_90a) a wrapper. Addresses of shared memory are those of the shared window, 32 bits.
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

__device__ inline void copy_async_4(uint32_t to, const void *from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
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

// Keeps the compiler from moving uses of an accumulator across asynchronous instructions.
__device__ inline void keep(float &value) {
  asm volatile("" : "+f"(value)::"memory");
}

__device__ inline void keep(uint32_t &value) {
  asm volatile("" : "+r"(value)::"memory");
}

__device__ inline void keep(int &value) {
  asm volatile("" : "+r"(value)::"memory");
}

// Of a K-major operand in rows of 128 bytes whose 16-byte units are swizzled by row % 8; each 8 rows follow the last.
// Adding 2 moves on by 32 bytes of K.
__device__ inline uint64_t swizzled_descriptor(uint32_t address) {
  constexpr uint64_t swizzle_128 = uint64_t(1) << 62, eight_rows = uint64_t(1024 >> 4) << 32, unused = 1 << 16;
  return swizzle_128 | eight_rows | unused | ((address & 0x3ffff) >> 4);
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

__device__ inline void store_shared_int4(uint32_t address, const uint32_t (&value)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value[0]), "r"(value[1]), "r"(value[2]),
               "r"(value[3])
               : "memory");
}

// (word & mask) | bits as one instruction, where the compiler makes two of it for two constants.
__device__ inline uint32_t select_or(uint32_t word, uint32_t mask, uint32_t bits) {
  uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(word), "r"(mask), "r"(bits));
  return out;
}

// ---- a warp's matrix instructions

// Four matrices of 8 x 8 of 16 bits; lane i has the address of row i % 8 of matrix i / 8.
__device__ inline void load_matrices(uint32_t (&out)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
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
