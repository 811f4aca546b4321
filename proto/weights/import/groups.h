/* Groups of K that share a scale, in layouts of 2 and 4 bits whose files name the group of each k (act order). A weight
 * of these has struct import_weight's `group`, and IMPORT_INDEX, I32 [K], where the file has one. */
#pragma once

#include "importer.h"

/* Groups of a row; the last may be shorter. */
uint64_t import_groups(const struct import_weight *weight);
/* In the file, of element k of a row. */
uint64_t import_group_of(const struct import_weight *weight, const struct import_data *data, uint64_t k);
/* In the file, of place `column` of the weight's scales. */
uint64_t import_group_at(const struct import_weight *weight, uint64_t column);
/* `entry` NULL: false. */
bool import_is_matrix(const struct import_entry *entry, enum safetensors_dtype dtype, uint64_t rows, uint64_t columns);
/* Element `index` of IMPORT_SCALES, which is F16 or BF16. */
float import_group_scale(const struct import_weight *weight, const struct import_data *data, uint64_t index);
/* The scale mode of the weight's `group`, by the type of IMPORT_SCALES, with zero points or without. UNSUPPORTED where
 * the format has none. */
MUST_CHECK enum status import_group_mode(struct import_weight *out, bool zeros, struct error *error);

/* The index is that of neighbours, or with GEMM_INPUT_ORDER of groups that there are. */
MUST_CHECK enum status import_index_check(const struct import_weight *weight, const struct import_data *data,
                                          struct error *error);
/* struct importer's `input`: the elements of each group one behind the other. */
MUST_CHECK enum status import_index_order(const struct import_weight *weight, const struct import_data *data,
                                          struct import_input *out, struct error *error);
