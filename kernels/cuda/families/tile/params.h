/* What the tile kernel is launched with. Read by the C compiler and by NVRTC, which has no headers: plain types alone.
 */
#ifndef KERNELS_CUDA_FAMILIES_TILE_PARAMS_H
#define KERNELS_CUDA_FAMILIES_TILE_PARAMS_H

enum tile_type { TILE_NONE, TILE_F32, TILE_F16, TILE_BF16, TILE_S32 };

/* How slices of K come together: one after the other on the same sums; or each writes sums of its own, which a pass
 * adds up, in f32 (INT8: s32) or in y's type. */
enum tile_mode { TILE_SERIAL, TILE_PARALLEL, TILE_PARALLEL_Y };

struct tile_params {
  const void *x, *w;            /* rows of row_bytes, aligned to 16 bytes */
  long long x_stride, w_stride; /* bytes, multiples of 16 */
  int m, n;
  int row_bytes;                  /* of K, a multiple of 16 */
  int steps;                      /* of block_k */
  const float *w_scale, *x_scale; /* [n], [m]; NULL: 1 */
  const void *bias;               /* [n] of bias_type */
  int bias_type, y_type;          /* enum tile_type */
  void *y;                        /* [m, n], aligned to an element */
  long long y_stride;             /* bytes */
  int tiles_m, tiles_n, group_size_m;
  int split_k, split_k_mode;
  void *sums;            /* SERIAL: [m, sums_stride]; PARALLEL: [split_k, m, sums_stride]; aligned to 16 bytes */
  long long sums_stride; /* elements, a multiple of 4 */
  int *turns;            /* SERIAL with slices: [tiles + 1], zeros */
};

#endif
