#include "../state.h"

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
