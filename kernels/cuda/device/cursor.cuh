// Where in a ring of stages a warp is, and the parity of its barriers there.
#pragma once

#include <cstdint>

struct cursor {
  int stages, stage = 0;
  uint32_t phase = 0;

  __device__ explicit cursor(int all) : stages(all) {}
  __device__ void advance() {
    if (++stage == stages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

// The same of so many.
template <int kStages> struct cursor_of {
  int stage = 0;
  uint32_t phase = 0;

  __device__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};
