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

__device__ inline void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The address that `address` of this block has in block `rank` of the cluster.
__device__ inline uint32_t map_to_rank(uint32_t address, uint32_t rank) {
  uint32_t mapped;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
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
