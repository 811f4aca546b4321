/* Products for the clock. */
#ifndef KERNELS_CUDA_EXEC_MEASURE_H
#define KERNELS_CUDA_EXEC_MEASURE_H

#include "../state.h"

/* As in struct backend_ops. */
enum status cuda_measure(struct backend *, const struct backend_job *, struct backend_weight *const *, size_t,
                         const struct backend_timing *, uint64_t *, struct error *);

#endif
