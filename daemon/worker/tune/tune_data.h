/* The numbers that a trial computes with, a piece at a time. */
#pragma once

#include "../../../kernels/backend.h"
#include "../../../kernels/operands.h"

enum stage { STAGE_KINDS, STAGE_ROWS, STAGE_W, STAGE_BIAS, STAGE_POISON, STAGE_REFERENCE, STAGE_READY };

struct trial {
  const struct backend_ops *ops;
  struct backend *backend;     /* not owned */
  struct backend_arena *arena; /* not owned; of `base`, for this alone */
  uint8_t *base;
  uint64_t bytes;

  struct variant_problem problem;
  struct backend_job job;           /* all m rows, no variant */
  struct backend_operand operand;   /* of a product of two tensors, whose W is made as x is */
  size_t copies;                    /* of x and W, for the clock */
  bool made;                        /* by the backend, to be given back */
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

/* Where a row of x begins. */
uint8_t *trial_x_row(const struct trial *trial, int64_t row);
/* The next piece of stages KINDS to BIAS: so many elements that are made, or bytes that are copied, about. */
void trial_data_next(struct trial *trial, int64_t elements, uint64_t bytes);
