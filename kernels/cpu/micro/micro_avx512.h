/* What the AVX-512 sets share. Text of micro_avx512*.c, which select the target, and define HAS_VNNI and HAS_BF16 where
 * it has them, and what is another set's (micro_tile.h). */
#pragma once

#include "micro.h"
#ifndef NO_REALS
#include "micro_quantize.h"
#include "micro_widen.h"
#endif

#define LANES 16
#define ROWS 12
#define VECTORS 2
typedef int32_t counts __attribute__((vector_size(64)));
typedef float lanes __attribute__((vector_size(64)));

static inline __attribute__((always_inline)) lanes multiply_f32(lanes sum, lanes w, lanes x) {
  return (lanes)_mm512_fmadd_ps((__m512)w, (__m512)x, (__m512)sum);
}

#ifdef HAS_VNNI
static inline __attribute__((always_inline)) counts multiply_integer(counts sum, counts w, counts x) {
  return (counts)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)w, (__m512i)x);
}
#else
/* Even and odd bytes apart, as s16, which hold u8 and s8. */
static inline __attribute__((always_inline)) counts multiply_integer(counts sum, counts w, counts x) {
  __m512i low = _mm512_set1_epi16(0xff), w_now = (__m512i)w, x_now = (__m512i)x;
  __m512i even = _mm512_madd_epi16(_mm512_and_si512(w_now, low), _mm512_srai_epi16(_mm512_slli_epi16(x_now, 8), 8));
  __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(w_now, 8), _mm512_srai_epi16(x_now, 8));
  return sum + (counts)even + (counts)odd;
}
#endif

#ifdef HAS_BF16
static inline __attribute__((always_inline)) lanes multiply_bf16(lanes sum, counts w, counts x) {
  return (lanes)_mm512_dpbf16_ps((__m512)sum, (__m512bh)w, (__m512bh)x);
}
#endif

static inline __attribute__((always_inline)) lanes load_halves(const void *from) {
  return (lanes)_mm512_cvtph_ps(_mm256_loadu_si256(from));
}

#ifndef NO_INTEGERS
#include "micro_groups.h"
#endif
#include "micro_set.h"

/* ---- FP8 on the way to bf16 */

#ifdef HAS_BF16
/* The bytes of the bf16 that each magnitude stands for: eight of each exponent e, but for subnormals and NaN. */
#define HIGH(e) (e + 120) / 2, (e + 120) / 2, (e + 120) / 2, (e + 120) / 2, (e + 120) / 2, (e + 120) / 2, (e + 120) / 2
#define LOW(e)                                                                                                         \
  e % 2 * 128, e % 2 * 128 + 16, e % 2 * 128 + 32, e % 2 * 128 + 48, e % 2 * 128 + 64, e % 2 * 128 + 80,               \
      e % 2 * 128 + 96
static const uint8_t e4m3_high[128] = {0,        0x3b, 0x3b,     0x3b, 0x3c,     0x3c, 0x3c,     0x3c, HIGH(1),  60,
                                       HIGH(2),  61,   HIGH(3),  61,   HIGH(4),  62,   HIGH(5),  62,   HIGH(6),  63,
                                       HIGH(7),  63,   HIGH(8),  64,   HIGH(9),  64,   HIGH(10), 65,   HIGH(11), 65,
                                       HIGH(12), 66,   HIGH(13), 66,   HIGH(14), 67,   HIGH(15), 0x7f};
static const uint8_t e4m3_low[128] = {0,       0,   0x80,    0xc0, 0,       0x20, 0x40,    0x60, LOW(1),  240,
                                      LOW(2),  112, LOW(3),  240,  LOW(4),  112,  LOW(5),  240,  LOW(6),  112,
                                      LOW(7),  240, LOW(8),  112,  LOW(9),  240,  LOW(10), 112,  LOW(11), 240,
                                      LOW(12), 112, LOW(13), 240,  LOW(14), 112,  LOW(15), 0xc0};

struct e4m3_tables {
  __m512i low[2], high[2];
};

static ALWAYS_INLINE struct e4m3_tables e4m3_tables(void) {
  struct e4m3_tables tables;
  UNROLL for (int i = 0; i < 2; i++) {
    tables.low[i] = _mm512_loadu_si512(e4m3_low + 64 * i);
    tables.high[i] = _mm512_loadu_si512(e4m3_high + 64 * i);
  }
  return tables;
}

/* 64 codes, k .. k + 3 of 16 columns, to two dwords a column. */
static ALWAYS_INLINE void e4m3_pairs(const struct e4m3_tables *tables, __m512i codes, counts pairs[2]) {
  __m512i low = _mm512_permutex2var_epi8(tables->low[0], codes, tables->low[1]);
  __m512i high = _mm512_permutex2var_epi8(tables->high[0], codes, tables->high[1]);
  high = _mm512_ternarylogic_epi32(high, codes, _mm512_set1_epi8((char)0x80), 0xf8); /* high | (codes & 0x80) */
  pairs[0] = (counts)_mm512_unpacklo_epi8(low, high);
  pairs[1] = (counts)_mm512_unpackhi_epi8(low, high);
}

static void unpack_e4m3_bf16(const uint8_t *from, int width, int64_t steps, uint32_t *to) {
  struct e4m3_tables tables = e4m3_tables();
  for (int64_t step = 0; step < steps; step += 2, to += 2 * width) {
    for (int column = 0; column < width; column += LANES, from += 64) {
      counts pairs[2];
      __builtin_prefetch(from + 1024);
      e4m3_pairs(&tables, _mm512_loadu_si512(from), pairs);
      store_counts(to + column, pairs[0]);
      store_counts(to + width + column, pairs[1]);
    }
  }
}

static ALWAYS_INLINE void block_e4m3(const struct micro_tile *tile, int rows, int column, int vectors) {
  struct e4m3_tables tables = e4m3_tables();
  lanes sum[ROWS][VECTORS];
  struct x_rows x = x_rows(tile);
  const uint8_t *w = (const uint8_t *)tile->w + 4 * column;
  begin_real(tile, rows, column, vectors, sum);
  for (int64_t step = 0; step < tile->steps; step += 2, w += 4 * tile->width) {
    counts pairs[VECTORS][2];
    UNROLL for (int v = 0; v < vectors; v++) {
      __builtin_prefetch(w + 64 * v + 4 * PREFETCH_DWORDS);
      e4m3_pairs(&tables, _mm512_loadu_si512(w + 64 * v), pairs[v]);
    }
    UNROLL for (int half = 0; half < 2; half++) {
      UNROLL for (int row = 0; row < rows; row++) {
        counts x_now = x_at(&x, row, step + half);
        UNROLL for (int v = 0; v < vectors; v++) {
          sum[row][v] = multiply_bf16(sum[row][v], pairs[v][half], x_now);
        }
      }
    }
  }
  end_real(tile, rows, column, vectors, sum);
}
UNPACK_TILE(tile_e4m3, block_e4m3)
#endif

/* ---- F16 */

#ifndef NO_REALS

#define PREFETCH_HALVES 2048

/* The sums of block_f32, bit by bit: W is widened in registers. */
static ALWAYS_INLINE void block_f16s(const struct micro_tile *tile, int rows, int column, int vectors) {
  lanes sum[ROWS][VECTORS];
  struct x_rows x = x_rows(tile);
  const uint16_t *w = (const uint16_t *)tile->w + column;
  begin_real(tile, rows, column, vectors, sum);
  for (int64_t step = 0; step < tile->steps; step++, w += tile->width) {
    lanes w_now[VECTORS];
    __builtin_prefetch(w + PREFETCH_HALVES);
    UNROLL for (int v = 0; v < vectors; v++) {
      w_now[v] = (lanes)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(w + v * LANES)));
    }
    UNROLL for (int row = 0; row < rows; row++) {
      lanes x_now = (lanes)x_at(&x, row, step);
      UNROLL for (int v = 0; v < vectors; v++) {
        sum[row][v] = multiply_f32(sum[row][v], w_now[v], x_now);
      }
    }
  }
  end_real(tile, rows, column, vectors, sum);
}
UNPACK_TILE(tile_f16s, block_f16s)

/* ---- INT2 by tables */

/* Entry c of the table of x[k] and x[k + 4] is what a nibble c of codes adds: its low code times the first, its
 * high code times the second. Table i of 16 elements is for nibble i of a dword. */
static ALWAYS_INLINE __m512 table_of(const float *x, int nibble) {
  const __m512 low = _mm512_setr_ps(-1, 0, 1, 2, -1, 0, 1, 2, -1, 0, 1, 2, -1, 0, 1, 2);
  const __m512 high = _mm512_setr_ps(-1, -1, -1, -1, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2);
  const float *at = x + nibble % 2 * 8 + nibble / 2;
  return _mm512_fmadd_ps(_mm512_set1_ps(at[4]), high, _mm512_mul_ps(_mm512_set1_ps(at[0]), low));
}

static void lookup_tables(const float *x, int64_t x_stride, int rows, int groups, float *tables) {
  for (int64_t first = 0; first < (int64_t)groups * MICRO_GROUP; first += 16) {
    for (int nibble = 0; nibble < 8; nibble++) {
      for (int row = 0; row < rows; row++, tables += MICRO_TABLE) {
        _mm512_storeu_ps(tables, table_of(x + row * x_stride + first, nibble));
      }
    }
  }
}

/* Nibble `i` of each dword in the low bits of a lane; the bits above do not matter to a lookup. Shifts would share
 * their ports with the lookups; the high half of a product is the same shift elsewhere. */
static ALWAYS_INLINE __m512i nibble_of(__m512i codes, __m512i upper, int i) {
  __m512i from = i < 4 ? codes : upper;
  return i % 4 == 0 ? from : _mm512_mulhi_epu16(from, _mm512_set1_epi32(1 << (16 - 4 * (i % 4))));
}

/* A sum plus a value on the ports of additions or on those of multiplications: the same bits. */
static ALWAYS_INLINE __m512 add_there(__m512 sum, __m512 value, bool multiplier) {
  return multiplier ? _mm512_fmadd_ps(value, _mm512_set1_ps(1), sum) : _mm512_add_ps(sum, value);
}

/* One dword of codes of each column: eight tables a row. */
static ALWAYS_INLINE void lookup_word(const uint8_t *w, const float *tables, int rows, int vectors, __m512 sum[][4]) {
  __m512i codes[4], upper[4];
  UNROLL for (int v = 0; v < vectors; v++) {
    codes[v] = _mm512_loadu_si512(w + 64 * v);
    __builtin_prefetch(w + 64 * v + PREFETCH_CODES2);
    upper[v] = _mm512_srli_epi32(codes[v], 16);
  }
  UNROLL for (int i = 0; i < 8; i++) {
    __m512i index[4];
    UNROLL for (int v = 0; v < vectors; v++) {
      index[v] = nibble_of(codes[v], upper[v], i);
    }
    UNROLL for (int row = 0; row < rows; row++) {
      __m512 table = _mm512_loadu_ps(tables + (i * rows + row) * MICRO_TABLE);
      UNROLL for (int v = 0; v < vectors; v++) {
        sum[row][v] = add_there(sum[row][v], _mm512_permutexvar_ps(index[v], table), (row + v + i) % 2 == 0);
      }
    }
  }
}

static ALWAYS_INLINE void block_lookup(const struct micro_lookup *lookup, int rows, int vectors) {
  const float *tables = lookup->tables;
  const uint8_t *w = lookup->w;
  for (int group = 0; group < lookup->groups; group++, w += 2 * LANES * vectors) {
    __m512 sum[MICRO_TABLE_ROWS][4];
    UNROLL for (int row = 0; row < rows; row++) {
      UNROLL for (int v = 0; v < vectors; v++) {
        sum[row][v] = _mm512_setzero_ps();
      }
    }
    for (int word = 0; word < 8; word++, w += 4 * LANES * vectors, tables += 8 * rows * MICRO_TABLE) {
      lookup_word(w, tables, rows, vectors, sum);
    }
    UNROLL for (int v = 0; v < vectors; v++) {
      __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(w + 32 * v)));
      UNROLL for (int row = 0; row < rows; row++) {
        float *total = lookup->sums + row * MICRO_WIDTH + v * LANES;
        __m512 before = lookup->first && group == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(total);
        _mm512_storeu_ps(total, _mm512_fmadd_ps(sum[row][v], scale, before));
      }
    }
  }
}

/* Sixteen codes of each column, one row. Which instructions do the same work is chosen so that all ports have some. */
static ALWAYS_INLINE void lookup_row_word(const uint8_t *w, const float *x, int vectors, __m512 sum[4]) {
  __m512i codes[4], upper[4];
  UNROLL for (int v = 0; v < vectors; v++) {
    codes[v] = _mm512_loadu_si512(w + 64 * v);
    __builtin_prefetch(w + 64 * v + PREFETCH_CODES2);
    upper[v] = _mm512_srli_epi32(codes[v], 16);
  }
  UNROLL for (int i = 0; i < 8; i++) {
    __m512 table = table_of(x, i);
    UNROLL for (int v = 0; v < vectors; v++) {
      __m512i index = i % 4 == 1 ? _mm512_srli_epi32(i < 4 ? codes[v] : upper[v], 4) : nibble_of(codes[v], upper[v], i);
      sum[v] = add_there(sum[v], _mm512_permutexvar_ps(index, table), (v + i) % 4 == 0);
    }
  }
}

static ALWAYS_INLINE void block_lookup_row(const struct micro_lookup *lookup, int vectors) {
  const float *x = lookup->tables;
  const uint8_t *w = lookup->w;
  __m512 total[4];
  UNROLL for (int v = 0; v < vectors; v++) {
    total[v] = lookup->first ? _mm512_setzero_ps() : _mm512_loadu_ps(lookup->sums + v * LANES);
  }
  for (int group = 0; group < lookup->groups; group++, w += 2 * LANES * vectors) {
    __m512 sum[4];
    UNROLL for (int v = 0; v < vectors; v++) {
      sum[v] = _mm512_setzero_ps();
    }
    for (int word = 0; word < 8; word++, w += 4 * LANES * vectors, x += 16) {
      lookup_row_word(w, x, vectors, sum);
    }
    UNROLL for (int v = 0; v < vectors; v++) {
      __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(w + 32 * v)));
      total[v] = _mm512_fmadd_ps(sum[v], scale, total[v]);
    }
  }
  UNROLL for (int v = 0; v < vectors; v++) {
    _mm512_storeu_ps(lookup->sums + v * LANES, total[v]);
  }
}

static void lookup_row(const struct micro_lookup *lookup) {
  switch (lookup->width / LANES) {
  case 1:
    block_lookup_row(lookup, 1);
    return;
  case 2:
    block_lookup_row(lookup, 2);
    return;
  case 3:
    block_lookup_row(lookup, 3);
    return;
  default:
    block_lookup_row(lookup, 4);
  }
}

#define LOOKUP_CASE(rows_, vectors_)                                                                                   \
  case rows_ * 8 + vectors_:                                                                                           \
    block_lookup(lookup, rows_, vectors_);                                                                             \
    return;
#define LOOKUP_CASES(rows_)                                                                                            \
  LOOKUP_CASE(rows_, 1)                                                                                                \
  LOOKUP_CASE(rows_, 2)                                                                                                \
  LOOKUP_CASE(rows_, 3)                                                                                                \
  LOOKUP_CASE(rows_, 4)

static void lookup_codes2(const struct micro_lookup *lookup) {
  switch (lookup->rows * 8 + lookup->width / LANES) {
    LOOKUP_CASES(1)
    LOOKUP_CASES(2)
    LOOKUP_CASES(3)
    LOOKUP_CASES(4)
  }
}

/* A lane of a table stands for two codes. */
static ALWAYS_INLINE lanes add_lookup(lanes sum, counts index, counts table) {
  return (lanes)_mm512_add_ps((__m512)sum, _mm512_permutexvar_ps((__m512i)index, (__m512)table));
}

SPIN(lookup, lanes, counts, 2, add_lookup)

#define MICRO_AVX512(symbol, name_, usable_)                                                                           \
  const struct micro_ops symbol = {                                                                                    \
      MICRO_FIELDS(name_, usable_),                                                                                    \
      .widen_f16 = widen_f16,                                                                                          \
      .widen_e4m3 = widen_e4m3,                                                                                        \
      .unpack_bf16_f32 = unpack_bf16_f32,                                                                              \
      .tile = {[MICRO_INTEGER] = {[MICRO_DWORDS] = tile_integer},                                                      \
               [MICRO_F32] = {[MICRO_DWORDS] = tile_f32, [MICRO_F16S] = tile_f16s, [MICRO_CODES4] = tile_codes4}},     \
      .rows = ROWS,                                                                                                    \
      .unpack_rows =                                                                                                   \
          {[MICRO_E4M3] = MICRO_UNPACK_ROWS, [MICRO_F16S] = MICRO_UNPACK_ROWS, [MICRO_CODES4] = CODES4_ROWS},          \
      .few_rows = {[MICRO_E4M3] = MICRO_UNPACK_ROWS, [MICRO_F16S] = MICRO_UNPACK_ROWS, [MICRO_CODES4] = CODES4_ROWS},  \
      .unpack_e4m3_f32 = unpack_e4m3_f32,                                                                              \
      .unpack_codes2 = unpack_codes2,                                                                                  \
      .unpack_codes2_f32 = unpack_codes2_f32,                                                                          \
      .groups_dwords = groups_dwords,                                                                                  \
      .groups_codes2 = groups_codes2,                                                                                  \
      .lookup = lookup_codes2,                                                                                         \
      .lookup_row = lookup_row,                                                                                        \
      .lookup_tables = lookup_tables,                                                                                  \
      .spin[MICRO_SPIN_LOOKUP] = spin_lookup,                                                                          \
  }
#endif
