/* The launchers of our kernels, for C. Each queues on the stream and returns what the launch said. Pointers are device
 * memory, aligned to 256 bytes unless said otherwise. */
#ifndef KERNELS_CUDA_EXEC_LAUNCH_H
#define KERNELS_CUDA_EXEC_LAUNCH_H

#include "../../../proto/gemm.h"

#include <driver_types.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* cudaSuccess where this build has code for the current device. */
cudaError_t launch_check(void);

/* Rows wherever they lie, as the device addresses them: mapped host memory, too. */
enum { ROW_TABLE = 64 };
struct row_table {
  const void *rows[ROW_TABLE];
};

/* `rows` of the table's rows to dense ones, and back. Any alignment; multiples of 16 are fast. */
cudaError_t launch_rows_gather(cudaStream_t stream, const struct row_table *from, int rows, uint64_t row_bytes,
                               void *to, uint64_t to_stride);
cudaError_t launch_rows_scatter(cudaStream_t stream, const void *from, uint64_t from_stride, int rows,
                                uint64_t row_bytes, const struct row_table *to);

/* Rows x [rows, k] of f32, f16 or bf16, as the product reads them. Any alignment of x to an element; rows that begin at
 * multiples of 16 bytes are fast. */
struct quantize_pass {
  const void *x;
  enum gemm_type x_type;
  int64_t x_stride; /* bytes */
  int64_t rows;
  int64_t rows_padded; /* BLOCK: rows from `rows` on become zeros */
  int64_t k, k_padded;
  bool e4m3;      /* else INT8 */
  void *codes;    /* [rows, k_padded] with zeros behind k */
  float *scales;  /* [rows]; BLOCK: [k_padded / 128, rows_padded] */
  bool dependent; /* may be started before the kernel ahead has ended; Hopper and newer alone */
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

/* y = sums * w_scale * x_scale + bias. */
struct epilogue {
  const void *sums; /* [m, sums_stride] of s32 or f32 */
  bool integers;
  int64_t sums_stride;  /* elements */
  const float *w_scale; /* [n], or NULL */
  const float *x_scale; /* [m], or NULL */
  const void *bias;     /* [n], or NULL */
  enum gemm_type bias_type;
  void *y; /* [m, n], may be mapped host memory; aligned to an element */
  enum gemm_type y_type;
  uint64_t y_stride; /* bytes */
  int64_t m, n;
};
cudaError_t launch_epilogue(cudaStream_t stream, const struct epilogue *epilogue);

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

/* Sums of any format but INT2: s32 for INT8, else f32. */
struct plain_product {
  enum gemm_format format;
  int64_t m, n, k; /* of sums, which are [m, n]; rows of x and w are k elements apart and long */
  const void *x, *w;
  const float *x_scale, *w_scale; /* BLOCK weights: [k / 128, x_scale_stride], [n / 128, w_scale_stride]; else NULL */
  int64_t x_scale_stride, w_scale_stride;
  void *sums;
};
cudaError_t launch_plain(cudaStream_t stream, const struct plain_product *product);

/* y = x * W^T + bias with an INT2 weight, or INT2A8 where x is INT8. */
struct int2_product {
  const void *x; /* [m, x_stride], k used; INT8: zeros behind k up to a multiple of 128 */
  enum gemm_type x_type;
  int64_t x_stride;     /* elements; INT8: a multiple of 128, others: k */
  const float *x_scale; /* [m], or NULL: 1 */
  const void *codes;    /* [n, row_bytes] */
  uint64_t row_bytes;
  const void *scales;   /* f16 */
  int64_t scale_stride; /* scales of one row of W; 1: one for the whole row */
  const void *bias;
  enum gemm_type bias_type;
  void *y;
  enum gemm_type y_type;
  uint64_t y_stride; /* bytes */
  int64_t m, n, k;
};
cudaError_t launch_int2(cudaStream_t stream, const struct int2_product *product);

/* Sum over `bytes`, a multiple of 8, of each 8-byte word mixed with its place; does not depend on the order. */
cudaError_t launch_checksum(cudaStream_t stream, const void *data, uint64_t bytes, uint64_t *out);

/* Whether tiles of int2/layout.h, `bytes` of them, have a scale of 2^15 or more, twice which is no f16: 1 or 0. */
cudaError_t launch_int2_large_scales(cudaStream_t stream, const void *tiles, uint64_t bytes, uint64_t *out);

#ifdef __cplusplus
}
#endif
#endif
