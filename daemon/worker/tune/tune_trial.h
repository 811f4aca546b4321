/* The trial of kernels for one shape: data to compute with, what must come out, and the comparison. In pieces, because
 * requests wait for the end of a piece.
 *
 * Rows of x repeat the kinds of kernels/operands.h. So five rows by the plain kernel say what every row of y must be,
 * and a kernel that mixes rows up is found, because five is no block size. */
#ifndef WORKER_TUNE_TUNE_TRIAL_H
#define WORKER_TUNE_TUNE_TRIAL_H

#include "../../../kernels/backend.h"
#include "../../../kernels/operands.h"

struct trial {
  const struct backend_ops *ops;
  struct backend *backend;     /* not owned */
  struct backend_arena *arena; /* not owned; of `base`, for this alone */
  uint8_t *base;
  uint64_t bytes;

  struct variant_problem problem;
  struct backend_job job;           /* all m rows, no variant */
  uint64_t reference;               /* offset of OPERANDS_KINDS rows, as wide as those of y */
  uint64_t used;                    /* bytes of base */
  int stage;                        /* of the preparation */
  int64_t place;                    /* within the stage: a row, a byte or a column */
  int64_t columns;                  /* of the plain kernel in one piece */
  double own_error[OPERANDS_KINDS]; /* of the first variant that was compared: the backend's own choice */
  bool own_known;

  struct variant variant;  /* that is being compared */
  bool ragged;             /* second pass, with fewer rows than the bucket's */
  int64_t m;               /* of this pass */
  bool launched, failed;   /* failed: the kernel could not run */
  double difference, norm; /* sums of squares of the row at `place` up to `column` */
  int64_t column;
  double error[OPERANDS_KINDS]; /* worst of this variant */
};

/* What a piece takes, about. */
uint64_t trial_piece_ns(const struct trial *trial);

/* TOO_LARGE where x and y do not fit, INVALID where the weight is not of the problem's shape. */
MUST_CHECK enum status trial_start(struct trial *trial, const struct variant_problem *problem,
                                   struct backend_weight *weight, struct error *error);
/* One piece of the preparation; *ready at the end. */
MUST_CHECK enum status trial_prepare(struct trial *trial, bool *ready, struct error *error);

/* Begins to compare a variant that variant_check has passed, or one without a family: the backend's own choice, which
 * must be the first. Only after the preparation. */
void trial_compare(struct trial *trial, const struct variant *variant);
/* One piece of the comparison; *done at the end, and then *right. Where the kernel could not run, *right is false.
 * DEVICE_LOST is the only failure. `why` receives what was wrong. */
MUST_CHECK enum status trial_compare_next(struct trial *trial, bool *done, bool *right, char *why, size_t why_bytes,
                                          struct error *error);
/* True where the next piece is a launch of the kernel that is being compared. */
bool trial_launches_next(const struct trial *trial);

#endif
