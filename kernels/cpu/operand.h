/* W that comes with its product, from the arena, laid out as a stored weight. */
#ifndef KERNELS_CPU_OPERAND_H
#define KERNELS_CPU_OPERAND_H

#include "../backend.h"
#include "weight.h"

/* Zeros at first. Memory that is kept from product to product. */
struct operand {
  struct backend_weight weight;
  uint8_t *panels, *canonical; /* owned */
  uint64_t panel_bytes, canonical_bytes;
};

/* Fills operand->weight, which lasts until the next call. NOMEM; UNSUPPORTED where it is neither F16 nor BF16. */
MUST_CHECK enum status cpu_operand_pack(struct operand *operand, const struct backend_operand *from,
                                        struct error *error);
void cpu_operand_free(struct operand *operand);

#endif
