#include "arena.h"

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

/* ---- device memory of another process: an arena whose addresses are the device's own */

static enum status imported_bytes_check(const struct backend *backend, uint64_t bytes, struct error *error) {
  if (bytes == 0 || bytes % backend->granularity != 0)
    return error_field(error, STATUS_INVALID, FIELD_BYTES, (int64_t)bytes, (int64_t)backend->granularity, 0);
  return STATUS_OK;
}

static enum status imported_map(struct backend *backend, struct backend_arena *memory, uint64_t bytes,
                                struct error *error) {
  CUdeviceptr address = 0;
  enum status status = memory_map(backend->driver, backend->device, memory->handle, bytes,
                                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &address, error);
  if (status == STATUS_SYSTEM)
    return error_set(error, STATUS_BAD_DESCRIPTOR, "the descriptor is not %llu bytes of device memory",
                     (unsigned long long)bytes);
  memory->base = memory->device = (uint8_t *)(uintptr_t)address;
  memory->imported_bytes = bytes;
  return status;
}

enum status cuda_memory_import(struct backend *backend, int fd, uint64_t bytes, struct backend_arena **out,
                               void **address, struct error *error) {
  enum status status = imported_bytes_check(backend, bytes, error);
  if (status == STATUS_OK)
    status = backend_enter(backend, error);
  if (status != STATUS_OK)
    return status;
  struct backend_arena *memory = calloc(1, sizeof *memory);
  if (!memory)
    return error_set(error, STATUS_NOMEM, "no memory for an entry of device memory");
  status = memory_import(backend->driver, backend->device, fd, &memory->handle, error);
  if (status != STATUS_OK) {
    free(memory);
    return status;
  }
  status = imported_map(backend, memory, bytes, error);
  if (status != STATUS_OK) {
    backend->driver->cuMemRelease(memory->handle);
    free(memory);
    return status;
  }
  *out = memory;
  *address = memory->base;
  return STATUS_OK;
}

void cuda_memory_close(struct backend *backend, struct backend_arena *memory) {
  struct error ignored;
  if (!memory || backend_enter(backend, &ignored) != STATUS_OK)
    return;
  if (memory->ipc) {
    if (cudaIpcCloseMemHandle(memory->base) != cudaSuccess)
      (void)cudaGetLastError();
  } else {
    memory_unmap(backend->driver, (CUdeviceptr)(uintptr_t)memory->device, memory->imported_bytes);
    backend->driver->cuMemRelease(memory->handle);
  }
  free(memory);
}
