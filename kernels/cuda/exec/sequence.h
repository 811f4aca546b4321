/* A run of rows through the products of a sequence. What lies between them stays in the slot's staging memory; each
 * kernel may be started while the one ahead of it still runs, and fetches its weights meanwhile. */
#pragma once

#include "../passes/activate.h"
#include "../state.h"
#include "staging.h"

struct sequence {
  struct slot *slot; /* whose job it is */
  int64_t row, rows;
  int64_t rows_most; /* that staging is laid out for */
  bool dependent;    /* a kernel may be started before the one ahead of it has ended */
  bool stays;        /* the result stays on the device: it is for the clock alone */
};

/* How many rows of a job, up to `rows`, the slot's staging memory holds at a time. NOMEM where not one fits. */
MUST_CHECK enum status sequence_rows(const struct slot *slot, const struct backend_job *job, int64_t rows, int64_t *out,
                                     struct error *error);
/* Where a step's product lies there, behind what is `used`, which moves on. */
struct staging sequence_place(const struct backend_step *step, int64_t rows, uint64_t *used);
/* What a pass is to make for a product by the weight out of rows of `type`: all but where to. */
void sequence_reads(const struct backend_weight *weight, int64_t rows_padded, enum gemm_type type,
                    struct activate_pass *out);
/* x and every bias to the device; x quantized, or `bare`: as it comes. */
MUST_CHECK enum status sequence_stage(const struct sequence *sequence, bool bare, struct error *error);
/* All products and what stands between them; `bare`: the quantizer of the first one, too. */
MUST_CHECK enum status sequence_run(struct backend *backend, const struct sequence *sequence, bool bare,
                                    struct error *error);
