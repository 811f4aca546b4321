/* Safetensors files for `quantize`: tensors of real numbers in a mapped file, and a file of codes. */
#pragma once

#include "../../../proto/weights/gptq.h"
#include "../../../proto/weights/safetensors.h"

#include <stdbool.h>
#include <stdio.h>

struct checkpoint {
  const char *path; /* the caller's */
  struct safetensors file;
  const uint8_t *map;
  size_t bytes;
};

/* BAD_FILE, NOT_FOUND, SYSTEM, NOMEM with the path in the sentence. Close it, whatever is returned. */
MUST_CHECK enum status checkpoint_open(struct checkpoint *checkpoint, const char *path, struct error *error);
void checkpoint_close(struct checkpoint *checkpoint);

/* A matrix of F32, F16 or BF16 with elements. */
bool checkpoint_is_real(const struct safetensors_tensor *tensor);
/* Rows begin..begin + count of a real matrix as f32. BAD_FILE for one that is not finite, or beyond +-most. */
MUST_CHECK enum status checkpoint_rows(const struct checkpoint *checkpoint, const struct safetensors_tensor *tensor,
                                       size_t begin, size_t count, float most, float *out, struct error *error);

/* Writes the header of a file of codes: for each of the tensors, which are real matrices, codes under its name, U8
 * [N, K/4] of 2 bits or I8 [N, K], and scales [N, `gptq_scales`] under its name with _scale, F16 or F32. What it
 * announces must follow, tensor by tensor, scales first. EXISTS where scales would have the name of another of the
 * tensors; SYSTEM, NOMEM. */
MUST_CHECK enum status checkpoint_write_header(FILE *out, const struct safetensors_tensor *const *tensors, size_t count,
                                               const struct gptq_grid *grid, struct error *error);
