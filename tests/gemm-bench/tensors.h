/* Where a client's x and y lie: in the memory that its session shares with gemmd, or in such memory on the GPU, by
 * libgemmclient-cuda. The GPU's are reached by the CUDA driver, which is opened when it is needed. */
#pragma once

#include "client/gemmclient_cuda.h"
#include "client/tool/command.h"

struct tensors {
  gemmd_session *session;
  gemmd_cuda_memory *memory; /* NULL: the session's own */
  uint64_t used;
};

/* The bytes that tensors_take uses for a tensor of so many. */
size_t tensors_bytes(size_t bytes);
/* `bytes`: of all that will be taken from the GPU that is gemmd's device 0 and the driver's first; 0: all lies in the
 * session's memory. The calling process must not have been forked from one that has started CUDA. */
enum tool_exit tensors_open(const struct tool_call *call, gemmd_session *session, size_t bytes, struct tensors *out);
void tensors_close(struct tensors *tensors);

/* NULL where the session has no room. Lasts until tensors_close, or as long as the session. */
void *tensors_take(struct tensors *tensors, size_t bytes);
/* To a tensor, and from one. False where the driver fails. */
bool tensors_write(const struct tensors *tensors, void *tensor, const void *from, size_t bytes);
bool tensors_read(const struct tensors *tensors, void *to, const void *tensor, size_t bytes);
