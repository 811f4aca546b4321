/* Products whose W comes with them, as a tensor, in batches, by rows or by columns as x is, and added to y or not: laid
 * out as a stored weight some columns and some of K at a time, so that the memory this takes does not depend on W's
 * size. */
#pragma once

#include "../../backend.h"
#include "../weight/weight.h"
#include "product.h"

/* Bytes that `panels` and `sums` have at most. */
#define OPERAND_PANEL_BYTES ((uint64_t)32 << 20)
#define OPERAND_SUM_BYTES ((uint64_t)8 << 20)

/* Zeros at first. Memory that is kept from product to product. */
struct operand {
  uint8_t *panels;               /* owned */
  float *sums;                   /* owned */
  uint16_t *x_turned, *w_turned; /* owned; parts of operands that lie by columns, row-major */
  uint64_t panel_bytes, sum_bytes, x_turned_bytes, w_turned_bytes;
};

/* How one product with a part of W is computed. */
struct operand_device {
  void *context;
  enum status (*run)(void *context, const struct backend_job *job, struct error *error);
  struct product_engine *engine; /* pool and pauses */
};

/* NOMEM; UNSUPPORTED where W is neither F16 nor BF16; what the device says. Sums of more than 2^16 elements of K are
 * added up in f32 from those of so many each: what an element of y becomes depends on K alone. */
MUST_CHECK enum status cpu_operand_run(struct operand *operand, const struct operand_device *device,
                                       const struct backend_job *job, struct error *error);
void cpu_operand_free(struct operand *operand);
