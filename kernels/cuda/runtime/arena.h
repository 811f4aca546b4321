/* Memory of other processes that x and y lie in. */
#pragma once

#include "../state.h"

/* As in struct backend_ops. */
enum status cuda_arena_register(struct backend *, void *, uint64_t, struct backend_arena **, struct error *);
void cuda_arena_unregister(struct backend *, struct backend_arena *);
enum status cuda_memory_import(struct backend *, int, uint64_t, struct backend_arena **, void **, struct error *);
void cuda_memory_close(struct backend *, struct backend_arena *);
