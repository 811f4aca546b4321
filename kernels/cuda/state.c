#include "state.h"

enum status backend_enter(struct backend *backend, struct error *error) {
  return runtime_check(cudaSetDevice(backend->runtime_ordinal), "using the GPU", error);
}
