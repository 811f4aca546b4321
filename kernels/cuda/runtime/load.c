#include "load.h"

#include "driver.h"

#include <cuda_runtime_api.h>
#include <stddef.h>

enum { KERNELS_MOST = 256 }; /* of a file */

struct load_file *load_files;

static void load(const struct driver *driver, const void *any) {
  cudaKernel_t kernel = NULL;
  CUlibrary library = NULL;
  CUkernel kernels[KERNELS_MOST];
  unsigned count = 0;
  if (cudaGetKernel(&kernel, any) != cudaSuccess) { /* none for this device */
    (void)cudaGetLastError();
    return;
  }
  if (driver->cuKernelGetLibrary(&library, (CUkernel)kernel) != CUDA_SUCCESS ||
      driver->cuLibraryGetKernelCount(&count, library) != CUDA_SUCCESS)
    return;
  if (count > KERNELS_MOST)
    count = KERNELS_MOST;
  if (driver->cuLibraryEnumerateKernels(kernels, count, library) != CUDA_SUCCESS)
    return;
  for (unsigned i = 0; i < count; i++) {
    CUfunction function = NULL;
    if (driver->cuKernelGetFunction(&function, kernels[i]) == CUDA_SUCCESS)
      (void)driver->cuFuncLoad(function);
  }
}

void load_kernels(const struct driver *driver) {
  for (const struct load_file *file = load_files; file; file = file->next)
    load(driver, file->kernel);
}
