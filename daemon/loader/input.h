/* What is done to x before it is multiplied by a weight that is loaded as it is stored: found in the tensors beside its
 * codes, and written where the canonical form has it. */
#pragma once

#include "file.h"
#include "source.h"

/* Completes source->weight and source->layout, and fills in source->x_scale and source->order, which input_free gives
 * back whatever is returned. UNSUPPORTED where parts of a fused weight want different things, but for scales of x, of
 * which the largest is taken, and where it is cut along an order. */
MUST_CHECK enum status input_find(const struct files *files, struct source *source, struct error *error);
void input_free(struct source *source);

/* Codes of one row in the order of the weight; `spare` holds a row of as many bytes. */
void input_reorder(const struct source *source, uint8_t *row, uint8_t *spare);
/* The part of the canonical form that is about x. */
void input_write(const struct source *source, void *canonical);
