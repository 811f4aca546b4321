/* How long pieces of work take, roughly: by all threads of a slow machine, so that it is rather less. For deciding
 * where to pause, not for choosing kernels. */
#pragma once

#include <stdint.h>

/* In a nanosecond: multiply-adds, by ours and a library's; elements of x that are staged, or of W that
 * are laid out; bytes of W that are read. */
enum { COST_TERMS = 64, COST_LIBRARY_TERMS = 256, COST_STAGED = 1, COST_READ = 8 };

/* m rows with `elements` of W, which take so many bytes. */
static inline uint64_t cost_product_ns(int64_t m, uint64_t elements, uint64_t bytes) {
  return elements / COST_TERMS * (uint64_t)m + elements % COST_TERMS * (uint64_t)m / COST_TERMS + bytes / COST_READ;
}

static inline uint64_t cost_stage_ns(int64_t m, int64_t k) {
  return (uint64_t)m * (uint64_t)k / COST_STAGED;
}
