/* Launchers of convert_kernels.cuh: rows of numbers on the device to rows of codes and scales in canonical form, there
 * too. */
#pragma once

#include "../../../proto/gemm.h"
#include "../linkage.h"

#include <driver_types.h>
#include <stdint.h>

C_LINKAGE_BEGIN

/* Rows of a weight. Pointers are device memory; x is aligned to its element, codes to 16 bytes. */
struct convert_slice {
  const void *x;
  enum gemm_type x_type; /* F32, F16 or BF16 */
  int64_t x_stride;      /* bytes */
  int64_t rows, k;       /* BLOCK: rows from a multiple of 128 of the weight on */
  enum gemm_format format;
  enum gemm_scale scale;
  bool ternary; /* INT2 */
  void *codes;  /* [rows], row_bytes apart, with their padding */
  int64_t row_bytes;
  /* ROW: [rows]; BLOCK: [rows / 128, k / 128], rounded up; f32; NaN where a value is not finite. GROUP: f16, [rows,
   * k / 128], rounded up. */
  void *scales;
  float one_scale;    /* ONE */
  uint32_t *flawed;   /* GROUP: lowered to the first row with a value beyond f16, or that is not finite */
  uint32_t *greatest; /* launch_convert_magnitude: raised to the largest magnitude, as bits of an f32; from 0x7f800000
                         on: a value is not finite */
};
/* INT8 and FP8 with one scale for all: the magnitude that it comes from. */
cudaError_t launch_convert_magnitude(cudaStream_t stream, const struct convert_slice *slice);
/* Codes and scales: INT8 (ROW, ONE), FP8 (ROW, ONE, BLOCK), INT2 and INT2A8 (GROUP). */
cudaError_t launch_convert(cudaStream_t stream, const struct convert_slice *slice);

C_LINKAGE_END
