/* The inner loops, compiled once for each instruction set from the same text (micro_widen.h, micro_quantize.h,
 * micro_tile.h) and chosen when the backend opens.
 *
 * Formats are widened before they are multiplied: INT8 to s16, all others to f32, which holds them exactly. The
 * products of two such f32 are exact too (but for BF16 at the ends of f32's range), so that a fused and a separate
 * multiply-add give the same bits, and what a row of x gets does not depend on the rows it is computed with. */
#ifndef KERNELS_CPU_MICRO_H
#define KERNELS_CPU_MICRO_H

#include <stdbool.h>
#include <stdint.h>

enum {
  MICRO_CHUNK = 512, /* of K: that much of 8 rows of W and 4 of x stays in the first-level cache */
  MICRO_GROUP = 128, /* of K: f32 sums start anew after as many */
  MICRO_GROUPS = MICRO_CHUNK / MICRO_GROUP,
  MICRO_COLUMNS = 2, /* rows of W, that is columns of y, at a time */
  MICRO_ROWS = 64,   /* rows of x in one tile at most */
  MICRO_LANES = 16,  /* sums kept for one element of y; narrower instruction sets leave the last ones 0 */
};

/* Some rows of x times some rows of W over one chunk of K, added to `sums`. */
struct micro_tile {
  const void *x; /* f32 or s16, [rows], x_stride elements apart; as long as `groups` */
  int64_t x_stride;
  const float *x_scale; /* one a group of each row, x_scale_stride apart; NULL: all 1 */
  int64_t x_scale_stride;
  int rows;             /* 1..MICRO_ROWS */
  const void *w;        /* f32 or s16, [columns][MICRO_CHUNK] */
  const float *w_scale; /* [columns][MICRO_GROUPS]; NULL: all 1 */
  int columns;          /* 1..MICRO_COLUMNS */
  int groups;           /* 1..MICRO_GROUPS */
  void *sums;           /* f32 or s32, [columns][MICRO_ROWS][MICRO_LANES] */
};

struct micro_ops {
  const char *name;
  bool (*usable)(void);

  /* `count` elements to wider ones, exactly. */
  void (*widen_f16)(const uint16_t *from, float *to, int64_t count);
  void (*widen_bf16)(const uint16_t *from, float *to, int64_t count);
  void (*widen_e4m3)(const uint8_t *from, float *to, int64_t count);
  void (*widen_int8)(const int8_t *from, int16_t *to, int64_t count);
  /* Groups of 128 codes, code 4b + s of a group to place 32s + b: one shift and mask serves 32 bytes. */
  void (*widen_int2)(const uint8_t *from, float *to, int64_t groups);

  /* The largest magnitude; NaN where there is one. */
  float (*largest)(const float *values, int64_t count);
  /* number_quantize_int8 of each. `scale` is a positive number. */
  void (*quantize_int8)(const float *values, float scale, int16_t *to, int64_t count);
  /* The values of number_quantize_e4m3 of each, in place. `scale` is a positive number. */
  void (*quantize_e4m3)(float *values, float scale, int64_t count);

  void (*tile_f32)(const struct micro_tile *tile);
  void (*tile_s16)(const struct micro_tile *tile);
};

/* Best first, NULL at the end. */
extern const struct micro_ops *const micro_table[];

/* The best that this machine can run. */
const struct micro_ops *micro_choose(void);

#endif
