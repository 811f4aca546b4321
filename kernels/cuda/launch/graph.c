#include "graph.h"

#include "launch_kernel.h"

#include <stdlib.h>

struct launch_graph {
  cudaGraph_t source; /* the nodes are its own */
  cudaGraphExec_t graph;
  cudaGraphNode_t nodes[LAUNCHES_HELD];
};

static void graph_drop(struct launch_graph *graph) {
  if (graph->graph)
    (void)cudaGraphExecDestroy(graph->graph);
  if (graph->source)
    (void)cudaGraphDestroy(graph->source);
  free(graph);
}

/* The node of what was captured last, which all that comes depends on. */
static cudaError_t captured(cudaStream_t stream, cudaGraphNode_t *out) {
  enum cudaStreamCaptureStatus status;
  const cudaGraphNode_t *nodes = NULL;
  const cudaGraphEdgeData *edges = NULL;
  size_t count = 0;
  cudaError_t result = cudaStreamGetCaptureInfo(stream, &status, NULL, NULL, &nodes, &edges, &count);
  if (result != cudaSuccess)
    return result;
  if (status != cudaStreamCaptureStatusActive || count != 1)
    return cudaErrorStreamCaptureInvalidated;
  *out = nodes[0];
  return cudaSuccess;
}

/* Kernels that may start early do so in the graph, too: the capture sees to it. */
static cudaError_t capture(cudaStream_t stream, const struct launch *launches, void *const *const *values, int count,
                           struct launch_graph *graph) {
  cudaError_t result = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  if (result != cudaSuccess)
    return result;
  for (int i = 0; i < count && result == cudaSuccess; i++) {
    result = (cudaError_t)launch_now(stream, &launches[i], (void **)(uintptr_t)values[i]);
    if (result == cudaSuccess)
      result = captured(stream, &graph->nodes[i]);
  }
  cudaError_t ended = cudaStreamEndCapture(stream, &graph->source);
  return result == cudaSuccess ? ended : result;
}

static int graph_make(void *stream, const struct launch *launches, void *const *const *values, int count,
                      struct launch_graph **out) {
  struct launch_graph *graph = calloc(1, sizeof *graph);
  if (!graph)
    return (int)cudaErrorMemoryAllocation;
  cudaError_t result = capture(stream, launches, values, count, graph);
  if (result == cudaSuccess)
    result = cudaGraphInstantiate(&graph->graph, graph->source, 0);
  if (result != cudaSuccess) {
    graph_drop(graph);
    (void)cudaGetLastError();
    return (int)result;
  }
  *out = graph;
  return 0;
}

static int graph_set(struct launch_graph *graph, int place, const struct launch *launch, void **values) {
  struct cudaKernelNodeParams params = {
      .func = (void *)(uintptr_t)launch->function,
      .gridDim = {launch->grid[0], launch->grid[1], launch->grid[2]},
      .blockDim = {launch->block[0], launch->block[1], launch->block[2]},
      .sharedMemBytes = launch->shared_bytes,
      .kernelParams = values,
  };
  cudaError_t result = cudaGraphExecKernelNodeSetParams(graph->graph, graph->nodes[place], &params);
  if (result != cudaSuccess)
    (void)cudaGetLastError();
  return (int)result;
}

static int graph_run(struct launch_graph *graph, void *stream) {
  return (int)cudaGraphLaunch(graph->graph, stream);
}

const struct launch_ops graph_ops = {
    .launch = launch_now, .make = graph_make, .set = graph_set, .run = graph_run, .drop = graph_drop};

/* ---- of a slot */

void graph_hold(struct slot *slot, uint64_t key) {
  launches_hold(&slot->launches, key);
  launch_hold_in(&slot->launches);
}

cudaError_t graph_release(struct slot *slot) {
  launch_hold_in(NULL);
  return (cudaError_t)launches_release(&slot->launches);
}

cudaStream_t graph_stream(struct slot *slot) {
  launches_start(&slot->launches);
  return slot->stream;
}
