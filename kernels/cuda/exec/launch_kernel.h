/* One kernel as it is queued: what the launchers fill in. */
#ifndef KERNELS_CUDA_EXEC_LAUNCH_KERNEL_H
#define KERNELS_CUDA_EXEC_LAUNCH_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of one kernel's parameters: how many, how each is aligned where it is kept, and bytes of all. */
enum { LAUNCH_PARAMETERS = 8, LAUNCH_ALIGN = 64, LAUNCH_BYTES = 4096 };

struct launch {
  const void *function;
  uint32_t grid[3], block[3], cluster[3]; /* a cluster of zeros: none */
  uint32_t shared_bytes;
  bool dependent;   /* may start before the kernel ahead has ended */
  bool cooperative; /* its blocks wait for each other */
  uint32_t parameter_count;
  uint32_t parameter_bytes[LAUNCH_PARAMETERS];
};

/* Queues the kernel on a cudaStream_t, or holds it back where this thread holds that stream's kernels (launches.h).
 * `values` are those of its parameters, and are copied. Returns what a cudaError_t is. */
int launch_kernel(void *stream, const struct launch *launch, void **values);
/* Kernels that this thread queues from here on are for the device of this number; 0 unless anything is said. A process
 * with one device need say nothing. */
void launch_on(int device);
/* Starts what this thread holds back for the stream: something that is no kernel of ours is to be queued behind it. */
void launch_flush(void *stream);

#ifdef __cplusplus
}
#endif
#endif
