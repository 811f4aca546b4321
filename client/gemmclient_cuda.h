/* gemmclient-cuda: device memory that this process and gemmd share. Beside gemmclient.h, which needs no CUDA; this part
 * needs the NVIDIA driver (libcuda.so.1) when it is called, and nothing of CUDA when it is built or linked.
 *
 *   gemmd_cuda_memory *memory = NULL;
 *   if (gemmd_cuda_alloc(session, 0, 0, bytes, &memory) != GEMMD_OK) puts(gemmd_cuda_error());
 *   __half *x = gemmd_cuda_address(memory);   // a device pointer: for kernels of this process, and for products
 *   ... kernels write x in a stream; gemmd_cuda_event_record(event, stream), or cuStreamSynchronize ...
 *   gemmd_product product = {.m = m, .x = x, .x_type = GEMMD_F16, .y = x + m * k, .y_type = GEMMD_F16,
 *                            .after = gemmd_cuda_event_get(event)};
 *
 * Memory that the process makes and exports itself goes to gemmd_memory_open as it is. */
#pragma once

#include "gemmclient.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gemmd_cuda_memory gemmd_cuda_memory;

/* Takes `bytes`, rounded up to what the device deals in, of the GPU that the CUDA driver counts as `ordinal` in this
 * process, which must be gemmd's `device` and have a context that is current in this thread; maps it here and in gemmd,
 * for reading and writing. Contents are undefined.
 * UNSUPPORTED where there is no driver, NOMEM, SYSTEM, and what gemmd_memory_open says. */
GEMMD_API int gemmd_cuda_alloc(gemmd_session *session, unsigned device, int ordinal, uint64_t bytes,
                               gemmd_cuda_memory **out);
/* A device pointer. */
GEMMD_API void *gemmd_cuda_address(const gemmd_cuda_memory *memory);
/* Before the session ends, when no kernel of this process uses the memory. BUSY and TIMEOUT as gemmd_memory_close.
 * NULL is fine. */
GEMMD_API int gemmd_cuda_free(gemmd_cuda_memory *memory);
/* Memory that is there already, of cudaMalloc or cuMemAlloc: all of the allocation that `address` is in, by its legacy
 * IPC handle. For users whom the daemon's option ipc_users names (see gemmd_memory_open_ipc); it must not be freed
 * before gemmd_cuda_free has returned OK, which leaves it as it is. */
GEMMD_API int gemmd_cuda_open(gemmd_session *session, unsigned device, void *address, gemmd_cuda_memory **out);

/* An event of the current context's device, which must be gemmd's `device`; gemmd must run as this process's user. */
typedef struct gemmd_cuda_event gemmd_cuda_event;
GEMMD_API int gemmd_cuda_event_create(gemmd_session *session, unsigned device, gemmd_cuda_event **out);
/* `stream`: a CUstream or cudaStream_t. Products that are asked for afterwards wait for what it has queued by now. */
GEMMD_API int gemmd_cuda_event_record(gemmd_cuda_event *event, void *stream);
/* For gemmd_product's `after`. */
GEMMD_API const gemmd_event *gemmd_cuda_event_get(const gemmd_cuda_event *event);
/* Before the session ends. BUSY and TIMEOUT as gemmd_event_close. NULL is fine. */
GEMMD_API int gemmd_cuda_event_free(gemmd_cuda_event *event);

/* The sentence of the last failure of these functions in this thread; "" before any. */
GEMMD_API const char *gemmd_cuda_error(void);

#ifdef __cplusplus
}
#endif
