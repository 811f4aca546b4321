/* A product that takes long, between two of its pieces: runs of rows, and of a W that comes with its product a panel
 * after the other. It has no slot then; what it keeps is its panel. */
#pragma once

#include "../../../backend.h"
#include "../../runtime/memory.h"

enum { CUDA_TURNS = 16 };

struct backend_turns {
  bool taken, abandoned;
  /* What may change between two pieces is its own: which kernels compute it. */
  struct backend_job job;
  struct backend_step steps[GEMM_STEPS_MOST];
  struct variant variants[GEMM_STEPS_MOST];
  bool tensors;          /* a job of exec/tensors.h, of whose pieces there are `rows` */
  int64_t rows, columns; /* of y: of the chain, and of W where that comes with it, else 1 */
  int64_t panel;         /* columns of a panel */
  int64_t row, column;   /* where the next piece begins */
  int64_t next_row;      /* and the one behind the piece on the device */
  int64_t staged;        /* the column at which the panel begins that is on the device; -1: none is */
  struct region operand; /* the panel and what else is staged for it; of no addresses before it is needed */
  uint64_t took_ns;
  uint32_t skipped; /* pairs whose id is no expert, so far */
};

/* Columns of the panel that is multiplied with next. */
int64_t turn_columns(const struct backend_turns *turns);
/* The piece on the device has ended, after `ns`. True: there is more. */
bool turn_ended(struct backend_turns *turns, enum status status, uint64_t ns);
