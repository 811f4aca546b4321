/* What NVML says of the devices, without a CUDA context: whether somebody's kernels run, and how much memory a process
 * has there. Asked by a thread, since a driver that hangs must not hold up the loop. libnvidia-ml is loaded when this
 * is opened; where it is not there, nothing is known. */
#pragma once

#include "../../../proto/limits.h"

#include <stdbool.h>
#include <stdint.h>

struct device_load;

/* As of the last time that it was asked. */
struct device_reading {
  bool measured;         /* else the driver does not say, or has not been asked yet */
  bool busy;             /* kernels have run within the last sampling period, a second at most */
  uint64_t at_ns;        /* of CLOCK_MONOTONIC */
  bool memory_known;     /* of the process that was named last */
  uint64_t memory_bytes; /* that it has on the device */
};

/* NULL where there is no NVML, or no memory. */
struct device_load *device_load_open(void);
/* Names a device and a process of gemmd there (0: none): both are asked for from now on. */
void device_load_watch(struct device_load *load, uint32_t device, const uint8_t uuid[16], uint32_t pid);
struct device_reading device_load_read(struct device_load *load, uint32_t device);
/* Where the driver hangs, the thread is left to itself. NULL: nothing. */
void device_load_close(struct device_load *load);
