/* Matrices as the bulk copy engine of Hopper sees them. */
#pragma once

#include "driver.h"

/* Rows of codes at `rows`, aligned to 16 bytes, `stride` bytes apart, a multiple of 16, that are copied in boxes of
 * `box_rows` by 128 bytes, swizzled by 128 bytes, with zeros for what lies outside of [count, k]. */
MUST_CHECK enum status tensor_map_make(const struct driver *driver, const void *rows, int64_t count, int64_t k,
                                       int64_t stride, int box_rows, CUtensorMap *out, struct error *error);
/* How many this thread has made. */
uint64_t tensor_maps_made(void);
