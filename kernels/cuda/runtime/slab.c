#include "slab.h"

#include <stdlib.h>
#include <unistd.h>

/* A store writes through a mapping of its own, so that a fault in a kernel that serves cannot damage weights.
 * cuMemSetAccess documents read-only access, but a driver may not offer it for device memory: then the serving
 * mapping is writable, and the checksums are what tells damage. */
static enum status slab_map(struct backend *backend, struct backend_slab *slab, struct error *error) {
  struct error refused;
  slab->read_only = true;
  enum status status = memory_map(backend->driver, backend->device, slab->handle, slab->bytes,
                                  CU_MEM_ACCESS_FLAGS_PROT_READ, &slab->address, &refused);
  if (status == STATUS_OK)
    return STATUS_OK;
  slab->read_only = false;
  return memory_map(backend->driver, backend->device, slab->handle, slab->bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                    &slab->address, error);
}

static enum status bytes_check(const struct backend *backend, uint64_t bytes, struct error *error) {
  if (bytes == 0 || bytes % backend->granularity != 0)
    return error_set(error, STATUS_INVALID, "a slab's bytes must be a multiple of %llu, got %llu",
                     (unsigned long long)backend->granularity, (unsigned long long)bytes);
  return STATUS_OK;
}

/* An empty slab of a size that the device takes, in this thread's context; the caller frees it. */
static enum status slab_begin(struct backend *backend, uint64_t bytes, struct backend_slab **out, struct error *error) {
  enum status status = bytes_check(backend, bytes, error);
  if (status == STATUS_OK)
    status = backend_enter(backend, error);
  if (status != STATUS_OK)
    return status;
  struct backend_slab *slab = calloc(1, sizeof *slab);
  if (!slab)
    return error_set(error, STATUS_NOMEM, "no memory for a slab");
  slab->bytes = bytes;
  *out = slab;
  return STATUS_OK;
}

enum status cuda_slab_create(struct backend *backend, uint64_t bytes, int *fd, struct backend_slab **out,
                             struct error *error) {
  struct backend_slab *slab;
  enum status status = slab_begin(backend, bytes, &slab, error);
  if (status != STATUS_OK)
    return status;
  status = memory_create(backend->driver, backend->device, bytes, true, &slab->handle, error);
  if (status != STATUS_OK) {
    free(slab);
    return status;
  }
  int exported = -1;
  CUresult result = backend->driver->cuMemExportToShareableHandle(&exported, slab->handle,
                                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  status = driver_check(backend->driver, result, "exporting device memory", error);
  if (status == STATUS_OK)
    status = slab_map(backend, slab, error);
  if (status != STATUS_OK) {
    if (exported >= 0)
      close(exported);
    backend->driver->cuMemRelease(slab->handle);
    free(slab);
    return status;
  }
  *fd = exported;
  *out = slab;
  return STATUS_OK;
}

enum status cuda_slab_import(struct backend *backend, int fd, uint64_t bytes, struct backend_slab **out,
                             struct error *error) {
  struct backend_slab *slab;
  enum status status = slab_begin(backend, bytes, &slab, error);
  if (status != STATUS_OK)
    return status;
  status = memory_import(backend->driver, backend->device, fd, &slab->handle, error);
  if (status != STATUS_OK) {
    free(slab);
    return status;
  }
  status = slab_map(backend, slab, error);
  if (status != STATUS_OK) {
    backend->driver->cuMemRelease(slab->handle);
    free(slab);
    return status == STATUS_SYSTEM ? error_set(error, STATUS_BAD_DESCRIPTOR,
                                               "the slab is not %llu bytes of device memory", (unsigned long long)bytes)
                                   : status;
  }
  *out = slab;
  return STATUS_OK;
}

void cuda_slab_close(struct backend *backend, struct backend_slab *slab) {
  struct error ignored;
  if (!slab || backend_enter(backend, &ignored) != STATUS_OK)
    return;
  memory_unmap(backend->driver, slab->address, slab->bytes);
  backend->driver->cuMemRelease(slab->handle);
  free(slab);
}

static enum status range_check(const struct backend_slab *slab, uint64_t offset, uint64_t bytes, struct error *error) {
  if (offset > slab->bytes || bytes > slab->bytes - offset)
    return error_set(error, STATUS_INVALID, "%llu bytes at %llu do not lie in a slab of %llu bytes",
                     (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)slab->bytes);
  return STATUS_OK;
}

/* As a store does, through a writable mapping that lives no longer than the copy. */
enum status cuda_slab_copy(struct backend *backend, struct backend_slab *from, uint64_t from_offset,
                           struct backend_slab *to, uint64_t to_offset, uint64_t bytes, struct error *error) {
  enum status status = range_check(from, from_offset, bytes, error);
  if (status == STATUS_OK)
    status = range_check(to, to_offset, bytes, error);
  if (status == STATUS_OK)
    status = backend_enter(backend, error);
  if (status != STATUS_OK)
    return status;
  CUdeviceptr writable = to->address;
  if (to->read_only)
    status = memory_map(backend->driver, backend->device, to->handle, to->bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                        &writable, error);
  if (status != STATUS_OK)
    return status;
  cudaStream_t stream = backend->side.stream;
  cudaError_t result =
      cudaMemcpyAsync((void *)(uintptr_t)(writable + to_offset), (const void *)(uintptr_t)(from->address + from_offset),
                      bytes, cudaMemcpyDeviceToDevice, stream);
  cudaError_t drained = cudaStreamSynchronize(stream);
  if (to->read_only)
    memory_unmap(backend->driver, writable, to->bytes);
  return runtime_check(result != cudaSuccess ? result : drained, "copying a weight on the GPU", error);
}
