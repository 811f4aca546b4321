// Pieces of a route's tiles, handed out to the blocks of a product as they come for them.
#pragma once

#include "../device/ptx.cuh"
#include "route.h"

namespace experts {

// Calls take(number) for each piece that this block gets, of `each` of every tile, one after another. By a thread.
template <typename Take> __device__ inline void take_pieces(const experts_route &route, int each, Take take) {
  ptx::wait_for_previous_grid();
  const int all = *const_cast<volatile int *>(&route.counts->tiles) * each;
  int next = static_cast<int>(blockIdx.x);
#pragma unroll 1
  while (next < all) {
    const int mine = next;
    next = static_cast<int>(gridDim.x) + atomicAdd(&route.counts->next, 1);
    take(mine);
  }
  if (atomicAdd(&route.counts->done, 1) == static_cast<int>(gridDim.x) - 1) {
    route.counts->next = 0;
    route.counts->done = 0;
  }
}

} // namespace experts
