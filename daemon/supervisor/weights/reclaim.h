/* Gives device memory back: contents that nobody uses, ranges of slabs, slabs. What a worker may still use is given
 * back when the worker has said that it does not, or when its process is gone. */
#pragma once

#include "catalog.h"

struct supervisor;

/* Takes an unused content out of the catalog and gives its parts back. `done` (may be NULL) is called after the last
 * of them, maybe before this returns. */
void reclaim_weight(struct supervisor *supervisor, struct catalog_weight *weight, void (*done)(void *user), void *user);
/* One handle less stands for the weight. */
void reclaim_handle(struct supervisor *supervisor, struct catalog_weight *weight);
/* The same for stored parts that never came into the catalog. */
void reclaim_parts(struct supervisor *supervisor, const struct catalog_weight *weight, void (*done)(void *user),
                   void *user);
/* A range that nothing uses. */
void reclaim_extent(struct supervisor *supervisor, uint32_t slab, uint64_t offset);
/* The slab, if it is empty. */
void reclaim_slab(struct supervisor *supervisor, uint32_t slab);
