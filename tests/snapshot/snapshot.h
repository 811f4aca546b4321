/* What a backend chooses and computes, written as text, to be compared with what another build of it writes: lines that
 * differ are products whose kernel or whose bits have changed. Uses struct backend_ops alone. */
#pragma once

#include "kernels/backend.h"

#include <stdio.h>

enum {
  SNAPSHOT_KINDS = 11,       /* formats with each of their scale modes */
  SNAPSHOT_CANDIDATES = 64,  /* of a list of variants that are looked at */
  SNAPSHOT_OFFSET_ODD = 16,  /* bytes by which tensors of every second product miss the alignment of a vector copy */
  SNAPSHOT_HASH_DIGITS = 16, /* of a hash as text */
  SNAPSHOT_KEPT_BYTES = 1 << 20,
};

extern const struct snapshot_kind {
  enum gemm_format format;
  enum gemm_scale scale;
} snapshot_kinds[SNAPSHOT_KINDS];

/* An open backend with an arena and a slab. */
struct snapshot {
  const struct backend_ops *ops;
  struct backend *backend;
  struct backend_arena *arena;
  uint8_t *base;        /* of the arena */
  uint64_t arena_bytes; /* for the tensors of a product */
  uint8_t *kept;        /* SNAPSHOT_KEPT_BYTES of the arena behind them, which no product's own tensors take */
  struct backend_slab *slab;
  int slab_fd;
  uint64_t slab_bytes;
  uint64_t terms_most; /* multiply-adds of a product that is computed; 0: any */
  bool builds;         /* kernels that are made at run time are asked for, too */
  FILE *out;           /* of the part that is being written */
};

/* ---- data.c: operands that are the same in every run */

/* Of `bytes` bytes; where there are several parts, the hash of those before is `seed`. */
uint64_t snapshot_hash(const void *data, uint64_t bytes, uint64_t seed);
/* splitmix64. */
uint64_t snapshot_random(uint64_t *state);
/* A canonical weight, total_bytes of its layout. The caller frees; NULL: no memory. */
uint8_t *snapshot_weight(const struct gemm_weight *shape, uint64_t seed);
/* Rows of x, `stride` bytes apart: of normal numbers, with outliers, zero, tiny, large, in turns. */
void snapshot_x(uint8_t *out, int64_t m, int64_t k, enum gemm_type type, uint64_t stride, uint64_t seed);
/* Small positive f32 scales. */
void snapshot_scales(float *out, uint64_t count, uint64_t seed);
/* The n-th (cyclic) type that the format takes. */
enum gemm_type snapshot_x_type(enum gemm_format format, int n);
enum gemm_type snapshot_y_type(enum gemm_format format, enum gemm_type x_type, int n);

/* ---- run.c: weights and products on the device */

/* Stores the weight at `offset` of the slab and attaches it; *plan and *checksum say how it lies there. */
MUST_CHECK enum status snapshot_load(struct snapshot *snapshot, const struct gemm_weight *shape, uint64_t offset,
                                     uint64_t seed, struct backend_plan *plan, uint64_t *checksum,
                                     struct backend_weight **out, struct error *error);
/* Submits the job and polls until it is done. */
MUST_CHECK enum status snapshot_finish(struct snapshot *snapshot, const struct backend_job *job, struct error *error);
/* Lays x, its scales, the bias and y of a product out in the arena, y poisoned: fills in the job's pointers and strides
 * from its types and M. `uneven`: strides and addresses as odd as the contract allows. False: the arena is too small.
 */
bool snapshot_stage(struct snapshot *snapshot, const struct gemm_weight *shape, struct backend_job *job, bool uneven);
/* Of the rows of y and what lies between them. */
uint64_t snapshot_y_hash(const struct backend_job *job, int64_t n);

/* ---- the parts, each a file: choices.c, products.c, paths.c */

/* What would be chosen, and what could be, for thousands of problems. */
void snapshot_choices(struct snapshot *snapshot);
/* How weights lie, and y of every kernel that is listed for them. */
void snapshot_products(struct snapshot *snapshot);
/* y by the ways that are not a single product of an arena: chains, sequences, two tensors, memory of the device. */
void snapshot_paths(struct snapshot *snapshot);
