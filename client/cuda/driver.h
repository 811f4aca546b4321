/* What this library needs of the CUDA driver's interface, with the driver's own layouts and numbers; private. The
 * driver is opened when it is first needed, so that nothing of CUDA is needed to build or to link. */
#pragma once

#include <stddef.h>

typedef int driver_result; /* 0: success */
typedef int driver_device;
typedef unsigned long long driver_pointer, driver_allocation;
typedef struct driver_event_of *driver_event;

enum {
  DRIVER_OUT_OF_MEMORY = 2,
  DRIVER_PINNED = 1,           /* kind of allocation */
  DRIVER_POSIX_DESCRIPTOR = 1, /* kind of export */
  DRIVER_ON_DEVICE = 1,        /* kind of location */
  DRIVER_READ_WRITE = 3,
  DRIVER_RECOMMENDED = 1,  /* granularity */
  DRIVER_EVENT_SHARED = 6, /* with other processes, and without timing */
};

struct driver_location {
  int kind, id;
};

struct driver_properties {
  int kind, exports;
  struct driver_location location;
  void *of_another_system;
  unsigned char flags[8];
};
_Static_assert(sizeof(struct driver_properties) == 32, "as the driver has it");

struct driver_access {
  struct driver_location location;
  int flags;
};

/* Of memory or of an event, for other processes. */
struct driver_ipc {
  unsigned char bytes[64];
};

struct driver {
  driver_result (*cuInit)(unsigned);
  driver_result (*cuGetErrorString)(driver_result, const char **);
  driver_result (*cuDeviceGet)(driver_device *, int);
  driver_result (*cuMemGetAllocationGranularity)(size_t *, const struct driver_properties *, int);
  driver_result (*cuMemCreate)(driver_allocation *, size_t, const struct driver_properties *, unsigned long long);
  driver_result (*cuMemRelease)(driver_allocation);
  driver_result (*cuMemExportToShareableHandle)(void *, driver_allocation, int, unsigned long long);
  driver_result (*cuMemAddressReserve)(driver_pointer *, size_t, size_t, driver_pointer, unsigned long long);
  driver_result (*cuMemAddressFree)(driver_pointer, size_t);
  driver_result (*cuMemMap)(driver_pointer, size_t, size_t, driver_allocation, unsigned long long);
  driver_result (*cuMemUnmap)(driver_pointer, size_t);
  driver_result (*cuMemSetAccess)(driver_pointer, size_t, const struct driver_access *, size_t);
  driver_result (*cuMemGetAddressRange_v2)(driver_pointer *, size_t *, driver_pointer);
  driver_result (*cuIpcGetMemHandle)(struct driver_ipc *, driver_pointer);
  driver_result (*cuIpcGetEventHandle)(struct driver_ipc *, driver_event);
  driver_result (*cuEventCreate)(driver_event *, unsigned);
  driver_result (*cuEventRecord)(driver_event, void *stream);
  driver_result (*cuEventDestroy_v2)(driver_event);
};

/* The same table at every call, from any thread. NULL where there is no driver; *why says so, and lasts. */
const struct driver *driver_table(const char **why);
