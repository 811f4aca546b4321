#include "memory.h"

#include <string.h>

static CUmemAllocationProp properties(CUdevice device, bool exported) {
  CUmemAllocationProp prop;
  memset(&prop, 0, sizeof prop);
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = exported ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = device;
  return prop;
}

static uint64_t round_up(uint64_t value, uint64_t to) {
  return (value + to - 1) / to * to;
}

enum status memory_granularity(const struct driver *driver, CUdevice device, uint64_t *out, struct error *error) {
  CUmemAllocationProp prop = properties(device, true);
  size_t granularity = 0;
  CUresult result = driver->cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  *out = granularity;
  return driver_check(driver, result, "asking for the granularity of device memory", error);
}

enum status memory_create(const struct driver *driver, CUdevice device, uint64_t bytes, bool exported,
                          CUmemGenericAllocationHandle *out, struct error *error) {
  CUmemAllocationProp prop = properties(device, exported);
  return driver_check(driver, driver->cuMemCreate(out, bytes, &prop, 0), "taking device memory", error);
}

/* The driver knows an allocation's device but not its size: mapping more than there is fails by itself. */
static enum status device_check(const struct driver *driver, CUdevice device, CUmemGenericAllocationHandle handle,
                                struct error *error) {
  CUmemAllocationProp prop;
  CUresult result = driver->cuMemGetAllocationPropertiesFromHandle(&prop, handle);
  enum status status = driver_check(driver, result, "reading the properties of device memory", error);
  if (status == STATUS_OK && (prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE || prop.location.id != device))
    return error_set(error, STATUS_BAD_DESCRIPTOR, "the descriptor is memory of another device");
  return status;
}

/* What the driver says of a descriptor that is none of its own differs; a lost device shows elsewhere. */
enum status memory_import(const struct driver *driver, CUdevice device, int fd, CUmemGenericAllocationHandle *out,
                          struct error *error) {
  CUresult result =
      driver->cuMemImportFromShareableHandle(out, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  enum status status = driver_check(driver, result, "importing device memory", error);
  if (status != STATUS_OK)
    return status == STATUS_NOMEM ? status
                                  : error_set(error, STATUS_BAD_DESCRIPTOR, "the descriptor is no device memory");
  status = device_check(driver, device, *out, error);
  if (status != STATUS_OK)
    driver->cuMemRelease(*out);
  return status;
}

/* Maps at `address`, which is reserved. */
static CUresult map_at(const struct driver *driver, CUdevice device, CUmemGenericAllocationHandle handle,
                       uint64_t bytes, CUmemAccess_flags access, CUdeviceptr address) {
  CUresult result = driver->cuMemMap(address, bytes, 0, handle, 0);
  if (result != CUDA_SUCCESS)
    return result;
  CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}, .flags = access};
  result = driver->cuMemSetAccess(address, bytes, &desc, 1);
  if (result != CUDA_SUCCESS)
    driver->cuMemUnmap(address, bytes);
  return result;
}

enum status memory_map(const struct driver *driver, CUdevice device, CUmemGenericAllocationHandle handle,
                       uint64_t bytes, CUmemAccess_flags access, CUdeviceptr *out, struct error *error) {
  CUdeviceptr address = 0;
  CUresult result = driver->cuMemAddressReserve(&address, bytes, 0, 0, 0);
  if (result == CUDA_SUCCESS) {
    result = map_at(driver, device, handle, bytes, access, address);
    if (result != CUDA_SUCCESS)
      driver->cuMemAddressFree(address, bytes);
  }
  *out = address;
  return driver_check(driver, result, "mapping device memory", error);
}

void memory_unmap(const struct driver *driver, CUdeviceptr address, uint64_t bytes) {
  driver->cuMemUnmap(address, bytes);
  driver->cuMemAddressFree(address, bytes);
}

enum status region_open(const struct driver *driver, uint64_t most, uint64_t granularity, struct region *out,
                        struct error *error) {
  memset(out, 0, sizeof *out);
  uint64_t reserved = round_up(most, granularity);
  CUresult result = driver->cuMemAddressReserve(&out->address, reserved, 0, 0, 0);
  if (result == CUDA_SUCCESS)
    out->reserved = reserved;
  return driver_check(driver, result, "reserving device addresses", error);
}

enum status region_grow(const struct driver *driver, CUdevice device, struct region *region, uint64_t bytes,
                        uint64_t granularity, struct error *error) {
  uint64_t have = atomic_load_explicit(&region->bytes, memory_order_relaxed);
  if (bytes <= have)
    return STATUS_OK;
  uint64_t more = round_up(bytes - have, granularity);
  if (have + more > region->reserved || region->part_count == REGION_PARTS)
    return error_set(error, STATUS_NOMEM, "working memory of %llu bytes is more than was set apart",
                     (unsigned long long)bytes);
  CUmemGenericAllocationHandle handle;
  enum status status = memory_create(driver, device, more, false, &handle, error);
  if (status != STATUS_OK)
    return status;
  CUresult result = map_at(driver, device, handle, more, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, region->address + have);
  if (result != CUDA_SUCCESS) {
    driver->cuMemRelease(handle);
    return driver_check(driver, result, "mapping working memory", error);
  }
  region->parts[region->part_count] = handle;
  region->part_bytes[region->part_count++] = more;
  atomic_store_explicit(&region->bytes, have + more, memory_order_release);
  return STATUS_OK;
}

void region_empty(const struct driver *driver, struct region *region) {
  uint64_t at = 0;
  for (int i = 0; i < region->part_count; i++) {
    driver->cuMemUnmap(region->address + at, region->part_bytes[i]);
    driver->cuMemRelease(region->parts[i]);
    at += region->part_bytes[i];
  }
  region->part_count = 0;
  atomic_store_explicit(&region->bytes, 0, memory_order_release);
}

void region_close(const struct driver *driver, struct region *region) {
  region_empty(driver, region);
  if (region->reserved)
    driver->cuMemAddressFree(region->address, region->reserved);
  memset(region, 0, sizeof *region);
}
