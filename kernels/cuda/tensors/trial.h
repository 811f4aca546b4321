/* Tensors to try products of two with. As in struct backend_ops. */
#pragma once

#include "../state.h"

enum status cuda_tensors_make(struct backend *, const struct variant_problem *, struct backend_job *,
                              struct backend_operand *, size_t *, struct error *);
void cuda_tensors_drop(struct backend *);
