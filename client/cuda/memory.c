#include "../gemmclient_cuda.h"
#include "failure.h"

#include <stdlib.h>
#include <unistd.h>

struct gemmd_cuda_memory {
  const struct driver *driver;
  driver_allocation allocation;
  driver_pointer address;
  uint64_t bytes;
  bool made, mapped;
  bool own; /* the address was reserved here; else it is memory of the caller's */
  gemmd_memory *tensor;
};

static struct driver_properties properties_of(driver_device device) {
  return (struct driver_properties){
      .kind = DRIVER_PINNED, .exports = DRIVER_POSIX_DESCRIPTOR, .location = {.kind = DRIVER_ON_DEVICE, .id = device}};
}

static int take(struct gemmd_cuda_memory *memory, driver_device device, uint64_t bytes) {
  const struct driver *driver = memory->driver;
  struct driver_properties properties = properties_of(device);
  size_t granularity = 0;
  int status =
      failure_check(driver, driver->cuMemGetAllocationGranularity(&granularity, &properties, DRIVER_RECOMMENDED),
                    "asking for the granularity of device memory");
  if (status != GEMMD_OK)
    return status;
  if (bytes == 0 || granularity == 0 || bytes > UINT64_MAX - granularity)
    return failure_set(GEMMD_INVALID, "bytes must be at least 1 and less than 2^64, got %llu",
                       (unsigned long long)bytes);
  memory->bytes = (bytes + granularity - 1) / granularity * granularity;
  status = failure_check(driver, driver->cuMemCreate(&memory->allocation, memory->bytes, &properties, 0),
                         "taking device memory");
  memory->made = status == GEMMD_OK;
  return status;
}

static int map(struct gemmd_cuda_memory *memory, driver_device device) {
  const struct driver *driver = memory->driver;
  struct driver_access access = {.location = {.kind = DRIVER_ON_DEVICE, .id = device}, .flags = DRIVER_READ_WRITE};
  driver_result result = driver->cuMemAddressReserve(&memory->address, memory->bytes, 0, 0, 0);
  memory->own = result == 0;
  if (result == 0)
    result = driver->cuMemMap(memory->address, memory->bytes, 0, memory->allocation, 0);
  memory->mapped = result == 0;
  if (result == 0)
    result = driver->cuMemSetAccess(memory->address, memory->bytes, &access, 1);
  return failure_check(driver, result, "mapping device memory");
}

static int share(struct gemmd_cuda_memory *memory, gemmd_session *session, unsigned device) {
  int fd = -1;
  int status = failure_check(
      memory->driver, memory->driver->cuMemExportToShareableHandle(&fd, memory->allocation, DRIVER_POSIX_DESCRIPTOR, 0),
      "exporting device memory");
  if (status != GEMMD_OK)
    return status;
  status = gemmd_memory_open(session, device, fd, gemmd_cuda_address(memory), memory->bytes, &memory->tensor);
  close(fd);
  return status == GEMMD_OK ? status : failure_set(status, "%s", gemmd_error(session));
}

static void release(struct gemmd_cuda_memory *memory) {
  const struct driver *driver = memory->driver;
  if (memory->mapped)
    (void)driver->cuMemUnmap(memory->address, memory->bytes);
  if (memory->own)
    (void)driver->cuMemAddressFree(memory->address, memory->bytes);
  if (memory->made)
    (void)driver->cuMemRelease(memory->allocation);
  free(memory);
}

int gemmd_cuda_alloc(gemmd_session *session, unsigned device, int ordinal, uint64_t bytes, gemmd_cuda_memory **out) {
  const char *why;
  const struct driver *driver = driver_table(&why);
  driver_device own;
  *out = NULL;
  if (driver == NULL)
    return failure_set(GEMMD_UNSUPPORTED, "%s", why);
  int status = failure_check(driver, driver->cuDeviceGet(&own, ordinal), "finding the GPU");
  if (status != GEMMD_OK)
    return status;
  struct gemmd_cuda_memory *memory = calloc(1, sizeof *memory);
  if (memory == NULL)
    return failure_set(GEMMD_NOMEM, "no memory for an entry of device memory");
  memory->driver = driver;
  status = take(memory, own, bytes);
  if (status == GEMMD_OK)
    status = map(memory, own);
  if (status == GEMMD_OK)
    status = share(memory, session, device);
  if (status != GEMMD_OK) {
    release(memory);
    return status;
  }
  *out = memory;
  return GEMMD_OK;
}

/* The allocation that the caller's address is in. */
static int share_ipc(struct gemmd_cuda_memory *memory, gemmd_session *session, unsigned device, void *address) {
  const struct driver *driver = memory->driver;
  size_t bytes = 0;
  struct driver_ipc handle;
  driver_result result = driver->cuMemGetAddressRange_v2(&memory->address, &bytes, (driver_pointer)(uintptr_t)address);
  if (result == 0)
    result = driver->cuIpcGetMemHandle(&handle, memory->address);
  int status = failure_check(driver, result, "exporting device memory");
  if (status != GEMMD_OK)
    return status;
  memory->bytes = bytes;
  status = gemmd_memory_open_ipc(session, device, handle.bytes, gemmd_cuda_address(memory), bytes, &memory->tensor);
  return status == GEMMD_OK ? status : failure_set(status, "%s", gemmd_error(session));
}

int gemmd_cuda_open(gemmd_session *session, unsigned device, void *address, gemmd_cuda_memory **out) {
  const char *why;
  const struct driver *driver = driver_table(&why);
  *out = NULL;
  if (driver == NULL)
    return failure_set(GEMMD_UNSUPPORTED, "%s", why);
  struct gemmd_cuda_memory *memory = calloc(1, sizeof *memory);
  if (memory == NULL)
    return failure_set(GEMMD_NOMEM, "no memory for an entry of device memory");
  memory->driver = driver;
  int status = share_ipc(memory, session, device, address);
  if (status != GEMMD_OK) {
    free(memory);
    return status;
  }
  *out = memory;
  return GEMMD_OK;
}

void *gemmd_cuda_address(const gemmd_cuda_memory *memory) {
  return (void *)(uintptr_t)memory->address;
}

int gemmd_cuda_free(gemmd_cuda_memory *memory) {
  if (memory == NULL)
    return GEMMD_OK;
  int status = gemmd_memory_close(memory->tensor);
  if (status == GEMMD_BUSY)
    return failure_set(status, "products in flight use the memory");
  if (status != GEMMD_OK)
    return failure_set(status, "gemmd has not said that it lets go of the memory: %s", gemmd_status_name(status));
  release(memory);
  return GEMMD_OK;
}
