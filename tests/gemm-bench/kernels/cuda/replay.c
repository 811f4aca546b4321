#include "replay.h"

#include "kernels/cuda/runtime/driver.h"

enum status replay_make(cudaStream_t stream, int launches, enum status (*queue)(void *, int, struct error *),
                        void *what, struct replay *out, struct error *error) {
  cudaGraph_t graph = NULL;
  *out = (struct replay){.launches = launches};
  enum status status =
      runtime_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing", error);
  if (status != STATUS_OK) {
    return status;
  }
  for (int i = 0; i < launches && status == STATUS_OK; i++) {
    status = queue(what, i, error);
  }
  cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  if (status == STATUS_OK) {
    status = runtime_check(ended, "capturing", error);
  }
  if (status == STATUS_OK) {
    status = runtime_check(cudaGraphInstantiate(&out->graph, graph, 0), "capturing", error);
  }
  if (graph != NULL) {
    (void)cudaGraphDestroy(graph);
  }
  if (status == STATUS_OK) {
    status = runtime_check(cudaGraphUpload(out->graph, stream), "capturing", error);
  }
  return status;
}

void replay_free(struct replay *replay) {
  if (replay->graph != NULL) {
    (void)cudaGraphExecDestroy(replay->graph);
  }
  replay->graph = NULL;
}

enum status replay_time(const struct replay *replay, cudaStream_t stream, double *us, struct error *error) {
  cudaEvent_t begin = NULL, end = NULL;
  float milliseconds = 0;
  cudaError_t result = cudaEventCreate(&begin);
  result = result == cudaSuccess ? cudaEventCreate(&end) : result;
  result = result == cudaSuccess ? cudaEventRecord(begin, stream) : result;
  result = result == cudaSuccess ? cudaGraphLaunch(replay->graph, stream) : result;
  result = result == cudaSuccess ? cudaEventRecord(end, stream) : result;
  result = result == cudaSuccess ? cudaEventSynchronize(end) : result;
  result = result == cudaSuccess ? cudaEventElapsedTime(&milliseconds, begin, end) : result;
  if (begin != NULL) {
    (void)cudaEventDestroy(begin);
  }
  if (end != NULL) {
    (void)cudaEventDestroy(end);
  }
  *us = (double)milliseconds * 1000 / replay->launches;
  return runtime_check(result, "timing", error);
}
