/* oneDNN 2, opened at run time. Its header is needed to build this; ONEDNN is defined where it was there. */
#pragma once

#if __has_include(<dnnl.h>)
#include <dnnl.h>
#endif

#if defined(DNNL_VERSION_MAJOR) && DNNL_VERSION_MAJOR == 2
#define ONEDNN 1

#include "../../../../proto/status.h"

#define ONEDNN_FUNCTIONS(ROW)                                                                                          \
  ROW(version)                                                                                                         \
  ROW(engine_create)                                                                                                   \
  ROW(engine_destroy)                                                                                                  \
  ROW(stream_create)                                                                                                   \
  ROW(stream_destroy)                                                                                                  \
  ROW(stream_wait)                                                                                                     \
  ROW(memory_desc_init_by_strides)                                                                                     \
  ROW(memory_desc_init_by_tag)                                                                                         \
  ROW(memory_desc_get_size)                                                                                            \
  ROW(memory_create)                                                                                                   \
  ROW(memory_get_data_handle)                                                                                          \
  ROW(memory_set_data_handle)                                                                                          \
  ROW(memory_destroy)                                                                                                  \
  ROW(matmul_desc_init)                                                                                                \
  ROW(primitive_desc_create)                                                                                           \
  ROW(primitive_desc_query_md)                                                                                         \
  ROW(primitive_desc_destroy)                                                                                          \
  ROW(primitive_create)                                                                                                \
  ROW(primitive_execute)                                                                                               \
  ROW(primitive_destroy)                                                                                               \
  ROW(reorder_primitive_desc_create)

struct onednn {
  void *handle; /* owned */
#define ROW(name) __typeof__(&dnnl_##name) name;
  ONEDNN_FUNCTIONS(ROW)
#undef ROW
  void (*omp_set_num_threads)(int threads); /* of the calling thread */
  dnnl_engine_t engine;                     /* owned; the processor */
};

/* `path`, or libdnnl.so.2 where it is NULL. UNSUPPORTED with the reason where it cannot be opened, lacks a function or
 * does not start; *out is zero then. */
MUST_CHECK enum status onednn_open(const char *path, struct onednn *out, struct error *error);
/* *onednn may be zero. */
void onednn_close(struct onednn *onednn);

#endif
