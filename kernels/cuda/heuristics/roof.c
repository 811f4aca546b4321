#include "roof.h"

uint64_t roof_memory(const struct roof_device *device) {
  if (device->memory_clock_khz <= 0 || device->memory_bus_bits <= 0)
    return 0;
  return (uint64_t)device->memory_clock_khz * 1000 * 2 * (uint64_t)device->memory_bus_bits / 8;
}

/* Of a multiprocessor in a clock cycle, after NVIDIA's tables of arithmetic throughput and its data sheets. */
static uint64_t operations_a_cycle(int capability) {
  switch (capability) {
  case 80:
    return 4096;
  case 86:
  case 87:
  case 89:
    return 2048;
  case 90:
    return 8192;
  default:
    return 0;
  }
}

uint64_t roof_operations(const struct roof_device *device) {
  if (device->clock_khz <= 0)
    return 0;
  return operations_a_cycle(device->capability) * (uint64_t)device->multiprocessors * (uint64_t)device->clock_khz *
         1000;
}
