/* What another process has exported by the runtime's own IPC: memory of cudaMalloc, and events.
 *
 * Measured with driver 580 (H200): such memory stays while it is open here, though its exporter frees it or dies, but
 * nobody promises that. An event lies in a file in shared memory that is its exporter's, mode 600: it cannot be opened
 * across users, and a user who truncates the file ends whoever asks the event. A query takes 40 ns; an exporter that
 * dies leaves the event as it was. */
#include "ipc.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(cudaIpcMemHandle_t) == BACKEND_IPC_BYTES && sizeof(cudaIpcEventHandle_t) == BACKEND_IPC_BYTES,
               "what travels");

/* ---- memory */

static enum status memory_check(const struct backend *backend, const void *base, uint64_t bytes, struct error *error) {
  struct cudaPointerAttributes attributes;
  CUdeviceptr begin = 0;
  size_t size = 0;
  enum status status = runtime_check(cudaPointerGetAttributes(&attributes, base), "asking for a device", error);
  if (status == STATUS_OK)
    status = driver_check(backend->driver,
                          backend->driver->cuMemGetAddressRange_v2(&begin, &size, (CUdeviceptr)(uintptr_t)base),
                          "asking for the size of memory", error);
  if (status != STATUS_OK)
    return status;
  if (attributes.device != backend->runtime_ordinal)
    return error_set(error, STATUS_INVALID, "the handle is memory of another device");
  if (bytes == 0 || bytes > size)
    return error_field(error, STATUS_INVALID, FIELD_BYTES, bytes > INT64_MAX ? INT64_MAX : (int64_t)bytes, 1,
                       (int64_t)size);
  return STATUS_OK;
}

enum status cuda_memory_open_ipc(struct backend *backend, const uint8_t *handle, uint64_t bytes,
                                 struct backend_arena **out, void **address, struct error *error) {
  cudaIpcMemHandle_t ipc;
  void *base = NULL;
  memcpy(&ipc, handle, sizeof ipc);
  enum status status = backend_enter(backend, error);
  struct backend_arena *memory = status == STATUS_OK ? calloc(1, sizeof *memory) : NULL;
  if (status == STATUS_OK && memory == NULL)
    status = error_set(error, STATUS_NOMEM, "no memory for an entry of device memory");
  if (status != STATUS_OK)
    return status;
  cudaError_t result = cudaIpcOpenMemHandle(&base, ipc, cudaIpcMemLazyEnablePeerAccess);
  if (result != cudaSuccess) {
    (void)cudaGetLastError();
    free(memory);
    return error_set(error, STATUS_INVALID, "the handle of device memory cannot be opened: %s",
                     cudaGetErrorString(result));
  }
  status = memory_check(backend, base, bytes, error);
  if (status != STATUS_OK) {
    (void)cudaIpcCloseMemHandle(base);
    free(memory);
    return status;
  }
  *memory = (struct backend_arena){.base = base, .device = base, .imported_bytes = bytes, .ipc = true};
  *out = memory;
  *address = base;
  return STATUS_OK;
}

/* ---- events */

struct backend_event {
  cudaEvent_t event;
};

enum status cuda_event_open(struct backend *backend, const uint8_t *handle, struct backend_event **out,
                            struct error *error) {
  cudaIpcEventHandle_t ipc;
  memcpy(&ipc, handle, sizeof ipc);
  enum status status = backend_enter(backend, error);
  struct backend_event *event = status == STATUS_OK ? calloc(1, sizeof *event) : NULL;
  if (status == STATUS_OK && event == NULL)
    status = error_set(error, STATUS_NOMEM, "no memory for an event");
  if (status != STATUS_OK)
    return status;
  cudaError_t result = cudaIpcOpenEventHandle(&event->event, ipc);
  if (result != cudaSuccess) {
    (void)cudaGetLastError();
    free(event);
    return error_set(error, STATUS_INVALID, "the event cannot be opened: %s", cudaGetErrorString(result));
  }
  *out = event;
  return STATUS_OK;
}

void cuda_event_close(struct backend *backend, struct backend_event *event) {
  struct error ignored;
  if (event == NULL || backend_enter(backend, &ignored) != STATUS_OK)
    return;
  if (cudaEventDestroy(event->event) != cudaSuccess)
    (void)cudaGetLastError();
  free(event);
}

enum status cuda_event_query(struct backend *backend, struct backend_event *event) {
  struct error ignored;
  if (backend_enter(backend, &ignored) != STATUS_OK)
    return ignored.status;
  cudaError_t result = cudaEventQuery(event->event);
  if (result == cudaSuccess)
    return STATUS_OK;
  (void)cudaGetLastError();
  return result == cudaErrorNotReady ? STATUS_BUSY : STATUS_INVALID;
}
