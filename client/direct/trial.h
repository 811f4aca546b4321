#pragma once

#include "state.h"

/* Tensors to tune with. x has the kinds of rows of kernels/operands.h over and over, so that most rows of y are known
 * by their bits. */
struct trial {
  struct gemmd_direct *direct;
  struct backend_weight *weight;
  struct backend_job job; /* all rows, no variant */
  int lane;
  void *x, *y, *bias, *x_scale;  /* the device's, owned */
  uint8_t *is, *should;          /* y on the host, owned: of the kernel that is compared, and of the library's choice */
  uint64_t y_bytes, y_row_bytes; /* of all, of a row */
};

/* Under direct_enter, all three. `m` rows, of the problem's bucket. trial_close takes what a failed trial_open has
 * left. */
MUST_CHECK enum status trial_open(struct trial *trial, struct gemmd_direct_weight *weight,
                                  const struct variant_problem *problem, int64_t m, int lane, struct error *error);
/* Whether the kernel computes what the library's own choice does, within what formats allow. */
MUST_CHECK enum status trial_compare(struct trial *trial, const struct variant_problem *problem,
                                     const struct variant *variant, bool *right, struct error *error);
void trial_close(struct trial *trial);
