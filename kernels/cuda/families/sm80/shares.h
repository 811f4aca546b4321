/* How steps along K of all tiles, one tile after another, are shared out to the blocks of a launch: evenly, and where
 * as many blocks have each tile, so that none has parts of two. Pure; read by C and CUDA. */
#pragma once

#include <stdint.h>

struct sm80_shares {
  int steps;         /* of a tile */
  int span, blocks;  /* steps that so many blocks share: of one tile, or all */
  int least, longer; /* steps of one of them; the first `longer` have one more */
  int parts;         /* tiles of which a block may have no more than a part: 0, 1, or that it begins and ends with, 2 */
};

/* tiles * steps is at most INT32_MAX, and `blocks` no more than that. */
static inline struct sm80_shares sm80_shares_of(int tiles, int steps, int blocks) {
  struct sm80_shares out;
  const int of_one = blocks % tiles == 0;
  out.steps = steps;
  out.span = of_one ? steps : tiles * steps;
  out.blocks = of_one ? blocks / tiles : blocks;
  out.least = out.span / out.blocks;
  out.longer = out.span % out.blocks;
  out.parts = of_one ? out.blocks > 1 : steps == 1 || tiles % blocks == 0 ? 0 : 2;
  return out;
}

#ifdef __CUDACC__
namespace sm80 {

// Steps of the blocks before.
__device__ inline int steps_before(const sm80_shares &s, int block) {
  const int at = block % s.blocks;
  return block / s.blocks * s.span + at * s.least + min(at, s.longer);
}

// The block that has a step.
__device__ inline int block_of(const sm80_shares &s, int step) {
  const int at = step % s.span, rest = at - s.longer * (s.least + 1);
  return step / s.span * s.blocks + (rest < 0 ? at / (s.least + 1) : s.longer + rest / s.least);
}

} // namespace sm80
#endif
