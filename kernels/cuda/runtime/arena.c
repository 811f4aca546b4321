#include "arena.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { PAUSE_NS = 50000 };

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

/* ---- pieces: while memory is registered or given back, nothing else of the process starts a kernel. 1 GiB whose pages
 * are there holds the driver for some 30 ms, one whose pages the kernel has yet to find for 450. So pages come first,
 * and the driver is asked for a piece at a time. */

static uint64_t piece_bytes(const struct backend_arena *arena, uint64_t at) {
  uint64_t left = arena->bytes - at;
  return left < ARENA_PIECE ? left : ARENA_PIECE;
}

/* Whoever waits for the driver meanwhile gets it between two pieces; without the pause it goes to the next one. */
static void unregister_pieces(const struct backend_arena *arena, uint64_t bytes) {
  static const struct timespec pause = {.tv_nsec = PAUSE_NS};
  for (uint64_t at = 0; at < bytes; at += ARENA_PIECE) {
    if (at > 0)
      nanosleep(&pause, NULL);
    if (cudaHostUnregister(arena->base + at) != cudaSuccess)
      (void)cudaGetLastError();
  }
}

/* The next piece, at *device; it must lie behind the one before as it does for the host. */
static cudaError_t register_piece(const struct backend_arena *arena, uint64_t at, const uint8_t *first,
                                  uint8_t **device) {
  uint64_t bytes = piece_bytes(arena, at);
  void *there = NULL;
  (void)madvise(arena->base + at, bytes, MADV_POPULATE_WRITE); /* an older kernel finds them below */
  cudaError_t result = cudaHostRegister(arena->base + at, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable);
  if (result != cudaSuccess)
    return result;
  result = cudaHostGetDevicePointer(&there, arena->base + at, 0);
  if (result == cudaSuccess && first && (uint8_t *)there != first + at)
    result = cudaErrorNotSupported;
  if (result != cudaSuccess)
    (void)cudaHostUnregister(arena->base + at);
  *device = there;
  return result;
}

static cudaError_t register_pieces(struct backend_arena *arena) {
  uint8_t *first = NULL, *device = NULL;
  for (uint64_t at = 0; at < arena->bytes; at += ARENA_PIECE) {
    cudaError_t result = register_piece(arena, at, first, &device);
    if (result != cudaSuccess) {
      unregister_pieces(arena, at);
      return result;
    }
    first = first ? first : device;
  }
  arena->device = first;
  return cudaSuccess;
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
  arena->bytes = bytes;
  status = runtime_check(register_pieces(arena), "registering an arena", error);
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
  if (arena->device && backend_enter(backend, &ignored) == STATUS_OK)
    unregister_pieces(arena, arena->bytes);
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
