/* Operands that lie by columns, made row-major a part at a time. */
#pragma once

#include "../pool.h"
#include "pause.h"

/* Rows [row, row + rows) of elements [k, k + k_count) of 16 bits. */
struct turned {
  const void *from; /* [k, rows], `stride` bytes from one element of K to the next */
  uint64_t stride;
  int64_t row, rows, k, k_count;
  uint16_t *to; /* [rows, k_count] */
};

/* By all threads of the pool, with pauses. CANCELLED as of cpu_pause_here. */
MUST_CHECK enum status turned_run(const struct turned *turned, struct cpu_pool *pool, struct cpu_pause *pause,
                                  struct error *error);
