// x of a block's tiles in shared memory, beside a ring of stages of W: where it is, and who waits for what.
#pragma once

#include <cstdint>

namespace experts {

// Where the x of a block's tiles are, number by number: two tiles of few rows each beside each other, so that one is
// made while the other is multiplied; a tile of more rows by itself.
struct x_place {
  int number, row; // row: where it begins
  bool large;

  // most: rows that there is room for.
  __device__ x_place(int most, int number, int rows) : number(number) {
    large = rows > most / 2;
    row = large ? 0 : number % 2 * (most / 2);
  }
  __device__ int turn() const {
    return number % 2;
  }
  __device__ uint32_t phase() const {
    return number / 2 % 2;
  }
};

// Barriers, from an address on: of so many stages at most, and of the tiles in turn.
template <int kStages> struct barriers_at {
  static constexpr int pairs = kStages + 2;
  uint32_t barriers;

  __device__ explicit barriers_at(uint32_t begin) : barriers(begin) {}
  __device__ uint32_t full(int stage) const {
    return barriers + 16 * stage;
  }
  __device__ uint32_t empty(int stage) const {
    return full(stage) + 8;
  }
  __device__ uint32_t x_full(int turn) const {
    return full(kStages + turn);
  }
  __device__ uint32_t x_empty(int turn) const {
    return empty(kStages + turn);
  }
};

} // namespace experts
