/* Memory of another process for x and y: a memfd. */
#pragma once

#include "../../backend.h"

/* A memfd of ordinary pages that cannot shrink, of exactly `bytes`; BAD_DESCRIPTOR otherwise. */
MUST_CHECK enum status cpu_memory_import(int fd, uint64_t bytes, struct backend_arena **out, void **address,
                                         struct error *error);
void cpu_memory_close(struct backend_arena *memory);
