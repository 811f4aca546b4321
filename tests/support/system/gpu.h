/* A GPU as a client's own program has it: the CUDA driver, opened at run time, in this process. For processes of their
 * own: what has started CUDA must not fork. Failures are said on stderr. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A context on the first GPU, current in this thread, with a stream. False where there is none. */
bool gpu_open(void);
void *gpu_stream(void);
/* One more, which waits for no other. Lives as long as the process. */
void *gpu_stream_make(void);
bool gpu_stream_wait(void *stream);
/* What is queued on the stream in between becomes a graph; NULL where that fails. */
bool gpu_capture_begin(void *stream);
void *gpu_capture_end(void *stream);
/* Queues all of a graph. */
bool gpu_graph_launch(void *graph, void *stream);
void gpu_graph_drop(void *graph);
/* The context that is current in this thread, and another in its place; NULL: none. */
void *gpu_current(void);
bool gpu_make_current(void *context);
/* Memory of cuMemAlloc; NULL where there is none. */
void *gpu_alloc(size_t bytes);
void gpu_free(void *memory);
/* Both wait for the copy alone. */
bool gpu_copy_in(void *device, const void *host, size_t bytes);
bool gpu_copy_out(void *host, const void *device, size_t bytes);
/* Queued on the stream: nothing behind it begins before gpu_go_on; then `bytes`, up to 64 KiB, go from `host` to
 * `device`. */
bool gpu_hold_and_copy(void *device, const void *host, size_t bytes);
void gpu_go_on(void);
