/* W that comes with its product, from the arena. */
#pragma once

#include "../state.h"

/* A panel of W: rows of it, which make columns of y, and where it goes on the device, behind what else is staged. */
struct operand_panel {
  int64_t column, columns;
  int64_t rows;          /* of x that go at a time, or as many as fit into `bytes` */
  uint64_t bytes;        /* for what is staged beside the panel */
  struct region *region; /* grown as needed; the engine's */
  bool there;            /* its W has been copied there before */
  size_t copies, copy;   /* panels of this size that the region holds, and which of them; 0 copies: one */
};

/* Bytes that one product which brings W may take beside its slot: those of all products under way together are a 64th
 * of the device. */
uint64_t operand_bytes(const struct backend *backend);
/* Where the device can read W as it lies. */
bool operand_lies_there(const struct backend_operand *operand);

/* Queues the copy of the panel to the device and makes it the weight of the slot's job, whose y and bias are those of
 * its columns from here on. NOMEM; UNSUPPORTED where it is neither F16 nor BF16. The engine's thread. */
MUST_CHECK enum status operand_stage(struct backend *backend, struct slot *slot, const struct operand_panel *panel,
                                     struct error *error);
