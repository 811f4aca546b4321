#include "state.h"

#include <stdlib.h>

/* Memory that the device cannot be given is reached through pinned memory of the slots instead. */
static enum status bounce_ensure(struct backend *backend, struct error *error) {
  for (int i = 0; i < backend->slot_count; i++) {
    struct slot *slot = &backend->slots[i];
    if (slot->bounce)
      continue;
    cudaError_t result = cudaHostAlloc(&slot->bounce, BOUNCE_BYTES, cudaHostAllocDefault);
    if (result != cudaSuccess) {
      slot->bounce = NULL;
      return runtime_check(result, "taking pinned memory", error);
    }
  }
  return STATUS_OK;
}

enum status cuda_arena_register(struct backend *backend, void *base, uint64_t bytes, struct backend_arena **out,
                                struct error *error) {
  enum status status = backend_enter(backend, error);
  if (status != STATUS_OK)
    return status;
  struct backend_arena *arena = calloc(1, sizeof *arena);
  if (!arena)
    return error_set(error, STATUS_NOMEM, "no memory for an arena");
  arena->base = base;
  void *device = NULL;
  cudaError_t result = cudaHostRegister(base, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable);
  if (result == cudaSuccess) {
    result = cudaHostGetDevicePointer(&device, base, 0);
    if (result != cudaSuccess)
      (void)cudaHostUnregister(base);
  }
  arena->device = result == cudaSuccess ? device : NULL;
  status = runtime_check(result, "registering an arena", error);
  if (status != STATUS_OK && status != STATUS_DEVICE_LOST)
    status = bounce_ensure(backend, error);
  if (status != STATUS_OK) {
    free(arena);
    return status;
  }
  *out = arena;
  return STATUS_OK;
}

void cuda_arena_unregister(struct backend *backend, struct backend_arena *arena) {
  struct error ignored;
  if (!arena)
    return;
  if (arena->device && backend_enter(backend, &ignored) == STATUS_OK && cudaHostUnregister(arena->base) != cudaSuccess)
    (void)cudaGetLastError();
  free(arena);
}
