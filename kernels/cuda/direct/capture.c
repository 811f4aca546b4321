#include "capture.h"

#include <stdlib.h>

/* ---- the calling thread */

struct caller {
  CUcontext context;
  CUstreamCaptureMode mode;
};

/* Memory that is taken while another thread captures is no part of that capture. */
void *cuda_caller_save(void) {
  static _Thread_local struct caller caller;
  struct error ignored;
  const struct driver *driver = driver_open(&ignored);
  caller = (struct caller){.mode = CU_STREAM_CAPTURE_MODE_RELAXED};
  if (!driver)
    return NULL;
  (void)driver->cuCtxGetCurrent(&caller.context);
  (void)driver->cuThreadExchangeStreamCaptureMode(&caller.mode);
  return &caller;
}

void cuda_caller_restore(void *saved) {
  struct caller *caller = saved;
  struct error ignored;
  const struct driver *driver = caller ? driver_open(&ignored) : NULL;
  if (!driver)
    return;
  (void)driver->cuThreadExchangeStreamCaptureMode(&caller->mode);
  (void)driver->cuCtxSetCurrent(caller->context);
}

/* ---- the graph */

/* What one recorded job holds, for as long as a graph that has it lives. */
struct hold {
  struct backend *backend;
  uint32_t count;
  struct backend_weight *weights[GEMM_STEPS_MOST];
};

static void count_add(struct hold *hold, int by) {
  for (uint32_t i = 0; i < hold->count; i++)
    atomic_fetch_add_explicit(&hold->weights[i]->graphs, by, memory_order_acq_rel);
  atomic_fetch_add_explicit(&hold->backend->graphs, by, memory_order_acq_rel);
}

/* By a thread of the driver's, which must not be kept. The backend is not touched behind its own count. */
static void CUDART_CB drop(void *user) {
  struct hold *hold = user;
  count_add(hold, -1);
  free(hold);
}

/* The graph that the stream is capturing into. */
static cudaError_t graph_of(cudaStream_t stream, cudaGraph_t *out) {
  enum cudaStreamCaptureStatus status;
  const cudaGraphNode_t *nodes = NULL;
  const cudaGraphEdgeData *edges = NULL;
  size_t count = 0;
  unsigned long long id = 0;
  cudaError_t result = cudaStreamGetCaptureInfo(stream, &status, &id, out, &nodes, &edges, &count);
  return result == cudaSuccess && status != cudaStreamCaptureStatusActive ? cudaErrorStreamCaptureInvalidated : result;
}

enum status direct_retain(struct backend *backend, const struct backend_job *job, cudaStream_t stream,
                          struct error *error) {
  struct hold *hold = malloc(sizeof *hold);
  if (!hold)
    return error_set(error, STATUS_NOMEM, "no memory for what a graph holds");
  *hold = (struct hold){.backend = backend, .count = job->steps ? job->step_count : 1};
  for (uint32_t i = 0; i < hold->count; i++)
    hold->weights[i] = job->steps ? job->steps[i].weight : job->weight;
  cudaGraph_t graph = NULL;
  cudaUserObject_t object = NULL;
  count_add(hold, 1);
  cudaError_t result = graph_of(stream, &graph);
  if (result == cudaSuccess)
    result = cudaUserObjectCreate(&object, hold, drop, 1, cudaUserObjectNoDestructorSync);
  if (result != cudaSuccess) {
    drop(hold);
    return runtime_check(result, "retaining a weight for a graph", error);
  }
  result = cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove);
  if (result != cudaSuccess)
    (void)cudaUserObjectRelease(object, 1); /* drops */
  return runtime_check(result, "retaining a weight for a graph", error);
}

bool cuda_weight_held(const struct backend *backend, const struct backend_weight *weight) {
  return atomic_load_explicit(&weight->graphs, memory_order_acquire) > 0;
}

bool cuda_held(const struct backend *backend) {
  return atomic_load_explicit(&backend->graphs, memory_order_acquire) > 0;
}
