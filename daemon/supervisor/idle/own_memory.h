/* What gemmd's process has on a device, beside the weights. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct device_reading;
struct worker;

/* Bytes; 0 where no process is there, or nobody can say. On a GPU it is what the driver says of the process, less the
 * weights; on the cpu backend its memory that no other process shares. */
uint64_t own_memory(const struct worker *worker, bool gpu, const struct device_reading *reading, uint64_t slabs);
