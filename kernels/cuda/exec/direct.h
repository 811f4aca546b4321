/* Products in the caller's memory and on the caller's stream (backend_ops.enqueue). x, bias and y are used where they
 * lie; what is made on the way lies in the staging memory of the lane. Nothing here waits, allocates, or touches what
 * another lane uses. */
#ifndef KERNELS_CUDA_EXEC_DIRECT_H
#define KERNELS_CUDA_EXEC_DIRECT_H

#include "../families/family.h"
#include "../state.h"
#include "staging.h"

/* One product of a job, or of a step of its sequence: some rows of it. */
struct direct_pass {
  struct backend *backend;
  const struct slot *lane;
  cudaStream_t stream;
  const struct backend_weight *weight;
  const struct variant *variant; /* NULL: the selector's choice */
  struct staging at;
  int64_t rows, rows_padded;
  enum gemm_type x_type, y_type, bias_type;
  const void *x; /* at first as it comes, then as the kernel reads it */
  uint64_t x_stride;
  const float *x_scale;
  const void *bias;
  void *y;
  uint64_t y_stride;
  bool early; /* the next kernel may start before the one ahead has ended */
};

void *direct_staged(const struct direct_pass *pass, uint64_t offset);
/* True where x is quantized on the device. */
bool direct_quantizes(const struct direct_pass *pass);
/* Makes of x what the kernel reads, where it is not that already. */
cudaError_t direct_stage(struct direct_pass *pass);
/* The product of what is staged. pass->y and y_stride are where y is afterwards: where they have been before, or where
 * `anywhere` y was left in staging memory without a copy. */
MUST_CHECK enum status direct_product(struct direct_pass *pass, bool anywhere, struct error *error);

/* Whether so much may run at the same time, in this process and others, that kernels whose blocks wait for each other
 * must have them all. */
bool direct_crowded(const struct backend *backend);

/* direct.c */

/* All kernels of one product, without a look at lane, stream and types; the context is current. */
MUST_CHECK enum status direct_queue(struct backend *backend, const struct slot *lane, const struct backend_job *job,
                                    cudaStream_t stream, struct error *error);
enum status cuda_enqueue(struct backend *, int, const struct backend_job *, void *, struct error *);

/* direct_open.c: what a backend for enqueue has in the place of what serves. */
MUST_CHECK enum status direct_open(struct backend *backend, const struct backend_config *config, struct error *error);
void direct_close(struct backend *backend);

/* direct_measure.c */
enum status cuda_tensor_take(struct backend *, uint64_t, void **, struct error *);
void cuda_tensor_give(struct backend *, void *);
enum status cuda_tensor_copy(struct backend *, void *, const void *, uint64_t, struct error *);
/* measure, where the backend computes for its caller. */
MUST_CHECK enum status direct_measure(struct backend *backend, const struct backend_job *job,
                                      struct backend_weight *const *weights, size_t count,
                                      const struct backend_timing *timing, uint64_t *ns, struct error *error);

/* capture.c */

/* What the calling thread has current, and how strict captures of other threads are with it; and back. */
void *cuda_caller_save(void);
void cuda_caller_restore(void *saved);
/* A graph that is being captured on the stream retains the backend and all weights of the job. */
MUST_CHECK enum status direct_retain(struct backend *backend, const struct backend_job *job, cudaStream_t stream,
                                     struct error *error);
bool cuda_weight_held(const struct backend *, const struct backend_weight *);
bool cuda_held(const struct backend *);

#endif
