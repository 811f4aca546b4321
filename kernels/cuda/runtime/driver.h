/* libcuda.so.1, opened at run time so that one binary starts anywhere: the driver's entry points that the runtime
 * library has no equal of, and what its errors mean here. No function of the CUDA runtime may be called before
 * driver_open succeeded. */
#pragma once

#include "../../../proto/status.h"

#include <cuda.h>
#include <driver_types.h>
#include <stdbool.h>

/* Name as the library exports it. */
#define DRIVER_FUNCTIONS(ROW)                                                                                          \
  ROW(cuInit)                                                                                                          \
  ROW(cuDriverGetVersion)                                                                                              \
  ROW(cuGetErrorString)                                                                                                \
  ROW(cuDeviceGet)                                                                                                     \
  ROW(cuDeviceGetCount)                                                                                                \
  ROW(cuDeviceGetAttribute)                                                                                            \
  ROW(cuDeviceGetName)                                                                                                 \
  ROW(cuDeviceGetUuid_v2)                                                                                              \
  ROW(cuDevicePrimaryCtxRetain)                                                                                        \
  ROW(cuDevicePrimaryCtxRelease_v2)                                                                                    \
  ROW(cuCtxGetCurrent)                                                                                                 \
  ROW(cuCtxGetDevice)                                                                                                  \
  ROW(cuCtxSetCurrent)                                                                                                 \
  ROW(cuThreadExchangeStreamCaptureMode)                                                                               \
  ROW(cuStreamGetCtx)                                                                                                  \
  ROW(cuStreamIsCapturing)                                                                                             \
  ROW(cuDeviceTotalMem_v2)                                                                                             \
  ROW(cuMemGetAllocationGranularity)                                                                                   \
  ROW(cuMemGetAllocationPropertiesFromHandle)                                                                          \
  ROW(cuMemAddressReserve)                                                                                             \
  ROW(cuMemAddressFree)                                                                                                \
  ROW(cuMemCreate)                                                                                                     \
  ROW(cuMemGetAddressRange_v2)                                                                                         \
  ROW(cuMemRelease)                                                                                                    \
  ROW(cuMemExportToShareableHandle)                                                                                    \
  ROW(cuMemImportFromShareableHandle)                                                                                  \
  ROW(cuMemMap)                                                                                                        \
  ROW(cuMemUnmap)                                                                                                      \
  ROW(cuMemSetAccess)                                                                                                  \
  ROW(cuModuleLoadData)                                                                                                \
  ROW(cuModuleUnload)                                                                                                  \
  ROW(cuModuleGetFunction)                                                                                             \
  ROW(cuFuncGetAttribute)                                                                                              \
  ROW(cuFuncSetAttribute)                                                                                              \
  ROW(cuMemsetD32Async)                                                                                                \
  ROW(cuKernelGetLibrary)                                                                                              \
  ROW(cuKernelGetFunction)                                                                                             \
  ROW(cuLibraryGetKernelCount)                                                                                         \
  ROW(cuLibraryEnumerateKernels)                                                                                       \
  ROW(cuFuncLoad)                                                                                                      \
  ROW(cuLaunchKernel)                                                                                                  \
  ROW(cuLaunchKernelEx)                                                                                                \
  ROW(cuStreamWriteValue32_v2)                                                                                         \
  ROW(cuTensorMapEncodeTiled)

struct driver {
#define ROW(name) __typeof__(&name) name;
  DRIVER_FUNCTIONS(ROW)
#undef ROW
};

/* Opens and starts the driver at the first call; later calls return the same table. NULL with the reason where there
 * is none, or where it is older than the runtime that this program was built with. Safe from any thread. */
const struct driver *driver_open(struct error *error);

/* Devices that can run this program's kernels, in the driver's order; 0 with the reason of the last one refused. */
int driver_device_count(const struct driver *driver, struct error *error);
/* The device at `ordinal` among them, and its number for the CUDA runtime. */
MUST_CHECK enum status driver_device_at(const struct driver *driver, int ordinal, CUdevice *device,
                                        int *runtime_ordinal, struct error *error);
/* The same for a number of the driver's own, as the CUDA runtime counts; -1: of the current context, else 0.
 * UNSUPPORTED where it cannot run this program's kernels. */
MUST_CHECK enum status driver_device_own(const struct driver *driver, int number, CUdevice *device,
                                         int *runtime_ordinal, struct error *error);
MUST_CHECK enum status driver_multiprocessors(const struct driver *driver, CUdevice device, int *out,
                                              struct error *error);
/* Compute capability as 10 * major + minor. */
MUST_CHECK enum status driver_capability(const struct driver *driver, CUdevice device, int *out, struct error *error);

/* OK, NOMEM, DEVICE_LOST where the context is beyond use, else SYSTEM, with "<doing>: <the driver's own words>" in
 * *error.
 */
enum status driver_check(const struct driver *driver, CUresult result, const char *doing, struct error *error);
/* The same for a code of the runtime library, whose numbers are the driver's. */
enum status runtime_check(cudaError_t result, const char *doing, struct error *error);
