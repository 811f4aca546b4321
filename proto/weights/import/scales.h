/* Scales in a tensor of their own, IMPORT_SCALES, whose shape is their mode: one element ONE, [N] or [N, 1] ROW,
 * [ceil(N/128), ceil(K/128)] BLOCK, [N, ceil(K/128)] GROUP, and so on as formats.def has them. */
#pragma once

#include "importer.h"

/* The mode that type and shape of the scales stand for, with IMPORT_ZEROS one that has zero points; one that the
 * request names must fit. */
MUST_CHECK enum status import_scale_mode(enum gemm_scale wanted, struct import_weight *out, struct error *error);
/* Where the scale of a place, and its zero point, lie in their tensors. */
uint64_t import_scale_index(const struct import_weight *weight, uint64_t n, uint64_t column);
/* struct importer's `scale`. */
float import_scale_at(const struct import_weight *weight, const struct import_data *data, uint64_t n, uint64_t column);
/* struct importer's `factor`: IMPORT_FACTOR, F32, of one element or [N]. */
float import_factor_at(const struct import_weight *weight, const struct import_data *data, uint64_t n);
