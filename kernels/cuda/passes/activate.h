/* Launcher of activate.cuh. Pointers are device memory, aligned to 256
 * bytes unless said otherwise. */
#pragma once

#include "../../../proto/gemm.h"
#include "../linkage.h"

#include <driver_types.h>
#include <stdint.h>

C_LINKAGE_BEGIN

/* What stands between two products of a sequence, or behind the last one; see proto/plan.h. */
enum activate_to { ACTIVATE_TO_VALUES, ACTIVATE_TO_INT8, ACTIVATE_TO_E4M3, ACTIVATE_TO_E4M3_BLOCKS };
struct activate_pass {
  const void *v; /* [m, columns], or [m, 2 * columns] where gated */
  uint64_t v_stride;
  enum gemm_type type; /* F32, F16 or BF16: of v, and what the result is rounded to */
  int64_t m, columns;
  enum gemm_activation activation;
  bool gated;
  enum activate_to to;
  void *out;           /* codes [m, k_padded], as quantized rows; VALUES: rows of `type`, may be mapped host memory */
  uint64_t out_stride; /* bytes; VALUES */
  int64_t k_padded;    /* elements of a row of out; zeros behind the columns */
  float *scales;       /* [m], BLOCKS: [k_padded / 128, rows_padded] */
  int64_t rows_padded; /* BLOCKS: rows from m on become zeros */
  bool clusters;       /* this device has them */
  bool dependent;      /* may be started before the kernel ahead has ended */
};
cudaError_t launch_activate(cudaStream_t stream, const struct activate_pass *pass);

C_LINKAGE_END
