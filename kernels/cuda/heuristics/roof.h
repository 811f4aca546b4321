/* What a GPU delivers at most, by what its driver says of it: the roof that measured times are compared with. Pure. */
#pragma once

#include <stdint.h>

struct roof_device {
  int capability; /* 10 * major + minor */
  int multiprocessors;
  int clock_khz, memory_clock_khz, memory_bus_bits;
};

/* Bytes a second that its memory delivers; 0: not known. */
uint64_t roof_memory(const struct roof_device *device);
/* Operations a second (a multiplication and an addition are two) of dense products of 8-bit integers; 16-bit operands
 * have half of it. 0: not known. */
uint64_t roof_operations(const struct roof_device *device);
