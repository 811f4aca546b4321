/* Codes of 4 bits: INT4A8's exact sums of groups, scaled in registers, and panels to f32. Text of micro_*.c, which
 * define beside what micro_tile.h wants load_halves            lanes (const void *from): as many f16 and where NIBBLES,
 * because a set has a faster way for codes up to 15 than multiply_integer, multiply_nibbles       counts (counts sum,
 * counts w, counts x) else where GROUP_SUMS the two of micro_groups.h, whose sums of 16 bits hold the eight steps of 32
 * elements: 16 products of at most 15 * 128 are 30720. */
#pragma once

#include "micro_totals.h"

/* Of one row: all of a panel's columns, so that W is read as one stream, where registers hold as many sums. */
#define CODES4_VECTORS (MICRO_WIDTH / LANES < 8 ? MICRO_WIDTH / LANES : 8)
#define CODES4_CHUNK 32 /* elements of K, which every group is a multiple of */
#define PREFETCH_CODES4 4096
#ifndef UNROLL_CHUNK /* where an instruction multiplies; else the loops inside are long enough */
#define UNROLL_CHUNK UNROLL
#endif
typedef uint16_t lane_shorts __attribute__((vector_size(2 * LANES)));
typedef uint8_t lane_bytes __attribute__((vector_size(LANES)));

static ALWAYS_INLINE lanes load_scales(const void *from, bool bf16) {
  lane_shorts bits;
  __builtin_memcpy(&bits, from, sizeof(bits));
  return bf16 ? (lanes)(__builtin_convertvector(bits, counts) << 16) : load_halves(from);
}

static ALWAYS_INLINE counts load_zeros(const void *from) {
  lane_bytes bytes;
  __builtin_memcpy(&bytes, from, sizeof(bytes));
  return __builtin_convertvector(bytes, counts);
}

/* The same of any kind, as f32. `from` is that of column 0. */
static ALWAYS_INLINE lanes load_real_zeros(const struct micro_codes4 *form, const uint8_t *from, int column) {
  return form->zeros == 2   ? load_halves(from + 2 * column)
         : form->zeros == 1 ? __builtin_convertvector(load_zeros(from + column), lanes)
                            : broadcast_lanes(8.0f);
}

/* ---- INT4A8 */

static ALWAYS_INLINE counts multiply_code4(counts sum, counts codes, counts x) {
#ifdef NIBBLES
  return multiply_nibbles(sum, codes & 0x0f0f0f0f, x);
#elif defined(GROUP_SUMS)
  return multiply_codes(sum, codes & 0x0f0f0f0f, x);
#else
  return multiply_integer(sum, codes & 0x0f0f0f0f, x);
#endif
}

/* One chunk of one row: a vector of codes goes with both of its dwords of x before the next. */
static ALWAYS_INLINE void row_codes4(const struct x_rows *x, int64_t step, const uint32_t *w, int width, int vectors,
                                     counts part[CODES4_VECTORS]) {
  UNROLL_CHUNK for (int i = 0; i < CODES4_CHUNK / 8; i++) {
    counts low = x_at(x, 0, step + 2 * i), high = x_at(x, 0, step + 2 * i + 1);
    UNROLL for (int v = 0; v < vectors; v++) {
      const uint32_t *at = w + i * width + v * LANES;
      counts codes = load_counts(at);
      if (v * LANES % 16 == 0) {
        __builtin_prefetch((const uint8_t *)at + PREFETCH_CODES4);
      }
      part[v] = multiply_code4(multiply_code4(part[v], codes, low), codes >> 4, high);
    }
  }
}

/* One chunk: four dwords of codes of each column, each of which is two of u8. */
static ALWAYS_INLINE void chunk_codes4(const struct x_rows *x, int64_t step, const uint32_t *w, int width, int rows,
                                       int vectors, counts sum[][CODES4_VECTORS]) {
  counts part[MICRO_GROUPS_ROWS][CODES4_VECTORS];
  UNROLL for (int row = 0; row < rows; row++) {
    UNROLL for (int v = 0; v < vectors; v++) {
#ifdef GROUP_SUMS
      part[row][v] = (counts){0};
#else
      part[row][v] = sum[row][v];
#endif
    }
  }
  if (rows == 1) {
    row_codes4(x, step, w, width, vectors, part[0]);
  }
  UNROLL_CHUNK for (int i = 0; rows > 1 && i < CODES4_CHUNK / 8; i++) {
    counts codes[CODES4_VECTORS];
    UNROLL for (int v = 0; v < vectors; v++) {
      codes[v] = load_counts(w + i * width + v * LANES);
      if (v * LANES % 16 == 0) {
        __builtin_prefetch((const uint8_t *)(w + i * width + v * LANES) + PREFETCH_CODES4);
      }
    }
    UNROLL for (int half = 0; half < 2; half++) {
      UNROLL for (int row = 0; row < rows; row++) {
        counts x_now = x_at(x, row, step + 2 * i + half);
        UNROLL for (int v = 0; v < vectors; v++) {
          part[row][v] = multiply_code4(part[row][v], codes[v] >> 4 * half, x_now);
        }
      }
    }
  }
  UNROLL for (int row = 0; row < rows; row++) {
    UNROLL for (int v = 0; v < vectors; v++) {
#ifdef GROUP_SUMS
      sum[row][v] += group_sum(part[row][v]);
#else
      sum[row][v] = part[row][v];
#endif
    }
  }
}

static ALWAYS_INLINE void block_codes4(const struct micro_groups *groups, int rows, int column, int vectors) {
  const struct micro_tile shape = {.x = groups->x, .x_stride = groups->x_stride};
  const struct micro_codes4 form = *groups->form;
  struct x_rows x = x_rows(&shape);
  const uint8_t *w = groups->w;
  int width = groups->width;
  lanes total[MICRO_GROUPS_ROWS][CODES4_VECTORS];
  UNROLL for (int row = 0; row < rows; row++) {
    begin_totals(groups, row, column, vectors, total[row]);
  }
  for (int64_t group = 0, step = 0; group < groups->groups; group++) {
    counts sum[MICRO_GROUPS_ROWS][CODES4_VECTORS] = {{{0}}};
    for (int k = 0; k < form.group; k += CODES4_CHUNK, step += CODES4_CHUNK / 4, w += CODES4_CHUNK / 2 * width) {
      chunk_codes4(&x, step, (const uint32_t *)(const void *)w + column, width, rows, vectors, sum);
    }
    UNROLL for (int v = 0; v < vectors; v++) {
      lanes scale = load_scales(w + 2 * (column + v * LANES), form.bf16);
      const uint8_t *zeros = w + 2 * width;
      counts zero = form.zeros == 1 ? load_zeros(zeros + column + v * LANES) : broadcast(8);
      lanes real = {0};
      if (form.zeros == 2) {
        real = load_real_zeros(&form, zeros, column + v * LANES);
        zero = broadcast(0);
      }
      UNROLL for (int row = 0; row < rows; row++) {
        counts start = broadcast((uint32_t)groups->start[group * groups->start_stride + row]);
        lanes value = __builtin_convertvector(sum[row][v] + start * zero, lanes);
        if (form.zeros == 2) {
          value = multiply_f32(value, __builtin_convertvector(start, lanes), real);
        }
        total[row][v] = multiply_f32(total[row][v], value, scale);
      }
    }
    w += (2 + form.zeros) * width;
  }
  lanes values[MICRO_GROUPS_ROWS][CODES4_VECTORS];
  UNROLL for (int row = 0; row < rows; row++) {
    UNROLL for (int v = 0; v < vectors; v++) {
      values[row][v] = total[row][v];
    }
  }
  end_totals(groups, rows, column, vectors, values[0], CODES4_VECTORS);
}

GROUP_COLUMNS(groups_codes4, block_codes4)

static ONCE void row_of_codes4(const struct micro_groups *groups, int column) {
  block_codes4(groups, 1, column, CODES4_VECTORS);
}

static void groups_codes4(const struct micro_groups *groups) {
  if (groups->rows != 1 || groups->width != MICRO_WIDTH) {
    groups_codes4_columns(groups);
    return;
  }
  if (CODES4_VECTORS * LANES == MICRO_WIDTH) {
    row_of_codes4(groups, 0);
    return;
  }
  const struct micro_codes4 *form = groups->form;
  for (int group = 0; group < groups->groups; group++) {
    int64_t w_bytes = (form->group / 2 + 2 + form->zeros) * MICRO_WIDTH;
    struct micro_groups one = one_group(groups, group, w_bytes, form->group / 4);
    for (int column = 0; column < MICRO_WIDTH; column += CODES4_VECTORS * LANES) {
      row_of_codes4(&one, column);
    }
  }
}

/* ---- to f32, scaled */

#ifndef NO_REALS

/* e2m1 in the low bits, of which the others do not matter, to twice its value: 0, 1, 2, 3, 4, 6, 8, 12, and the sign.
 */
#ifndef HAS_E2M1
static ALWAYS_INLINE lanes twice_e2m1(counts code) {
  counts power = code >> 1 & 3, odd = code & 1, normal = power > 0, sign = -(code >> 3 & 1);
  counts magnitude = (normal & (2 + odd) << (power + normal)) | (~normal & odd);
  return __builtin_convertvector((magnitude ^ sign) - sign, lanes);
}
#endif

/* What stands behind a group's codes: the scale, and what is to be taken from scaled codes. Both products are exact,
 * and so is their difference. */
struct codes4_scale {
  lanes scale, less;
};

static ALWAYS_INLINE struct codes4_scale codes4_scale(const struct micro_codes4 *form, const uint8_t *behind, int width,
                                                      int column, bool e2m1) {
  lanes scale = load_scales(behind + 2 * column, form->bf16);
  return (struct codes4_scale){.scale = e2m1 ? scale * 0.5f : scale,
                               .less = -load_real_zeros(form, behind + 2 * width, column) * scale};
}

/* Code k of 8 in each dword. */
static ALWAYS_INLINE lanes codes4_lanes(counts codes, int k, const struct codes4_scale *scale, bool e2m1) {
  counts code = codes >> (k % 4 * 8 + k / 4 * 4);
  return e2m1 ? twice_e2m1(code) * scale->scale
              : multiply_f32(scale->less, __builtin_convertvector(code & 15, lanes), scale->scale);
}

static ALWAYS_INLINE void unpack_group4(const uint8_t *from, int width, const struct micro_codes4 *form, bool e2m1,
                                        float *to) {
  for (int column = 0; column < width; column += LANES) {
    struct codes4_scale scale = codes4_scale(form, from + form->group / 2 * width, width, column, e2m1);
    for (int word = 0; word < form->group / 8; word++) {
      const uint8_t *at = from + 4 * (word * width + column);
      counts codes = load_counts(at);
      __builtin_prefetch(at + 2 * PREFETCH_CODES4);
      UNROLL for (int k = 0; k < 8; k++) {
        store_lanes(to + (8 * word + k) * width + column, codes4_lanes(codes, k, &scale, e2m1));
      }
    }
  }
}

static void unpack_codes4_f32(const uint8_t *from, int width, int groups, const struct micro_codes4 *form, float *to) {
  for (int group = 0; group < groups; group++, from += (form->group / 2 + 2 + form->zeros) * width) {
    form->e2m1 ? unpack_group4(from, width, form, true, to) : unpack_group4(from, width, form, false, to);
    to += form->group * width;
  }
}

/* Few rows: the same in registers. */
static ALWAYS_INLINE void steps_codes4(const struct micro_tile *tile, int rows, int column, int vectors, bool e2m1) {
  const struct micro_codes4 form = *tile->form;
  lanes sum[ROWS][FEW_VECTORS];
  struct x_rows x = x_rows(tile);
  int width = tile->width;
  const uint8_t *w = tile->w;
  begin_real(tile, rows, column, vectors, sum);
  for (int64_t step = 0; step < tile->steps; w += (2 + form.zeros) * width) {
    struct codes4_scale scale[FEW_VECTORS];
    UNROLL for (int v = 0; v < vectors; v++) {
      scale[v] = codes4_scale(&form, w + form.group / 2 * width, width, column + v * LANES, e2m1);
    }
    for (int64_t end = step + form.group; step < end; step += 8, w += 4 * width) {
      counts codes[FEW_VECTORS];
      UNROLL for (int v = 0; v < vectors; v++) {
        codes[v] = load_counts(w + 4 * (column + v * LANES));
        if (v * LANES % 16 == 0) {
          __builtin_prefetch(w + 4 * (column + v * LANES) + PREFETCH_CODES4);
        }
      }
      UNROLL_CHUNK for (int k = 0; k < 8; k++) {
        lanes w_now[FEW_VECTORS];
        UNROLL for (int v = 0; v < vectors; v++) {
          w_now[v] = codes4_lanes(codes[v], k, &scale[v], e2m1);
        }
        UNROLL for (int row = 0; row < rows; row++) {
          lanes x_now = (lanes)x_at(&x, row, step + k);
          UNROLL for (int v = 0; v < vectors; v++) {
            sum[row][v] = multiply_f32(sum[row][v], w_now[v], x_now);
          }
        }
      }
    }
  }
  end_real(tile, rows, column, vectors, sum);
}

static ALWAYS_INLINE void direct_codes4(const struct micro_tile *tile, int rows, int column, int vectors) {
  tile->form->e2m1 ? steps_codes4(tile, rows, column, vectors, true) : steps_codes4(tile, rows, column, vectors, false);
}
TILE_OF(tile_codes4, direct_codes4, ROWS_4)
#define CODES4_ROWS 4
#endif
