/* A backend as the bench measures it: an arena, a slab with copies of one weight, and one job. */
#ifndef BENCH_SUBJECT_H
#define BENCH_SUBJECT_H

#include "kernels/backend.h"

struct subject {
  const struct backend_ops *ops;
  struct backend *backend;     /* owned */
  struct backend_arena *arena; /* owned */
  uint8_t *base;               /* owned; of the arena */
  uint64_t arena_bytes;
  struct backend_slab *slab; /* owned; NULL between weights */
  int slab_fd;               /* owned; -1 between weights */
  int copies;
  struct backend_weight **weights; /* owned; [copies] */
  struct backend_job job;
};

/* An arena with room for x and y of m rows up to these sizes. */
MUST_CHECK enum status subject_open(struct subject *subject, const struct backend_ops *ops,
                                    const struct backend_config *config, uint64_t arena_bytes, struct error *error);
void subject_close(struct subject *subject);

/* `copies` times a weight of random codes. */
MUST_CHECK enum status subject_load(struct subject *subject, const struct gemm_weight *shape, int copies,
                                    struct error *error);
void subject_unload(struct subject *subject);

/* Lays out x, random f32 (f16, bf16 where the weight takes nothing else), and y, f32. */
MUST_CHECK enum status subject_stage(struct subject *subject, const struct gemm_weight *shape, int64_t m,
                                     struct error *error);
/* One product with copy `copy`, from submit to poll. */
MUST_CHECK enum status subject_run(struct subject *subject, int copy, struct error *error);

#endif
