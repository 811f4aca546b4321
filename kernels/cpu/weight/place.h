/* Weights in slabs: written there, and made usable where they lie. A weight with experts is a weight for each of them,
 * cpu_layout.expert_bytes apart. */
#pragma once

#include "slab.h"
#include "weight.h"

enum { CPU_PLACE_THREADS = 16 }; /* of one store, at most */

/* In up to `threads` threads, the caller among them. INVALID: the place; NOMEM, SYSTEM. */
MUST_CHECK enum status cpu_place_store(const struct gemm_weight *weight, const void *canonical,
                                       struct backend_slab *slab, uint64_t offset, bool large_pages, int threads,
                                       struct error *error);
/* *out lies in the slab, and goes before it does. `large_pages` as of cpu_slab_touch. */
MUST_CHECK enum status cpu_place_attach(const struct gemm_weight *weight, struct backend_slab *slab, uint64_t offset,
                                        bool large_pages, struct backend_weight **out, struct error *error);
void cpu_place_detach(struct backend_weight *weight);
/* The canonical form, into zeros. */
void cpu_place_read(const struct backend_weight *weight, uint8_t *canonical);
