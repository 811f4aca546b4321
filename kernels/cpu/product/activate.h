/* Between two products of a sequence: activations, and the rounding behind them. */
#pragma once

#include "../../backend.h"
#include "../pool.h"

/* v is [rows, width] dense, width being twice `columns` where gated; out is [rows, columns]. Both of `type`: F32, F16
 * or BF16; apart from each other. */
struct activate_task {
  const void *v;
  void *out;
  uint64_t out_stride; /* bytes */
  int64_t rows, columns;
  enum gemm_type type;
  enum gemm_activation activation;
  bool gated;
};

/* Shared out over the pool where that pays. */
void cpu_activate(struct cpu_pool *pool, const struct activate_task *task);
