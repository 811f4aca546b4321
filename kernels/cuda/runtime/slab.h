/* Device memory that weights lie in, and that outlives the process. */
#pragma once

#include "../state.h"

/* As in struct backend_ops. */
enum status cuda_slab_create(struct backend *, uint64_t, int *, struct backend_slab **, struct error *);
enum status cuda_slab_import(struct backend *, int, uint64_t, struct backend_slab **, struct error *);
void cuda_slab_close(struct backend *, struct backend_slab *);
enum status cuda_slab_copy(struct backend *, struct backend_slab *, uint64_t, struct backend_slab *, uint64_t, uint64_t,
                           struct error *);
