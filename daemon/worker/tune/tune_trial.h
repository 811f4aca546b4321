/* The trial of kernels for one shape: data to compute with, what must come out, and the comparison. In pieces, because
 * requests wait for the end of a piece.
 *
 * Rows of x repeat the kinds of kernels/operands.h. So five rows by the plain kernel say what every row of y must be,
 * and a kernel that mixes rows up is found, because five is no block size. */
#pragma once

#include "tune_data.h"

/* What a piece takes, about. */
uint64_t trial_piece_ns(const struct trial *trial);

/* TOO_LARGE where x and y do not fit, INVALID where the weight is not of the problem's shape. `weight`: NULL for a
 * product of two tensors. */
MUST_CHECK enum status trial_start(struct trial *trial, const struct variant_problem *problem,
                                   struct backend_weight *weight, struct error *error);
/* Gives back what the backend has made for it. */
void trial_end(struct trial *trial);
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
