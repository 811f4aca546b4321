#include "driver.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>

enum { OLDEST_CAPABILITY = 80 };

static struct driver table;
static bool usable;
static struct error unusable;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool table_fill(void *library) {
#define ROW(name)                                                                                                      \
  *(void **)&table.name = dlsym(library, #name);                                                                       \
  if (!table.name) {                                                                                                   \
    error_set(&unusable, STATUS_UNSUPPORTED, "the NVIDIA driver is too old: it has no %s", #name);                     \
    return false;                                                                                                      \
  }
  DRIVER_FUNCTIONS(ROW)
#undef ROW
  return true;
}

static void driver_start(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    error_set(&unusable, STATUS_UNSUPPORTED, "no NVIDIA driver: libcuda.so.1 was not found");
    return;
  }
  if (!table_fill(library))
    return;
  if (driver_check(&table, table.cuInit(0), "starting the NVIDIA driver", &unusable) != STATUS_OK)
    return;
  int version = 0;
  if (driver_check(&table, table.cuDriverGetVersion(&version), "asking the NVIDIA driver its version", &unusable))
    return;
  if (version / 1000 < CUDART_VERSION / 1000) {
    error_set(&unusable, STATUS_UNSUPPORTED, "the NVIDIA driver supports CUDA %d.%d; this program needs %d.0",
              version / 1000, version % 1000 / 10, CUDART_VERSION / 1000);
    return;
  }
  usable = true;
}

const struct driver *driver_open(struct error *error) {
  pthread_once(&once, driver_start);
  if (usable)
    return &table;
  *error = unusable;
  return NULL;
}

enum status driver_multiprocessors(const struct driver *driver, CUdevice device, int *out, struct error *error) {
  CUresult result = driver->cuDeviceGetAttribute(out, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  return driver_check(driver, result, "asking a GPU its number of multiprocessors", error);
}

enum status driver_capability(const struct driver *driver, CUdevice device, int *out, struct error *error) {
  int major = 0, minor = 0;
  CUresult result = driver->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  if (result == CUDA_SUCCESS)
    result = driver->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  *out = 10 * major + minor;
  return driver_check(driver, result, "asking a GPU its compute capability", error);
}

/* Memory that a slab is made of must be exportable as a descriptor. */
static enum status device_usable(const struct driver *driver, int index, CUdevice *device, struct error *error) {
  enum status status = driver_check(driver, driver->cuDeviceGet(device, index), "opening a GPU", error);
  int capability = 0;
  if (status == STATUS_OK)
    status = driver_capability(driver, *device, &capability, error);
  if (status != STATUS_OK)
    return status;
  if (capability < OLDEST_CAPABILITY)
    return error_set(error, STATUS_UNSUPPORTED, "GPU %d has compute capability %d.%d; 8.0 or newer is needed", index,
                     capability / 10, capability % 10);
  int exports = 0;
  CUresult result =
      driver->cuDeviceGetAttribute(&exports, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, *device);
  status = driver_check(driver, result, "asking a GPU what it supports", error);
  if (status == STATUS_OK && !exports)
    return error_set(error, STATUS_UNSUPPORTED, "GPU %d cannot export memory as a file descriptor", index);
  return status;
}

int driver_device_count(const struct driver *driver, struct error *error) {
  int present = 0, count = 0;
  CUdevice device;
  if (driver_check(driver, driver->cuDeviceGetCount(&present), "counting GPUs", error) != STATUS_OK)
    return 0;
  if (present == 0)
    error_set(error, STATUS_UNSUPPORTED, "the NVIDIA driver sees no GPU");
  struct error refused;
  for (int i = 0; i < present; i++) {
    if (device_usable(driver, i, &device, &refused) == STATUS_OK)
      count++;
    else
      *error = refused;
  }
  return count;
}

enum status driver_device_at(const struct driver *driver, int ordinal, CUdevice *device, int *runtime_ordinal,
                             struct error *error) {
  int present = 0, usable_before = 0;
  enum status status = driver_check(driver, driver->cuDeviceGetCount(&present), "counting GPUs", error);
  if (status != STATUS_OK)
    return status;
  struct error refused;
  for (int i = 0; i < present; i++) {
    if (device_usable(driver, i, device, &refused) != STATUS_OK || usable_before++ != ordinal)
      continue;
    *runtime_ordinal = i;
    return STATUS_OK;
  }
  return error_field(error, STATUS_INVALID, FIELD_DEVICE, ordinal, 0, usable_before - 1);
}

enum status driver_device_own(const struct driver *driver, int number, CUdevice *device, int *runtime_ordinal,
                              struct error *error) {
  int present = 0;
  CUcontext current = NULL;
  enum status status = driver_check(driver, driver->cuDeviceGetCount(&present), "counting GPUs", error);
  if (status == STATUS_OK && number < 0 && driver->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current &&
      driver->cuCtxGetDevice(device) == CUDA_SUCCESS)
    number = (int)*device;
  number = number < 0 ? 0 : number;
  if (status == STATUS_OK && number >= present)
    return error_field(error, STATUS_INVALID, FIELD_DEVICE, number, 0, present - 1);
  *runtime_ordinal = number;
  return status == STATUS_OK ? device_usable(driver, number, device, error) : status;
}

static enum status driver_status(CUresult result) {
  switch (result) {
  case CUDA_SUCCESS:
    return STATUS_OK;
  case CUDA_ERROR_OUT_OF_MEMORY:
    return STATUS_NOMEM;
  case CUDA_ERROR_ILLEGAL_ADDRESS:
  case CUDA_ERROR_LAUNCH_TIMEOUT:
  case CUDA_ERROR_LAUNCH_FAILED:
  case CUDA_ERROR_HARDWARE_STACK_ERROR:
  case CUDA_ERROR_ILLEGAL_INSTRUCTION:
  case CUDA_ERROR_MISALIGNED_ADDRESS:
  case CUDA_ERROR_INVALID_ADDRESS_SPACE:
  case CUDA_ERROR_INVALID_PC:
  case CUDA_ERROR_ASSERT:
  case CUDA_ERROR_ECC_UNCORRECTABLE:
  case CUDA_ERROR_NVLINK_UNCORRECTABLE:
  case CUDA_ERROR_CONTAINED:
  case CUDA_ERROR_CONTEXT_IS_DESTROYED:
  case CUDA_ERROR_DEINITIALIZED:
  case CUDA_ERROR_NO_DEVICE:
  case CUDA_ERROR_DEVICE_UNAVAILABLE:
  case CUDA_ERROR_EXTERNAL_DEVICE:
  case CUDA_ERROR_TENSOR_MEMORY_LEAK:
  case CUDA_ERROR_UNKNOWN:
    return STATUS_DEVICE_LOST;
  default:
    return STATUS_SYSTEM;
  }
}

enum status driver_check(const struct driver *driver, CUresult result, const char *doing, struct error *error) {
  enum status status = driver_status(result);
  if (status == STATUS_OK)
    return STATUS_OK;
  const char *text = NULL;
  if (driver->cuGetErrorString(result, &text) != CUDA_SUCCESS || !text)
    text = "unknown error";
  return error_set(error, status, "%s: %s", doing, text);
}

/* The runtime has its own numbers for a few errors of old; everything else is the driver's. */
static enum status runtime_status(cudaError_t result) {
  switch (result) {
  case cudaErrorMemoryAllocation:
    return STATUS_NOMEM;
  case cudaErrorNoDevice:
  case cudaErrorDevicesUnavailable:
    return STATUS_DEVICE_LOST;
  default:
    return driver_status((CUresult)result);
  }
}

enum status runtime_check(cudaError_t result, const char *doing, struct error *error) {
  enum status status = runtime_status(result);
  if (status == STATUS_OK)
    return STATUS_OK;
  /* The runtime keeps the last failure a thread; taken here, the next launch does not report it again. */
  (void)cudaGetLastError();
  return error_set(error, status, "%s: %s", doing, cudaGetErrorString(result));
}
