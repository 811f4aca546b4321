/* How long jobs and pieces of such are predicted to take on the device, and what they may take of its memory. */
#pragma once

#include "../state.h"

/* As in struct backend_ops. */
uint64_t cuda_predict_ns(const struct backend *backend, const struct backend_job *job);
uint64_t cuda_longest_ns(const struct backend *backend);

/* Rows of the chain. */
int64_t predict_rows_of(const struct backend_job *job);
/* Rows of the next piece, for so long; the longest is noted. */
int64_t predict_piece(struct backend *backend, const struct backend_turns *turns, uint64_t budget_ns);
/* The longest of what has been queued in one go. */
void predict_note(struct backend *backend, uint64_t ns);
