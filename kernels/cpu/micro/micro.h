/* The inner loops, one table of them for each instruction set, chosen when the backend opens.
 *
 * Operands come in dwords. A step of a sum multiplies one dword of a row of x with one dword of each column of a panel
 * of W: four u8 with s8, two u8 with s8 as 16 bits each, two bf16, or one f32, whichever the kind says. A lane of a
 * vector is a column, so that nothing is added across lanes, and an element of y takes the same steps in the same order
 * whatever tile or block it is in: its bits depend on its row of x and its row of W alone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
  MICRO_VECTOR = 16,     /* columns: the width of panels is a multiple */
  MICRO_WIDTH = 64,      /* columns of a panel at most */
  MICRO_ROWS = 12,       /* rows of x in a tile at most */
  MICRO_UNPACK_ROWS = 8, /* the same where W is unpacked on the way; see `unpack_rows` */
  MICRO_GROUPS_ROWS = 6, /* the same where sums are scaled by group in registers */
  MICRO_TABLE_ROWS = 4,  /* the same with tables */
  MICRO_GROUP = 128,     /* of K: elements that share a scale */
  MICRO_PAIRS = 64,      /* tables for a group */
  MICRO_TABLE = 16,      /* entries of a table: a nibble's values */
};

enum micro_kind {
  MICRO_INTEGER, /* W u8, x s8, four a dword; s32 sums, modulo 2^32 */
  MICRO_WORDS,   /* the same numbers as 16 bits, k and k + 2 in a dword, k + 1 and k + 3 in the next */
  MICRO_BF16,    /* two a dword; f32 sums */
  MICRO_F32,
  MICRO_KINDS
};

static inline bool micro_is_integer(enum micro_kind kind) {
  return kind == MICRO_INTEGER || kind == MICRO_WORDS;
}

/* How W lies in memory: the first as a kind has it, the others are panels, see layout.h. */
enum micro_source {
  MICRO_DWORDS,     /* [steps][width] dwords */
  MICRO_E4M3,       /* FP8; `steps` is even, with F32 a multiple of 4 */
  MICRO_U8,         /* INT8, with WORDS; `steps` is even */
  MICRO_BF16_PAIRS, /* BF16, with F32; `steps` is even */
  MICRO_F16S,       /* F16, with F32 */
  MICRO_CODES2,     /* INT2, with F32; `steps` is a multiple of MICRO_GROUP */
  MICRO_CODES4,     /* INT4, MXFP4 and NVFP4, the same */
  MICRO_SOURCES
};

/* Sums to numbers. */
struct micro_finish {
  const void *sums; /* [rows][MICRO_WIDTH] s32 or f32 */
  int rows, columns;
  const double *factors; /* [rows] */
  const float *scales;   /* [columns] */
  const float *bias;     /* the same */
  float *to;             /* [rows][columns] */
  int64_t stride;        /* of `to` */
};

/* Sums of `rows` rows of x with `width` columns of W over `steps` steps. */
struct micro_tile {
  const uint32_t *x; /* [rows][steps], x_stride dwords apart */
  int64_t x_stride;
  int rows;
  const void *w;
  int width; /* 16, 32, 48 or 64 */
  int64_t steps;
  void *sums; /* [rows][MICRO_WIDTH], s32 with INTEGER or WORDS and no scale, else f32 */
  bool first; /* the sums begin at 0, not at what `sums` holds */
  /* NULL, NULL: sums += sum. Else sums += scale * sum, with a scale for each row or for each column. */
  const float *row_scale, *column_scale;
  const int32_t *start; /* INTEGER, WORDS: NULL, or [rows], where the sum (before scaling) begins */
  /* NULL, or how the sums become numbers at once, as by finish_s32 and finish_f32: all `width` columns of all rows, and
   * `sums` is only read. Not with a scale. */
  const struct micro_finish *finish;
  const struct micro_codes4 *form; /* of CODES4 */
};

/* What a panel of codes of 4 bits is, see layout.h. */
struct micro_codes4 {
  int group; /* 16, 32, 64 or 128: elements of K that share a scale */
  bool bf16; /* scales; else f16 */
  int zeros; /* bytes of a zero point behind each: 1 of an integer, 2 of an f16; 0: all are 8 */
  bool e2m1; /* codes; else integers */
};

/* Sums of rows of s8 with INT2A8, INT4A8: the exact sum of each group by its column's scale, the groups added in f32.
 */
struct micro_groups {
  const uint32_t *x; /* [rows], x_stride dwords apart */
  int64_t x_stride;
  int rows;      /* 1..MICRO_GROUPS_ROWS */
  const void *w; /* dwords, or a panel from one group on */
  int width;
  int groups;
  const float *column_scale; /* [groups][MICRO_WIDTH]; with dwords, panels have their own */
  /* [groups][rows], start_stride from one group to the next: where a group's sum begins; of 4 bits times the code that
   * stands for 0 */
  const int32_t *start;
  int64_t start_stride;
  float *sums; /* [rows][MICRO_WIDTH] */
  bool first;
  const struct micro_finish *finish; /* as in micro_tile; but `sums` has those of groups before the last */
  const struct micro_codes4 *form;   /* of 4 bits */
};

/* Sums of rows with 2-bit codes through tables: x is tables of what each pair of codes can add. */
struct micro_lookup {
  const float *tables; /* [groups][MICRO_PAIRS][rows][MICRO_TABLE]; lookup_row: x itself, [groups][MICRO_GROUP] */
  int rows;            /* 1..MICRO_TABLE_ROWS */
  const uint8_t *w;    /* panels of INT2, from one group on */
  int width;
  int groups;
  float *sums; /* [rows][MICRO_WIDTH] */
  bool first;
};

/* What products multiply with: kinds, then INT2A8's codes and INT2's tables. */
enum micro_spin { MICRO_SPIN_CODES = MICRO_KINDS, MICRO_SPIN_LOOKUP, MICRO_SPINS };

struct micro_ops {
  const char *name;
  bool (*usable)(void);

  /* `count` elements to wider or shorter ones; exactly, or to the nearest even. */
  void (*widen_f16)(const uint16_t *from, float *to, int64_t count);
  void (*widen_bf16)(const uint16_t *from, float *to, int64_t count);
  void (*widen_e4m3)(const uint8_t *from, float *to, int64_t count);
  void (*widen_s8)(const int8_t *from, float *to, int64_t count);
  void (*narrow_f16)(const float *from, uint16_t *to, int64_t count);
  void (*narrow_bf16)(const float *from, uint16_t *to, int64_t count);

  /* The largest magnitude; NaN where there is one. */
  float (*largest)(const float *values, int64_t count);
  /* rotate.h's. */
  void (*rotate)(float *values, int64_t count, uint32_t stages);
  /* number_quantize_int8 of each. `scale` is a positive number. */
  void (*quantize_int8)(const float *values, float scale, int8_t *to, int64_t count);
  /* The values of number_quantize_e4m3 of each, in place. `scale` is a positive number. */
  void (*quantize_e4m3)(float *values, float scale, int64_t count);
  int32_t (*sum_s8)(const int8_t *values, int64_t count);
  /* to = sums * (factors * scales), in f32. */
  void (*finish_s32)(const struct micro_finish *finish);
  void (*finish_f32)(const struct micro_finish *finish);
  /* to = sums * (factors * scales) + bias, in f64 and rounded once. */
  void (*finish_s32_wide)(const struct micro_finish *finish);
  void (*finish_f32_wide)(const struct micro_finish *finish);

  /* [kind][source]; NULL where the set has none. DWORDS takes up to `rows` rows, the others up to `unpack_rows`. Every
   * set has [F32][DWORDS], and [INTEGER][DWORDS] or both [WORDS][DWORDS] and groups_*. */
  void (*tile[MICRO_KINDS][MICRO_SOURCES])(const struct micro_tile *tile);
  /* Of `rows` rows of x that lie interleaved, [steps][rows], and W as DWORDS; the same bits. The next such tile is
   * rows * x_stride dwords behind. NULL where the set has none. */
  void (*tile_interleaved[MICRO_KINDS])(const struct micro_tile *tile);
  int rows;                       /* of a tile that is best; MICRO_ROWS at most */
  int unpack_rows[MICRO_SOURCES]; /* of a tile that unpacks W on the way; MICRO_UNPACK_ROWS at most */
  int few_rows[MICRO_SOURCES];    /* up to which such tiles are taken; beyond, W is unpacked once for all tiles */
  int block_steps;                /* of unpacked W that tiles use in turn, at most; 0: as many as there is room for */

  /* s8 to x of WORDS. `count` is a multiple of 4. NULL where the set has no such tile. */
  void (*words_s8)(const int8_t *from, uint32_t *to, int64_t count);
  /* Panels to dwords of a kind, `steps` of that kind: INT8 to WORDS and FP8 to BF16 (NULL where there is no such tile),
   * FP8, BF16 and F16 to F32, INT2 to INTEGER, and it and 4 bits scaled to F32. */
  void (*unpack_u8_words)(const uint8_t *from, int width, int64_t steps, uint32_t *to);
  void (*unpack_e4m3_bf16)(const uint8_t *from, int width, int64_t steps, uint32_t *to);
  void (*unpack_e4m3_f32)(const uint8_t *from, int width, int64_t steps, float *to);
  void (*unpack_bf16_f32)(const uint8_t *from, int width, int64_t steps, float *to);
  void (*unpack_codes2)(const uint8_t *from, int width, int groups, uint32_t *to);
  void (*unpack_codes2_f32)(const uint8_t *from, int width, int groups, float *to);
  void (*unpack_codes4_f32)(const uint8_t *from, int width, int groups, const struct micro_codes4 *form, float *to);

  /* NULL where the set has none: a group is then a tile. */
  void (*groups_dwords)(const struct micro_groups *groups);
  void (*groups_codes2)(const struct micro_groups *groups);
  /* Every set has it. */
  void (*groups_codes4)(const struct micro_groups *groups);
  /* NULL where the set has none: INT2 is then unpacked to f32. */
  void (*lookup)(const struct micro_lookup *lookup);
  /* One row, the same bits: entries of tables are made as they are needed, which takes less than reading them. */
  void (*lookup_row)(const struct micro_lookup *lookup);
  void (*lookup_tables)(const float *x, int64_t x_stride, int rows, int groups, float *tables);

  /* [micro_spin], NULL where the set has none: the instructions of a tile alone, `rounds` times. Returns for how many
   * products and additions of elements they stand. */
  int64_t (*spin[MICRO_SPINS])(int64_t rounds);
};

/* Best first, NULL at the end. */
extern const struct micro_ops *const micro_table[];

/* The best that this machine can run; with `name`, that one. NULL where there is no such set or the machine lacks it.
 */
const struct micro_ops *micro_choose(const char *name);
