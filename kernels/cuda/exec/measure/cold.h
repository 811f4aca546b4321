/* Copies of a weight that is measured alone, by which its products go in turn: behind those of a model's other weights
 * it lies in no cache, and a kernel that is fastest where it does need not be so there. */
#pragma once

#include "../../state.h"

/* Makes them where these weights are less than caches hold and the device has the memory; else there are none. */
void cold_make(struct backend *, const struct backend_weight *, size_t count);
/* The weight, or its next copy. */
struct backend_weight cold_next(struct backend *, const struct backend_weight *);
/* Takes the memory now, which keeps whoever launches waiting for tens of milliseconds, and for good. */
void cold_open(struct backend *);
/* Gives back what was taken by the way. */
void cold_rest(struct backend *);
void cold_close(struct backend *);
