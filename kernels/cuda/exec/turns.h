/* Products that take long, a piece at a time, with others between: runs of rows, and of a W that comes with its product
 * a panel after the other. Between its pieces a product has no slot; what it keeps is its panel. */
#ifndef KERNELS_CUDA_EXEC_TURNS_H
#define KERNELS_CUDA_EXEC_TURNS_H

#include "../../backend.h"
#include "../runtime/memory.h"

enum { CUDA_TURNS = 16 };

struct slot;

struct backend_turns {
  bool taken, abandoned;
  /* What may change between two pieces is its own: which kernels compute it. */
  struct backend_job job;
  struct backend_step steps[GEMM_STEPS_MOST];
  struct variant variants[GEMM_STEPS_MOST];
  int64_t rows, columns; /* of y: of the chain, and of W where that comes with it, else 1 */
  int64_t panel;         /* columns of a panel */
  int64_t row, column;   /* where the next piece begins */
  int64_t next_row;      /* and the one behind the piece on the device */
  int64_t staged;        /* the column at which the panel begins that is on the device; -1: none is */
  struct region operand; /* the panel and what else is staged for it; of no addresses before it is needed */
  uint64_t took_ns;
};

/* The functions of struct backend_ops. */
uint64_t cuda_predict_ns(const struct backend *backend, const struct backend_job *job);
enum status cuda_turns_begin(struct backend *, const struct backend_job *, uint32_t, struct backend_turns **,
                             struct error *);
enum status cuda_turns_submit(struct backend *, struct backend_turns *, uint64_t, struct error *);
void cuda_turns_abandon(struct backend *, struct backend_turns *);
void cuda_rest(struct backend *);
uint64_t cuda_longest_ns(const struct backend *);

/* The piece on the device has ended, after `ns`. True: there is more. */
bool turns_ended(struct backend_turns *turns, enum status status, uint64_t ns);
/* The longest that is predicted of what has been queued in one go. */
void turns_note_longest(struct backend *backend, uint64_t ns);
/* Bytes of the device that all panels take. */
uint64_t turns_bytes(const struct backend *backend);
/* Nothing is under way. */
void turns_close(struct backend *backend);

/* Bytes that one product which brings W may take beside its slot: all of them together a 64th of the device. */
uint64_t turns_operand_bytes(const struct backend *backend);

#endif
