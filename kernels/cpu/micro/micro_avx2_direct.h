/* W on its way from panels to f32 or pairs, in registers for few rows and into blocks for many. Text of micro_avx2*.c,
 * behind micro_avx2.h. Each `expand_*` makes the steps of a few bytes of 8 columns. */
#pragma once

#include "micro_groups.h"
#include "micro_tile.h"

/* ---- FP8: as f16 with the exponent's bias of e4m3, whose values are 2^-8 of what they should be. Subnormal numbers
 * are then subnormal, which conversions, unlike f32 arithmetic, are not slow with. */

/* Sign and magnitude of a code in the high byte of each word to where f16 has them. Of a NaN's magnitude, the largest,
 * the next bit of the exponent is set, too: one step more carries into it. */
static ALWAYS_INLINE __m256i e4m3_half(__m256i codes, bool nan) {
  __m256i half = _mm256_and_si256(_mm256_srai_epi16(codes, 1), _mm256_set1_epi16((short)0xbf80));
  __m256i carry = _mm256_and_si256(_mm256_add_epi16(half, _mm256_set1_epi16(0x80)), _mm256_set1_epi16(0x4000));
  return nan ? _mm256_or_si256(half, carry) : half;
}

/* Conversions take four registers from memory in the time of two from registers, where a shuffle and an extraction of
 * upper halves go with them: halves are written to the first cache and read again. */
#define E4M3_STEPS 4
struct halves {
  _Alignas(32) uint16_t of[E4M3_STEPS][2 * LANES];
};

static ALWAYS_INLINE void keep_halves(struct halves *halves, int step, __m256i codes, bool nan) {
  _mm256_store_si256((__m256i *)halves->of[step], e4m3_half(_mm256_slli_epi16(codes, 8), nan));
  _mm256_store_si256((__m256i *)halves->of[step + 1], e4m3_half(codes, nan));
}

/* Else the compiler takes them from the registers that were stored. */
static ALWAYS_INLINE void settle_halves(struct halves *halves) {
  __asm__("" : "+m"(*halves));
}

/* 8 columns (layout.h): a permutation brings k, k + 1 into one half of a register, k + 2, k + 3 into the other. */
static ALWAYS_INLINE void expand_e4m3(const uint8_t *from, lanes out[E4M3_STEPS]) {
  __m256i codes = _mm256_permute4x64_epi64(_mm256_loadu_si256((const __m256i *)from), 0xd8);
  struct halves halves;
  keep_halves(&halves, 0, codes, true);
  settle_halves(&halves);
  out[0] = load_halves(halves.of[0]) * 0x1p8f;
  out[1] = load_halves(halves.of[1]) * 0x1p8f;
  out[2] = load_halves(halves.of[0] + LANES) * 0x1p8f;
  out[3] = load_halves(halves.of[1] + LANES) * 0x1p8f;
}

/* ---- 16 bits. `step_*` is one step out of the same bytes, where each is by itself as soon made. */

#define BF16_STEPS 2
static ALWAYS_INLINE lanes step_bf16(const uint8_t *from, int step) {
  __m256i pairs = _mm256_loadu_si256((const __m256i *)from);
  return (lanes)(step == 0 ? _mm256_slli_epi32(pairs, 16)
                           : _mm256_and_si256(pairs, _mm256_set1_epi32((int)0xffff0000u)));
}

static ALWAYS_INLINE void expand_bf16(const uint8_t *from, lanes out[BF16_STEPS]) {
  out[0] = step_bf16(from, 0);
  out[1] = step_bf16(from, 1);
}

#define F16_STEPS 2 /* one of them at the end of an odd K */
static ALWAYS_INLINE lanes step_f16(const uint8_t *from, int step) {
  return load_halves(from);
}

/* ---- INT8 as pairs of 16 bits */

#define U8_STEPS 2
static ALWAYS_INLINE counts step_u8(const uint8_t *from, int step) {
  __m256i codes = _mm256_loadu_si256((const __m256i *)from);
  return (counts)(step == 0 ? _mm256_and_si256(codes, _mm256_set1_epi16(0xff)) : _mm256_srli_epi16(codes, 8));
}

static ALWAYS_INLINE void expand_u8(const uint8_t *from, counts out[U8_STEPS]) {
  out[0] = step_u8(from, 0);
  out[1] = step_u8(from, 1);
}

/* Codes of x in the order of the pairs. */
static void words_s8(const int8_t *from, uint32_t *to, int64_t count) {
  for (int64_t i = 0; i < count; i += 4, from += 4, to += 2) {
    to[0] = (uint16_t)from[0] | (uint32_t)(uint16_t)from[2] << 16;
    to[1] = (uint16_t)from[1] | (uint32_t)(uint16_t)from[3] << 16;
  }
}

/* ---- few rows: tiles that expand. Of `count` steps a column has `bytes` in each of `deep` rows of memory. So many
 * vectors take a step before they take the next: one by one they read W once, but with four rows there are more x than
 * registers. Lines are asked for that far ahead: a stretch for few rows, which read all columns of a step; else 8 KiB,
 * what others read of some columns of all steps before the next columns, so that the next such steps come meanwhile.
 * Where columns of two turns share a line, each turn asks for every other line. */

#define DIRECT_AHEAD 4096
#define BLOCK_AHEAD 8192
/* The lines of x that the next tile begins with, a line of each row once for all its steps. Not where a tile has few
 * rows: what it reads of x stays where it is. */
static ALWAYS_INLINE void ask_for_rows(const struct micro_tile *tile, int rows, int64_t step) {
  if (rows > 2 && step % LINE_DWORDS == 0) {
    UNROLL for (int row = 0; row < rows; row++) {
      __builtin_prefetch(tile->x + (rows + row) * tile->x_stride + step);
    }
  }
}

#define BLOCK_DIRECT(name, bytes, deep, steps_, at_once, sum_type, ending, multiply, step_of)                          \
  static ALWAYS_INLINE void steps_##name(const struct x_rows *x, int rows, int vectors, int64_t step, int count,       \
                                         const uint8_t *w, int64_t width, int64_t ahead,                               \
                                         sum_type sum[][FEW_VECTORS]) {                                                \
    int each = steps_ / deep, turns = bytes * LANES * vectors < 64 ? 64 / (bytes * LANES * vectors) : 1;               \
    UNROLL for (int first = 0; first < vectors; first += at_once) {                                                    \
      UNROLL for (int i = 0; i < count; i++) {                                                                         \
        sum_type w_now[at_once];                                                                                       \
        UNROLL for (int v = 0; v < at_once; v++) {                                                                     \
          const uint8_t *from = w + i / each * bytes * width + bytes * LANES * (first + v);                            \
          w_now[v] = step_of(from, i % each);                                                                          \
          if (i % (each * turns) == 0 && (first + v) * LANES * bytes % 64 == 0) {                                      \
            __builtin_prefetch(from + ahead);                                                                          \
          }                                                                                                            \
        }                                                                                                              \
        UNROLL for (int row = 0; row < rows; row++) {                                                                  \
          sum_type x_now = (sum_type)x_at(x, row, step + i);                                                           \
          UNROLL for (int v = 0; v < at_once; v++) {                                                                   \
            sum[row][first + v] = multiply(sum[row][first + v], w_now[v], x_now);                                      \
          }                                                                                                            \
        }                                                                                                              \
      }                                                                                                                \
    }                                                                                                                  \
  }                                                                                                                    \
  static ALWAYS_INLINE void direct_##name(const struct micro_tile *tile, int rows, int column, int vectors) {          \
    sum_type sum[ROWS][FEW_VECTORS];                                                                                   \
    struct x_rows x = x_rows(tile);                                                                                    \
    int64_t step = 0, width = tile->width, turn = column / (LANES * vectors) % deep;                                   \
    int64_t ahead = rows <= 2 ? DIRECT_AHEAD : BLOCK_AHEAD + turn * bytes * width;                                     \
    const uint8_t *w = (const uint8_t *)tile->w + bytes * column;                                                      \
    begin_##ending(tile, rows, column, vectors, sum);                                                                  \
    for (; step + steps_ <= tile->steps; step += steps_, w += deep * bytes * width) {                                  \
      ask_for_rows(tile, rows, step);                                                                                  \
      steps_##name(&x, rows, vectors, step, steps_, w, width, ahead, sum);                                             \
    }                                                                                                                  \
    for (; deep > 1 && step < tile->steps; step++, w += bytes * width) {                                               \
      steps_##name(&x, rows, vectors, step, 1, w, width, ahead, sum);                                                  \
    }                                                                                                                  \
    end_##ending(tile, rows, column, vectors, sum);                                                                    \
  }                                                                                                                    \
  TILE_OF(tile_##name, direct_##name, ROWS_6)

BLOCK_DIRECT(bf16_pairs, 4, 1, BF16_STEPS, VECTORS, lanes, real, multiply_f32, step_bf16)
BLOCK_DIRECT(f16s, 2, F16_STEPS, F16_STEPS, VECTORS, lanes, real, multiply_f32, step_f16)
BLOCK_DIRECT(u8, 4, 1, U8_STEPS, 1, counts, integer, multiply_words, step_u8)

/* FP8: 16 columns at a time, of which one register gets 0..3 and 8..11, another the rest: what a permutation across the
 * whole of a register would cost for each vector, this does for the sums, before and after. */
static ALWAYS_INLINE void swap_columns(int rows, int vectors, lanes sum[][FEW_VECTORS]) {
  UNROLL for (int row = 0; row < rows; row++) {
    UNROLL for (int v = 0; v + 1 < vectors; v += 2) {
      lanes low = (lanes)_mm256_permute2f128_ps((__m256)sum[row][v], (__m256)sum[row][v + 1], 0x20);
      sum[row][v + 1] = (lanes)_mm256_permute2f128_ps((__m256)sum[row][v], (__m256)sum[row][v + 1], 0x31);
      sum[row][v] = low;
    }
  }
}

/* 4 steps of `vectors` vectors, by twos; the largest of their magnitudes. */
static ALWAYS_INLINE __m256i halves_of_e4m3(const uint8_t *w, int vectors, bool nan, __m256i most,
                                            struct halves halves[]) {
  UNROLL for (int v = 0; v + 1 < vectors; v += 2) {
    const __m256i *from = (const __m256i *)(w + 4 * LANES * v);
    __m256i low = _mm256_loadu_si256(from), high = _mm256_loadu_si256(from + 1);
    __builtin_prefetch((const uint8_t *)from + DIRECT_AHEAD);
    if (!nan) {
      most = _mm256_max_epu8(most, _mm256_add_epi8(low, low));
      most = _mm256_max_epu8(most, _mm256_add_epi8(high, high));
    }
    keep_halves(&halves[v / 2], 0, _mm256_unpacklo_epi64(low, high), nan);
    keep_halves(&halves[v / 2], 2, _mm256_unpackhi_epi64(low, high), nan);
    settle_halves(&halves[v / 2]);
  }
  return most;
}

/* The sums have the factor that the values lack, which is a power of two and changes no bit of them. False, and nothing
 * is stored, where there is a NaN among the codes that `nan` does not allow for. */
static ALWAYS_INLINE bool sum_e4m3(const struct micro_tile *tile, int rows, int column, int vectors, bool nan) {
  lanes sum[ROWS][FEW_VECTORS];
  struct halves halves[FEW_VECTORS / 2];
  struct x_rows x = x_rows(tile);
  const uint8_t *w = (const uint8_t *)tile->w + 4 * column;
  __m256i most = _mm256_setzero_si256();
  begin_real(tile, rows, column, vectors, sum);
  swap_columns(rows, vectors, sum);
  UNROLL for (int i = 0; i < rows * vectors; i++) {
    sum[i / vectors][i % vectors] *= 0x1p-8f;
  }
  for (int64_t step = 0; step < tile->steps; step += E4M3_STEPS, w += 4 * tile->width) {
    ask_for_rows(tile, rows, step);
    most = halves_of_e4m3(w, vectors, nan, most, halves);
    UNROLL for (int i = 0; i < E4M3_STEPS; i++) {
      lanes w_now[FEW_VECTORS];
      UNROLL for (int v = 0; v < vectors; v++) {
        w_now[v] = load_halves(halves[v / 2].of[i] + v % 2 * LANES);
      }
      UNROLL for (int row = 0; row < rows; row++) {
        lanes x_now = (lanes)x_at(&x, row, step + i);
        UNROLL for (int v = 0; v < vectors; v++) {
          sum[row][v] = multiply_f32(sum[row][v], w_now[v], x_now);
        }
      }
    }
  }
  if (!nan && _mm256_movemask_epi8(_mm256_cmpeq_epi8(most, _mm256_set1_epi8((char)0xfe))) != 0) {
    return false;
  }
  UNROLL for (int i = 0; i < rows * vectors; i++) {
    sum[i / vectors][i % vectors] *= 0x1p8f;
  }
  swap_columns(rows, vectors, sum);
  end_real(tile, rows, column, vectors, sum);
  return true;
}

static ALWAYS_INLINE void direct_e4m3(const struct micro_tile *tile, int rows, int column, int vectors) {
  if (!sum_e4m3(tile, rows, column, vectors, false)) {
    sum_e4m3(tile, rows, column, vectors, true);
  }
}
TILE_OF(tile_e4m3, direct_e4m3, ROWS_6)

/* INT2: a code selects one of four numbers, which its column's scale multiplies. */
static ALWAYS_INLINE lanes codes2_lanes(__m256i codes, int k) {
  const __m256 numbers = _mm256_setr_ps(-1, 0, 1, 2, -1, 0, 1, 2);
  return (lanes)_mm256_permutevar_ps(numbers, _mm256_srli_epi32(codes, k % 4 * 8 + k / 4 * 2));
}

/* 16 steps of `vectors` vectors, which take a step before they take the next: their sums do not wait for themselves. */
static ALWAYS_INLINE void steps_codes2(const struct x_rows *x, int rows, int vectors, int64_t step, const uint8_t *w,
                                       const lanes scale[], lanes sum[][FEW_VECTORS], int first) {
  __m256i codes[FEW_VECTORS];
  UNROLL for (int v = 0; v < vectors; v++) {
    codes[v] = _mm256_loadu_si256((const __m256i *)(w + 4 * LANES * v));
    __builtin_prefetch(w + 4 * LANES * v + DIRECT_AHEAD);
  }
  UNROLL for (int k = 0; k < 16; k++) {
    lanes w_now[FEW_VECTORS];
    UNROLL for (int v = 0; v < vectors; v++) {
      w_now[v] = codes2_lanes(codes[v], k) * scale[v];
    }
    UNROLL for (int row = 0; row < rows; row++) {
      lanes x_now = (lanes)x_at(x, row, step + k);
      UNROLL for (int v = 0; v < vectors; v++) {
        sum[row][first + v] = multiply_f32(sum[row][first + v], w_now[v], x_now);
      }
    }
  }
}

static ALWAYS_INLINE void direct_codes2(const struct micro_tile *tile, int rows, int column, int vectors) {
  lanes sum[ROWS][FEW_VECTORS];
  struct x_rows x = x_rows(tile);
  int64_t word = 4 * tile->width, group = 8 * word + 2 * tile->width;
  const uint8_t *w = (const uint8_t *)tile->w;
  int at_once = rows == 1 ? vectors : VECTORS; /* more do not fit into the registers */
  begin_real(tile, rows, column, vectors, sum);
  for (int64_t step = 0; step < tile->steps; step += MICRO_GROUP, w += group) {
    lanes scale[FEW_VECTORS];
    UNROLL for (int v = 0; v < vectors; v++) {
      scale[v] = load_halves(w + 8 * word + 2 * (column + v * LANES));
    }
    UNROLL for (int v = 0; v < vectors; v += at_once) {
      for (int i = 0; i < 8; i++) {
        steps_codes2(&x, rows, at_once, step + 16 * i, w + i * word + 4 * (column + v * LANES), scale + v, sum, v);
      }
    }
  }
  end_real(tile, rows, column, vectors, sum);
}
TILE_OF(tile_codes2, direct_codes2, ROWS_6)

/* ---- many rows: blocks. The next one's lines are asked for, so that they come while this one is multiplied. */

#define UNPACK(name, bytes, count, type, to_type, expand)                                                              \
  static void name(const uint8_t *from, int width, int64_t steps, to_type *to) {                                       \
    for (int64_t step = 0; step < steps; step += count, from += bytes * width, to += count * width) {                  \
      for (int column = 0; column < width; column += LANES) {                                                          \
        type values[count];                                                                                            \
        expand(from + bytes * column, values);                                                                         \
        __builtin_prefetch(from + bytes * column + BLOCK_AHEAD);                                                       \
        UNROLL for (int i = 0; i < count; i++) {                                                                       \
          __builtin_memcpy(to + i * width + column, &values[i], sizeof(type));                                         \
        }                                                                                                              \
      }                                                                                                                \
    }                                                                                                                  \
  }
UNPACK(avx2_e4m3_f32, 4, E4M3_STEPS, lanes, float, expand_e4m3)
UNPACK(avx2_bf16_f32, 4, BF16_STEPS, lanes, float, expand_bf16)
UNPACK(avx2_u8_words, 4, U8_STEPS, counts, uint32_t, expand_u8)

static void avx2_codes2_f32(const uint8_t *from, int width, int groups, float *to) {
  for (int group = 0; group < groups; group++, from += 34 * width, to += MICRO_GROUP * width) {
    for (int column = 0; column < width; column += LANES) {
      lanes scale = load_halves(from + 32 * width + 2 * column);
      for (int i = 0; i < 8; i++) {
        const uint8_t *at = from + 4 * (i * width + column);
        __m256i codes = _mm256_loadu_si256((const __m256i *)at);
        __builtin_prefetch(at + BLOCK_AHEAD);
        UNROLL for (int k = 0; k < 16; k++) {
          store_lanes(to + (16 * i + k) * width + column, codes2_lanes(codes, k) * scale);
        }
      }
    }
  }
}

/* ---- rows of x, and panels of F16 */

static void avx2_widen_f16(const uint16_t *from, float *to, int64_t count) {
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) {
    __builtin_prefetch((const uint8_t *)(from + i) + BLOCK_AHEAD);
    store_lanes(to + i, load_halves(from + i));
  }
  widen_f16(from + i, to + i, count - i);
}

static void avx2_widen_e4m3(const uint8_t *from, float *to, int64_t count) {
  int64_t i = 0;
  for (; i + 2 * LANES <= count; i += 2 * LANES) {
    __m256i codes = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(from + i)));
    __m256i halves = e4m3_half(_mm256_slli_epi16(codes, 8), true);
    store_lanes(to + i, (lanes)_mm256_cvtph_ps(_mm256_castsi256_si128(halves)) * 0x1p8f);
    store_lanes(to + i + LANES, (lanes)_mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)) * 0x1p8f);
  }
  widen_e4m3(from + i, to + i, count - i);
}

/* Six rows of BF16 and of INT2 have no registers left. F16 and BF16 are made f32 in passing, INT8 nearly so: there the
 * store of a block and its way back cost more for few rows; FP8 and INT2 are better unpacked once. */
#define DIRECT_ROWS                                                                                                    \
  {                                                                                                                    \
    [MICRO_E4M3] = 6, [MICRO_U8] = 6, [MICRO_BF16_PAIRS] = 5, [MICRO_F16S] = 6, [MICRO_CODES2] = 5,                    \
    [MICRO_CODES4] = CODES4_ROWS                                                                                       \
  }
#define DIRECT_FEW_ROWS                                                                                                \
  {                                                                                                                    \
    [MICRO_E4M3] = 8, [MICRO_U8] = 16, [MICRO_BF16_PAIRS] = 30, [MICRO_F16S] = 30, [MICRO_CODES2] = 8,                 \
    [MICRO_CODES4] = CODES4_ROWS                                                                                       \
  }

#define MICRO_AVX2(symbol, name_, usable_)                                                                             \
  const struct micro_ops symbol = {                                                                                    \
      MICRO_FIELDS(name_, usable_),                                                                                    \
      .widen_f16 = avx2_widen_f16,                                                                                     \
      .widen_e4m3 = avx2_widen_e4m3,                                                                                   \
      .tile[MICRO_WORDS] = {[MICRO_DWORDS] = tile_words, [MICRO_U8] = tile_u8},                                        \
      .words_s8 = words_s8,                                                                                            \
      .unpack_u8_words = avx2_u8_words,                                                                                \
      .tile[MICRO_F32] = {[MICRO_DWORDS] = tile_f32,                                                                   \
                          [MICRO_E4M3] = tile_e4m3,                                                                    \
                          [MICRO_BF16_PAIRS] = tile_bf16_pairs,                                                        \
                          [MICRO_F16S] = tile_f16s,                                                                    \
                          [MICRO_CODES2] = tile_codes2,                                                                \
                          [MICRO_CODES4] = tile_codes4},                                                               \
      .tile_interleaved = {[MICRO_WORDS] = tile_interleaved_words, [MICRO_F32] = tile_interleaved_f32},                \
      .rows = ROWS,                                                                                                    \
      .unpack_rows = DIRECT_ROWS,                                                                                      \
      .few_rows = DIRECT_FEW_ROWS,                                                                                     \
      .block_steps = BLOCK_STEPS,                                                                                      \
      .unpack_e4m3_f32 = avx2_e4m3_f32,                                                                                \
      .unpack_bf16_f32 = avx2_bf16_f32,                                                                                \
      .unpack_codes2 = unpack_codes2,                                                                                  \
      .unpack_codes2_f32 = avx2_codes2_f32,                                                                            \
      .groups_dwords = groups_dwords,                                                                                  \
      .groups_codes2 = groups_codes2,                                                                                  \
  }
