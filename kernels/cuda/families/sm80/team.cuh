// What kernels have in common whose warps are in teams: a team's ring in shared memory, filled by copies that no thread
// waits for, and rows of x in it as the right operand of matrix instructions.
#pragma once

#include "../../device/ptx.cuh"

namespace sm80 {

// A warp's place in its block: the team, and which of it.
struct seat {
  int lane, team, mate;
  __device__ explicit seat(int n_warps)
      : lane(threadIdx.x % 32), team(threadIdx.x / 32 / n_warps), mate(threadIdx.x / 32 % n_warps) {}
};

// A team's slots, one after another.
struct ring {
  uint32_t begin, at, end, bytes;
  __device__ ring(uint32_t shared, int team, int stages, int slot_bytes)
      : begin(shared + team * stages * slot_bytes), at(begin), end(begin + stages * slot_bytes), bytes(slot_bytes) {}
  __device__ uint32_t next() {
    const uint32_t slot = at;
    at = at + bytes == end ? begin : at + bytes;
    return slot;
  }
};

// Until no more than so many slots' copies are on their way; a few fewer where that is a simpler question.
__device__ inline void wait_for_copies(int pending) {
  if (pending >= 5)
    ptx::copy_async_wait<5>();
  else if (pending >= 3)
    ptx::copy_async_wait<3>();
  else if (pending == 2)
    ptx::copy_async_wait<2>();
  else if (pending == 1)
    ptx::copy_async_wait<1>();
  else
    ptx::copy_async_wait<0>();
}

__device__ inline void team_sync(int n_warps, const seat &at) {
  if (n_warps == 1)
    __syncwarp();
  else
    ptx::named_barrier_sync(1 + at.team, n_warps * 32);
}

// The first slots, by what copies into them (`source` of the kernels): a launch that follows another reads W ahead of
// its end.
template <typename S> __device__ inline void fill(S &next, ring &to, int ahead, bool dependent) {
#if __CUDA_ARCH__ >= 900
  if (dependent) {
    S early = next;
    ring place = to;
    for (int i = 0; i < ahead; i++, early.advance())
      early.fetch_w(place.next());
  }
  ptx::let_next_grid_start();
  ptx::wait_for_previous_grid();
#endif
  for (int i = 0; i < ahead; i++, next.advance()) {
    const uint32_t slot = to.next();
    if (!dependent)
      next.fetch_w(slot);
    next.fetch_x(slot);
    ptx::copy_async_commit();
  }
}

// A block's turns, in which its warps are not quite in step: each says when its copies for the next turn have arrived,
// and waits for the others only before it begins that turn.
struct turns {
  uint32_t barrier, parity;

  __device__ explicit turns(int warps) : parity(0) {
    __shared__ uint64_t all;
    barrier = ptx::shared_address(&all);
    if (threadIdx.x == 0)
      asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(warps) : "memory");
    __syncthreads();
  }
  __device__ void arrive() {
    __syncwarp();
    if (threadIdx.x % 32 == 0)
      asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(barrier) : "memory");
  }
  __device__ void wait() {
#if __CUDA_ARCH__ >= 900
    ptx::barrier_wait(barrier, parity);
#else
    asm volatile("{\n.reg .pred done;\nagain%=:\nmbarrier.test_wait.parity.shared.b64 done, [%0], %1;\n"
                 "@!done bra again%=;\n}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
#endif
    parity ^= 1;
  }
};

// Of eight rows of x and a step, 32 bytes of each.
struct fragment {
  uint32_t words[2];
};

// Rows of x whose elements are the instructions' own.
template <int kEights> struct plain_x {
  using loaded = fragment;
  static constexpr int turns = kEights > 1 ? kEights / 2 : 1;
  uint32_t at[turns];

  // Rows behind the last one repeat it: nobody reads their sums.
  __device__ plain_x(uint32_t row_bytes, int rows) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < turns; i++) {
      const int row = kEights > 1 ? 16 * i + lane / 16 * 8 + lane % 8 : lane % 8;
      const int unit = kEights > 1 ? lane / 8 % 2 : lane / 8;
      at[i] = min(row, rows - 1) * row_bytes + unit * 16;
    }
  }

  // Into out[step % 2]; of eight rows two steps at once. Of all eights, or of a part of them.
  template <int kPart = 0, int kParts = 1>
  __device__ void load(uint32_t base, int step, fragment (&out)[2][kEights / kParts]) const {
    uint32_t four[4];
    if constexpr (kEights == 1) {
      if (step % 2 != 0)
        return;
      ptx::load_matrices(four, base + at[0] + step * 32);
      out[0][0] = {four[0], four[1]};
      out[1][0] = {four[2], four[3]};
    } else {
#pragma unroll
      for (int i = 0; i < turns / kParts; i++) {
        ptx::load_matrices(four, base + at[kPart * turns / kParts + i] + step * 32);
        out[step % 2][2 * i] = {four[0], four[1]};
        out[step % 2][2 * i + 1] = {four[2], four[3]};
      }
    }
  }
};

} // namespace sm80
