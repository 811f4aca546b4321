#include "graph.h"

#include "function.h"
#include "record.h"

#include <stdlib.h>

/* ---- one kernel */

static int launch_now(void *stream, const struct launch *launch, void **values) {
  const uint32_t *cluster = launch->cluster;
  cudaLaunchAttribute attributes[3] = {0};
  cudaLaunchConfig_t config = {
      .gridDim = {launch->grid[0], launch->grid[1], launch->grid[2]},
      .blockDim = {launch->block[0], launch->block[1], launch->block[2]},
      .dynamicSmemBytes = launch->shared_bytes,
      .stream = stream,
      .attrs = attributes,
  };
  if (cluster[0] > 0) {
    cudaLaunchAttribute *attribute = &attributes[config.numAttrs++];
    attribute->id = cudaLaunchAttributeClusterDimension;
    attribute->val.clusterDim.x = cluster[0];
    attribute->val.clusterDim.y = cluster[1];
    attribute->val.clusterDim.z = cluster[2];
  }
  if (launch->dependent) {
    cudaLaunchAttribute *attribute = &attributes[config.numAttrs++];
    attribute->id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute->val.programmaticStreamSerializationAllowed = 1;
  }
  if (launch->cooperative) {
    cudaLaunchAttribute *attribute = &attributes[config.numAttrs++];
    attribute->id = cudaLaunchAttributeCooperative;
    attribute->val.cooperative = 1;
  }
  return (int)cudaLaunchKernelExC(&config, launch->function, values);
}

/* ---- several */

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

/* What this thread holds: launchers know a stream, not the slot that has it. */
static _Thread_local struct launches *holding;

int launch_kernel(void *stream, const struct launch *launch, void **values) {
  if (record_now())
    return record_launch(stream, launch, values);
  int allowed = function_allow(launch->function, launch->shared_bytes);
  if (allowed != 0)
    return allowed;
  if (!holding || holding->stream != stream)
    return launch_now(stream, launch, values);
  launches_add(holding, launch, values);
  return 0;
}

void launch_flush(void *stream) {
  record_spoil();
  if (holding && holding->stream == stream)
    launches_start(holding);
}

void graph_hold(struct slot *slot, uint64_t key) {
  launches_hold(&slot->launches, key);
  holding = &slot->launches;
}

cudaError_t graph_release(struct slot *slot) {
  holding = NULL;
  return (cudaError_t)launches_release(&slot->launches);
}

cudaStream_t graph_stream(struct slot *slot) {
  launches_start(&slot->launches);
  return slot->stream;
}
