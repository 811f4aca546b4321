#include "state.h"

enum status backend_enter(struct backend *backend, struct error *error) {
  return runtime_check(cudaSetDevice(backend->runtime_ordinal), "using the GPU", error);
}

enum status side_open(struct side *side, struct error *error) {
  cudaError_t result = cudaStreamCreateWithFlags(&side->stream, cudaStreamNonBlocking);
  if (result == cudaSuccess)
    result = cudaHostAlloc((void **)&side->heard, sizeof *side->heard, cudaHostAllocDefault);
  if (result == cudaSuccess)
    result = cudaMalloc((void **)&side->answer, sizeof *side->answer);
  return runtime_check(result, "taking memory for weights", error);
}
