/* Memory and events of other processes, by the handles of CUDA's IPC. */
#pragma once

#include "../state.h"

/* As in struct backend_ops. */
enum status cuda_memory_open_ipc(struct backend *, const uint8_t *, uint64_t, struct backend_arena **, void **,
                                 struct error *);
enum status cuda_event_open(struct backend *, const uint8_t *, struct backend_event **, struct error *);
void cuda_event_close(struct backend *, struct backend_event *);
enum status cuda_event_query(struct backend *, struct backend_event *);
