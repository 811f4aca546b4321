/* Where the tensors of products lie: rows, strides and offsets in bytes, checked. Pure. */
#pragma once

#include "status.h"

#include <stdbool.h>
#include <stdint.h>

enum { PLACE_ALIGN = 16 }; /* bytes: of offsets */

/* An error carries signed numbers; a size or offset above them stays above every range. */
int64_t place_signed(uint64_t value);
/* `rows` rows of `row_bytes` each, *stride apart (0: dense; made explicit), as bytes from first to last; UINT64_MAX
 * where 64 bits do not hold them. */
MUST_CHECK enum status place_stride(int64_t rows, uint64_t row_bytes, uint32_t element, enum field field,
                                    uint64_t *stride, uint64_t *bytes, struct error *error);
/* [offset, offset + bytes) lies in [begin, end), from a multiple of PLACE_ALIGN on. */
MUST_CHECK enum status place_check(uint64_t offset, uint64_t bytes, uint64_t begin, uint64_t end, enum field field,
                                   struct error *error);
/* Two places, where neither is empty. */
bool place_overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes);
