/* A backend as the bench measures it: an arena, a slab with copies of one weight, and one job. */
#pragma once

#include "data.h"
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

/* `copies` times the weight. */
MUST_CHECK enum status subject_load(struct subject *subject, const struct data_weight *weight, int copies,
                                    struct error *error);
void subject_unload(struct subject *subject);

/* Lays out x, y, which is poisoned, and the weight's bias. */
MUST_CHECK enum status subject_stage(struct subject *subject, const struct data_weight *weight, const struct data_x *x,
                                     enum gemm_type y_type, struct error *error);
/* One product with copy `copy`, from submit to poll. */
MUST_CHECK enum status subject_run(struct subject *subject, int copy, struct error *error);
/* Runs the job once and compares y with the reference; INTERNAL where it is off. */
MUST_CHECK enum status subject_check(struct subject *subject, const struct data_weight *weight, const struct data_x *x,
                                     struct error *error);
