/* W that comes with its product, from the arena. */
#ifndef KERNELS_CUDA_EXEC_OPERAND_H
#define KERNELS_CUDA_EXEC_OPERAND_H

#include "../state.h"

/* Queues the copy of the slot's job's W to the device and makes it the job's weight: padded as a stored one, with
 * working memory for `rows` rows of x, or as many as fit. NOMEM; UNSUPPORTED where it is neither F16 nor BF16. The
 * engine's thread. */
MUST_CHECK enum status operand_stage(struct backend *backend, struct slot *slot, int64_t rows, struct error *error);

#endif
