#pragma once

#include "importer.h"

/* Markers of ComfyUI about a weight: what is done to x, and UNSUPPORTED for what else would change its meaning. `text`
 * of the tensor <stem>.comfy_quant, or of the header's metadata. */
MUST_CHECK enum status import_comfy_marker(const char *text, size_t bytes, const struct safetensors_tensor *codes,
                                           uint32_t *input, struct error *error);
MUST_CHECK enum status import_comfy_metadata(const struct safetensors *file, const struct safetensors_tensor *codes,
                                             uint32_t *input, struct error *error);
