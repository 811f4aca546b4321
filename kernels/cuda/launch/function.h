/* Kernels of ours as the driver knows them. */
#pragma once

#include <cuda.h>
#include <stdint.h>

/* Kernels that this thread queues from here on are for the device of this number; 0 unless anything is said. A process
 * with one device need say nothing. */
void launch_on(int device);

/* Both are for the device that launch_on has named to this thread, which is current. They return what a cudaError_t is.
 * What has been said or asked once costs a look-up from then on. */

/* Lets the kernel have so many bytes of shared memory. */
int function_allow(const void *kernel, uint32_t shared_bytes);
/* The same, and how the driver calls the kernel in the device's primary context. */
int function_find(const void *kernel, uint32_t shared_bytes, CUfunction *out);
