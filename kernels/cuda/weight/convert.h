/* Weights made by the device of numbers as they lie in checkpoints. */
#pragma once

#include "../state.h"

/* As in struct backend_ops. */
enum status cuda_weight_convert(struct backend *, const struct gemm_weight *, const struct backend_source *, void *,
                                struct error *);
