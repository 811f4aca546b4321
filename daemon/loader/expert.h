/* The tensors of one expert: `{}` in a name is its number; without it, a tensor [E, N, K] has all of them. */
#pragma once

#include "../../proto/weights/import/import.h"

/* A matrix of a stacked tensor, as if the file had it by itself. */
struct expert_slice {
  struct safetensors_tensor tensor;
  struct import_entry entry;
};

/* The tensor that `pattern` names for the expert; *slice is where it is made up, if it is. NOT_FOUND; UNSUPPORTED for
 * stacked tensors of other dimensions, or of codes that are not MXFP4; INVALID where the name is too long. */
MUST_CHECK enum status expert_find(const struct import_model *model, const char *pattern, int64_t expert,
                                   struct expert_slice *slice, const struct import_entry **out, struct error *error);
