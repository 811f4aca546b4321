// Where pairs go: sorted by expert, those of an expert in their own order. Blocks share nothing: each counts all ids.
#pragma once

#include "gather_pass.h"

namespace experts {

constexpr int threads = EXPERTS_MOST; // a thread an expert where offsets are summed up
constexpr int range_most = 512;       // pairs of a block
constexpr int at_once = 8;            // ids that a thread has under way

struct counted {
  int all[EXPERTS_MOST], before[EXPERTS_MOST]; // pairs of each expert; of these, those before the block's range
  int first[EXPERTS_MOST];                     // sorted rows before each expert's
  int first_tile[EXPERTS_MOST];
  int warps[2][threads / 32];
  int id[range_most], place[range_most];
  int skipped;
};

__device__ inline int sum_before(int value, int lane) {
  int sum = value;
#pragma unroll
  for (int by = 1; by < 32; by *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, sum, by);
    sum += lane >= by ? other : 0;
  }
  return sum - value;
}

// Counts all ids and sums up what is before each expert. By the whole block.
__device__ inline void count_ids(const gather_pass &p, int64_t begin, counted &s) {
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  s.all[thread] = s.before[thread] = 0;
  if (thread == 0)
    s.skipped = 0;
  __syncthreads();
  for (int64_t i = thread; i < p.pairs; i += at_once * threads) {
    int id[at_once]; // asked for together: each would be waited for by itself
#pragma unroll
    for (int j = 0; j < at_once; j++)
      id[j] = p.ids[min(i + j * threads, p.pairs - 1)];
#pragma unroll
    for (int j = 0; j < at_once; j++) {
      const int64_t pair = i + j * threads;
      if (pair >= p.pairs)
        break;
      if (id[j] < 0 || id[j] >= p.experts) {
        atomicAdd(&s.skipped, 1);
        continue;
      }
      atomicAdd(&s.all[id[j]], 1);
      if (pair < begin)
        atomicAdd(&s.before[id[j]], 1);
    }
  }
  __syncthreads();
  const int rows = s.all[thread], tiles = (rows + p.tile_rows - 1) / p.tile_rows;
  const int row = sum_before(rows, lane), tile = sum_before(tiles, lane);
  if (lane == 31) {
    s.warps[0][warp] = row + rows;
    s.warps[1][warp] = tile + tiles;
  }
  __syncthreads();
  const int rows_before = __reduce_add_sync(0xffffffffu, lane < warp ? s.warps[0][lane] : 0);
  const int tiles_before = __reduce_add_sync(0xffffffffu, lane < warp ? s.warps[1][lane] : 0);
  s.first[thread] = rows_before + row;
  s.first_tile[thread] = tiles_before + tile;
  __syncthreads();
}

// Places of `count` pairs from `begin` on, at most range_most, whose ids are in s.id since before count_ids.
__device__ inline void place_range(const gather_pass &p, int64_t begin, int count, counted &s) {
  for (int i = threadIdx.x; i < count; i += threads) {
    const int id = s.id[i];
    int place = -1;
    if (id >= 0 && id < p.experts) {
      place = s.first[id] + s.before[id];
      for (int j = 0; j < i; j++)
        place += s.id[j] == id;
      p.route.pair[place] = static_cast<int32_t>(begin + i);
    }
    s.place[i] = place;
    p.route.place[begin + i] = place;
  }
  __syncthreads();
}

// Tiles, as even as they can be, and what all kernels behind this one want to know. By one block.
__device__ inline void write_tiles(const gather_pass &p, const counted &s) {
  const int expert = threadIdx.x, rows = s.all[expert], count = (rows + p.tile_rows - 1) / p.tile_rows;
  for (int i = 0, first = 0; i < count; i++) {
    const int some = (rows - first + count - i - 1) / (count - i);
    const int16_t alone = count == 1, beside = i % 2 == 1 ? -1 : i + 1 < count;
    p.route.tiles[s.first_tile[expert] + i] = {expert, s.first[expert] + first, some, alone, beside};
    first += some;
  }
  if (expert == 0 && p.skipped && s.skipped > 0)
    atomicAdd(p.skipped, static_cast<uint32_t>(s.skipped));
  if (expert == EXPERTS_MOST - 1)
    *p.route.counts = {s.first_tile[expert] + count, 0, 0, s.skipped, s.first[expert] + rows};
}

} // namespace experts
