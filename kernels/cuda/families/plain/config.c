#include "config.h"

/* Slices that are worth a launch more, blocks that fill a multiprocessor, and slices however full the device is. */
enum { SLICE_LEAST = 2048, BLOCKS_EACH = 2, SLICE_MOST = 32768, SLICES_MOST = 65535 /* of a grid */ };

static int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

struct plain_cut plain_cut(int64_t m, int64_t n, int64_t k, int64_t blocks, int multiprocessors,
                           uint64_t workspace_bytes) {
  int64_t fill = divide_up((int64_t)multiprocessors * BLOCKS_EACH, blocks), brief = divide_up(k, SLICE_MOST);
  int64_t wanted = least(fill > brief ? fill : brief, k / SLICE_LEAST);
  int64_t room = (int64_t)(workspace_bytes / ((uint64_t)m * (uint64_t)n * 4));
  int64_t slices = least(least(wanted, room), SLICES_MOST);
  if (slices <= 1)
    return (struct plain_cut){.slices = 1, .slice_k = k};
  int64_t slice_k = divide_up(divide_up(k, slices), PLAIN_SLICE_ALIGN) * PLAIN_SLICE_ALIGN;
  return (struct plain_cut){.slices = divide_up(k, slice_k), .slice_k = slice_k};
}
