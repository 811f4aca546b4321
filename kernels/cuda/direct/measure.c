#include "measure.h"

#include "../exec/measure/measure.h"
#include "../launch/function.h"
#include "direct.h"
#include "experts.h"

enum status cuda_tensor_take(struct backend *backend, uint64_t bytes, void **out, struct error *error) {
  *out = NULL;
  enum status status = backend_enter(backend, error);
  return status == STATUS_OK ? runtime_check(cudaMalloc(out, bytes), "taking memory to measure products with", error)
                             : status;
}

void cuda_tensor_give(struct backend *backend, void *tensor) {
  struct error ignored;
  if (tensor && backend_enter(backend, &ignored) == STATUS_OK)
    (void)cudaFree(tensor);
}

enum status cuda_tensor_copy(struct backend *backend, void *to, const void *from, uint64_t bytes, struct error *error) {
  cudaStream_t stream = backend->side.stream;
  enum status status = backend_enter(backend, error);
  if (status != STATUS_OK)
    return status;
  cudaError_t result = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
  return runtime_check(result ? result : cudaStreamSynchronize(stream), "copying a tensor", error);
}

/* Its kernels are no other graph's: nothing is retained, the graph is gone when the call returns. */
static enum status graph_make(struct backend *backend, struct slot *lane, const struct backend_job *job,
                              struct backend_weight *const *weights, size_t count, const struct backend_timing *timing,
                              cudaGraphExec_t *graph, struct error *error) {
  cudaStream_t stream = backend->side.stream;
  enum status status = measure_begin(stream, error);
  if (status != STATUS_OK)
    return status;
  launch_on(backend->runtime_ordinal);
  for (uint32_t i = 0; i < timing->launches && status == STATUS_OK; i++) {
    struct backend_job one = *job;
    one.weight = weights[i % count];
    status = one.experts ? direct_experts(backend, lane, &one, stream, error)
                         : direct_queue(backend, lane, &one, stream, error);
  }
  return measure_end(stream, status, graph, error);
}

enum status direct_measure(struct backend *backend, const struct backend_job *job,
                           struct backend_weight *const *weights, size_t count, const struct backend_timing *timing,
                           uint64_t *ns, struct error *error) {
  struct slot *lane = &backend->slots[timing->lane];
  cudaGraphExec_t graph = NULL;
  if (atomic_exchange_explicit(&lane->entered, true, memory_order_acquire))
    return error_set(error, STATUS_BUSY, "another thread is using lane %d", timing->lane);
  enum status status = backend_enter(backend, error);
  if (status == STATUS_OK)
    status = graph_make(backend, lane, job, weights, count, timing, &graph, error);
  if (status == STATUS_OK)
    status = measure_time(backend->side.stream, graph, timing->launches, ns, error);
  if (graph)
    (void)cudaGraphExecDestroy(graph);
  atomic_store_explicit(&lane->entered, false, memory_order_release);
  return status;
}
