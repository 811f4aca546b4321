#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct driver table;
static const char *missing; /* NULL: all is there */
static char reason[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find(void *library, const char *name, void *slot) {
  void *function = dlsym(library, name);
  if (function == NULL)
    missing = name;
  memcpy(slot, &function, sizeof function); /* a function's address is no object's to the language */
}

static void open_driver(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    missing = "libcuda.so.1";
    snprintf(reason, sizeof reason, "no NVIDIA driver: libcuda.so.1 was not found");
    return;
  }
#define FIND(function) find(library, #function, &table.function)
  FIND(cuInit);
  FIND(cuGetErrorString);
  FIND(cuDeviceGet);
  FIND(cuMemGetAllocationGranularity);
  FIND(cuMemCreate);
  FIND(cuMemRelease);
  FIND(cuMemExportToShareableHandle);
  FIND(cuMemAddressReserve);
  FIND(cuMemAddressFree);
  FIND(cuMemMap);
  FIND(cuMemUnmap);
  FIND(cuMemSetAccess);
  FIND(cuMemGetAddressRange_v2);
  FIND(cuIpcGetMemHandle);
  FIND(cuIpcGetEventHandle);
  FIND(cuEventCreate);
  FIND(cuEventRecord);
  FIND(cuEventDestroy_v2);
#undef FIND
  if (missing != NULL) {
    snprintf(reason, sizeof reason, "the NVIDIA driver has no %s", missing);
    return;
  }
  driver_result result = table.cuInit(0);
  if (result != 0) {
    missing = "cuInit";
    snprintf(reason, sizeof reason, "the NVIDIA driver does not start: error %d", result);
  }
}

const struct driver *driver_table(const char **why) {
  pthread_once(&once, open_driver);
  *why = reason;
  return missing == NULL ? &table : NULL;
}
