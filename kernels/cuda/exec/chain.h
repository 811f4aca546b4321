/* The tensors of a chain of jobs, as if their rows lay behind each other; queued on a slot's stream. */
#pragma once

#include "../passes/rows.h"
#include "../state.h"

enum chain_tensor { CHAIN_X, CHAIN_X_SCALES, CHAIN_Y };

/* Rows `row` .. `row + rows - 1` of all jobs from `jobs` on. */
struct chain {
  const struct backend_job *jobs;
  int64_t row, rows;
};

/* Columns of y of a job, be it one product or a sequence. */
int64_t chain_columns(const struct backend_job *job);
/* The device's addresses of up to ROW_TABLE rows from the chain's row `from` on. Returns how many; 0 where the device
 * cannot reach one of them. */
int chain_table(const struct chain *chain, enum chain_tensor tensor, int64_t from, struct row_table *out);
/* To dense rows on the device, and y back from there. */
cudaError_t chain_in(struct slot *slot, const struct chain *chain, enum chain_tensor tensor, void *device,
                     uint64_t device_stride);
cudaError_t chain_out(struct slot *slot, const struct chain *chain, void *device, uint64_t device_stride);
