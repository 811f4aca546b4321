/* Launchers of quantize.cuh: activations to codes. Pointers are device memory, aligned to 256
 * bytes unless said otherwise. */
#ifndef KERNELS_CUDA_PASSES_QUANTIZE_H
#define KERNELS_CUDA_PASSES_QUANTIZE_H

#include "../../../proto/gemm.h"
#include "rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Quantizes dense rows x [rows, k] of f32, f16 or bf16 to INT8, or to E4M3 where `e4m3`: codes [rows, k_padded] with
 * zeros behind k, one scale a row. */
cudaError_t launch_quantize_rows(cudaStream_t stream, const void *x, enum gemm_type x_type, int64_t rows, int64_t k,
                                 int64_t k_padded, bool e4m3, void *codes, float *scales);
/* The same with x in up to ROW_TABLE rows of the table, aligned to an element: read once or twice. Where `y_rows` is
 * not NULL, the rows of table `y` are written there, on the device, for the product that follows. */
cudaError_t launch_quantize_table(cudaStream_t stream, const struct row_table *x, enum gemm_type x_type, int rows,
                                  int64_t k, int64_t k_padded, bool e4m3, void *codes, float *scales,
                                  const struct row_table *y, void **y_rows);
/* The same to E4M3 in blocks of 128 along K: scales [k_padded / 128, rows_padded]. Rows from `rows` on become zeros. */
cudaError_t launch_quantize_blocks(cudaStream_t stream, const void *x, enum gemm_type x_type, int64_t rows,
                                   int64_t rows_padded, int64_t k, int64_t k_padded, void *codes, float *scales);
/* in [rows, columns] to out [columns, rows_padded], zeros from `rows` on. */
cudaError_t launch_scales_transpose(cudaStream_t stream, const float *in, int64_t rows, int64_t rows_padded,
                                    int64_t columns, float *out);

/* One kernel of the file, which leads to the others. */
const void *kernel_of_quantize(void);

#ifdef __cplusplus
}
#endif
#endif
