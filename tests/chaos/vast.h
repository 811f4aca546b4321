/* Weights too large to be kept, or multiplied with, by a test: every row can be made again from its number. */
#pragma once

#include "proto/gemm.h"

#include <stdbool.h>
#include <stdint.h>

enum { VAST_K = 8192, VAST_FORMATS = 5 };

struct vast {
  struct gemm_weight shape; /* k is VAST_K */
  int index;                /* weights of different ones have nothing in common */
};

/* INT8, FP8, F16, BF16 and INT2 in turn, of about so many bytes. */
struct vast vast_make(int index, uint64_t bytes);
uint64_t vast_bytes(const struct vast *vast);
/* A safetensors file with the tensor "w" and its scales, in memory that goes with the descriptor. -1 where there is too
 * little. */
int vast_file(const struct vast *vast);
/* x, [VAST_K], times one row. */
double vast_product(const struct vast *vast, int64_t row, const double *x);
