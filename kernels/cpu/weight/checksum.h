/* A 64-bit checksum that runs at the speed of memory. It finds damage; it does not resist an adversary. */
#ifndef KERNELS_CPU_WEIGHT_CHECKSUM_H
#define KERNELS_CPU_WEIGHT_CHECKSUM_H

#include <stdint.h>

uint64_t cpu_checksum(const void *data, uint64_t bytes);

#endif
