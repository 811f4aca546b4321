/* Jobs under way, one a slot. */
#ifndef KERNELS_CUDA_EXEC_SUBMIT_H
#define KERNELS_CUDA_EXEC_SUBMIT_H

#include "../state.h"

/* As in struct backend_ops. */
enum status cuda_submit(struct backend *, const struct backend_job *, struct error *);
int cuda_poll(struct backend *, struct backend_done *, int);

#endif
