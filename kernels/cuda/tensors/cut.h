/* How a product of two tensors is cut up, so that no piece holds the device for long and what it takes of memory is
 * bounded: into products of the batch, rows and columns of y, and runs of K, whose sums are carried on. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct tensors_cut_problem {
  int64_t m, n, k, batch;
  bool x_far, w_far;    /* lies in the host's memory, and is copied */
  int slices;           /* of K, each with sums of its own; as many as fit are taken */
  uint64_t bytes;       /* of device memory that a piece may use */
  double bytes_per_ns;  /* that the device reads */
  double flops_per_ns;  /* that its kernels reach */
  double copied_per_ns; /* bytes, from the host */
};

/* Sizes of a piece; all but the last ones are of these. */
struct tensors_cut {
  int64_t rows, columns, depth;
  int slices;
  int64_t pieces;
};

struct tensors_piece {
  int64_t product; /* of the batch */
  int64_t row, rows, column, columns, k, depth;
  bool first, last; /* of K */
};

struct tensors_cut tensors_cut(const struct tensors_cut_problem *problem);
/* Runs of K come one after the other, pieces of the same part of y together. */
struct tensors_piece tensors_piece(const struct tensors_cut_problem *problem, const struct tensors_cut *cut,
                                   int64_t index);
/* What all of it takes, about. */
double tensors_cut_ns(const struct tensors_cut_problem *problem);
