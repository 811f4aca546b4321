/* Launchers of quantize.cuh: activations to codes. Pointers are device memory, aligned to 256
 * bytes unless said otherwise. */
#pragma once

#include "../../../proto/gemm.h"
#include "../linkage.h"
#include "rows.h"

C_LINKAGE_BEGIN

/* What is done to x before codes are made of it, in this order. */
struct quantize_input {
  const uint32_t *order; /* [k]: element p is x[order[p]], x[0] for what is beyond k; NULL: as they come */
  uint64_t stages;       /* of proto/rotate.h; 0: x is not rotated. No hole in what kernels are given */
  const float *scale;    /* of every row, unless it is not finite; NULL: each row's own */
};

/* Rows x [rows, k] of f32, f16 or bf16, as the product reads them. Any alignment of x to an element; rows that begin at
 * multiples of 16 bytes are fast. */
struct quantize_pass {
  const void *x;
  enum gemm_type x_type;
  int64_t x_stride; /* bytes */
  int64_t rows;
  int64_t rows_padded; /* BLOCK: rows from `rows` on become zeros */
  int64_t k, k_padded;
  bool e4m3;                   /* else INT8 */
  void *codes;                 /* [rows, k_padded] with zeros behind k */
  float *scales;               /* [rows]; BLOCK: [k_padded / 128, rows_padded] */
  bool dependent;              /* may be started before the kernel ahead has ended; Hopper and newer alone */
  struct quantize_input input; /* of launch_quantize_input alone */
};
/* To INT8 or E4M3, one scale a row. */
cudaError_t launch_quantize_rows(cudaStream_t stream, const struct quantize_pass *pass);
/* To E4M3 in blocks of 128 along K. */
cudaError_t launch_quantize_blocks(cudaStream_t stream, const struct quantize_pass *pass);
/* launch_quantize_rows with x in up to ROW_TABLE rows of the table, aligned to an element: read once or twice. Where
 * `y_rows` is not NULL, the rows of table `y` are written there, on the device, for the product that follows. */
cudaError_t launch_quantize_table(cudaStream_t stream, const struct row_table *x, enum gemm_type x_type, int rows,
                                  int64_t k, int64_t k_padded, bool e4m3, void *codes, float *scales,
                                  const struct row_table *y, void **y_rows);
/* in [rows, columns] to out [columns, rows_padded], zeros from `rows` on. */
cudaError_t launch_scales_transpose(cudaStream_t stream, const float *in, int64_t rows, int64_t rows_padded,
                                    int64_t columns, float *out);

C_LINKAGE_END
