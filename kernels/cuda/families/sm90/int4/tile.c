#include "tile.h"

#include "rests.h"

#include <string.h>

enum { ROW_BYTES = GEMM_GROUP / 2, STEP_BYTES = 8 /* of codes, 16 of K */, CODE_BITS = 4, CODES = 16 };

/* ---- places */

/* Of a row of a half. */
struct place {
  int unit, g, r;
};

static struct place place_of(int row) {
  row %= INT4_HALF_ROWS;
  return (struct place){.unit = row / INT4_UNIT_ROWS, .g = row % 8, .r = row % INT4_UNIT_ROWS / 8};
}

static int half_of(const struct int4_form *form, int row) {
  return row / INT4_HALF_ROWS * form->half_bytes;
}

/* The word of lane 4 g + q: number `word` of the eight of a unit's row of K. */
static int word_at(const struct place *place, int q, int word) {
  return (2 * place->unit + word / 4) * INT4_UNIT_BYTES + (4 * place->g + q) * 16 + word % 4 * 4;
}

int int4_tile_scale(const struct int4_form *form, int row, int group) {
  struct place place = place_of(row);
  int at = half_of(form, row) + INT4_HALF_SCALES, index = 8 * place.unit + place.g;
  if (!form->e2m1)
    return at + 4 * form->groups * index + 4 * group + 2 * place.r;
  return form->groups == INT4_GROUPS_MOST ? at + 16 * index + 2 * group + place.r
                                          : at + 8 * index + 4 * place.r + group;
}

int int4_tile_zero(const struct int4_form *form, int row, int group) {
  struct place place = place_of(row);
  return half_of(form, row) + form->zeros_at + 2 * form->groups * (8 * place.unit + place.g) + 2 * group + place.r;
}

/* ---- codes */

/* Where a word has bit `bit` of the code for register r, in its low half or the high one. */
static int place_of_bit(const struct int4_form *form, int r, int high, int bit) {
  static const int e2m1[4][4] = {{6, 7, 8, 15}, {0, 1, 2, 9}, {10, 11, 12, 19}, {4, 5, 14, 13}};
  return ((form->e2m1 ? e2m1[r][bit] : 4 * r + bit) + 16 * high) % 32;
}

static uint32_t bits_of(const struct int4_form *form, int r, int high, unsigned code) {
  uint32_t word = 0;
  for (int bit = 0; bit < CODE_BITS; bit++)
    word |= (uint32_t)(code >> bit & 1) << place_of_bit(form, r, high, bit);
  return word;
}

static unsigned code_of(const struct int4_form *form, int r, int high, uint32_t word) {
  unsigned code = 0;
  for (int bit = 0; bit < CODE_BITS; bit++)
    code |= (word >> place_of_bit(form, r, high, bit) & 1) << bit;
  return code;
}

unsigned int4_tile_code(const struct int4_form *form, const uint8_t *tile, int row, int column) {
  struct place place = place_of(row);
  uint32_t word;
  if (form->bytes) {
    int q = column % 16 / 4, number = column / 32 * 2 + column % 32 / 16;
    memcpy(&word, tile + half_of(form, row) + word_at(&place, q, number), sizeof word);
    return (word >> (8 * (column % 4) + (place.r == 0 ? 4 : 0)) & 15) ^ 8;
  }
  memcpy(&word, tile + half_of(form, row) + word_at(&place, column % 8 / 2, column / 16), sizeof word);
  return code_of(form, place.r + 2 * (column % 16 / 8), column % 2, word);
}

static void word_add(uint8_t *at, uint32_t bits) {
  uint32_t word;
  memcpy(&word, at, sizeof word);
  word |= bits;
  memcpy(at, &word, sizeof word);
}

/* The bits of all codes for each register, in its low half and in the high one. */
struct table {
  uint32_t bits[4][2][CODES];
};

static void row_make(const struct table *table, const uint8_t *codes, const struct place *place, uint8_t *half) {
  const uint32_t(*near)[CODES] = table->bits[place->r], (*far)[CODES] = table->bits[place->r + 2];
  for (int step = 0; step < ROW_BYTES / STEP_BYTES; step++, codes += STEP_BYTES)
    for (int q = 0; q < 4; q++) {
      unsigned first = codes[q], second = codes[q + 4];
      word_add(half + word_at(place, q, step),
               near[0][first & 15] | near[1][first >> 4] | far[0][second & 15] | far[1][second >> 4]);
    }
}

/* Four codes that follow each other, in a byte each. */
static uint32_t bytes_of(const uint8_t *two) {
  uint32_t codes = (uint32_t)two[0] | (uint32_t)two[1] << 8;
  return (codes & 0xf) | (codes & 0xf0) << 4 | (codes & 0xf00) << 8 | (codes & 0xf000) << 12;
}

static void row_make_bytes(const uint8_t *codes, const struct place *place, uint8_t *half) {
  for (int word = 0; word < ROW_BYTES / STEP_BYTES; word++, codes += STEP_BYTES)
    for (int q = 0; q < 4; q++)
      word_add(half + word_at(place, q, word), (bytes_of(codes + 2 * q) ^ 0x08080808) << (place->r == 0 ? 4 : 0));
}

/* ---- the whole */

/* Scales and zero points of row n, which is row `row` of the tile. */
static void scales_make(const struct int4_form *form, enum gemm_scale scale, const struct gemm_layout *layout,
                        const uint8_t *canonical, int64_t n, int64_t tile, int row, uint8_t *out) {
  uint64_t bytes = form->e2m1 ? 1 : 2, columns = layout->scale_columns;
  for (int group = 0; group < form->groups; group++) {
    uint64_t column = columns == 1 ? 0 : (uint64_t)tile * (uint64_t)form->groups + (uint64_t)group;
    uint64_t at = (uint64_t)n * columns + column;
    if (column >= columns)
      return;
    memcpy(out + int4_tile_scale(form, row, group), canonical + layout->scales_offset + at * bytes, bytes);
    if (form->zeros)
      out[int4_tile_zero(form, row, group)] =
          int4_zero_code(gemm_zero_get(scale, canonical + layout->zeros_offset, at));
  }
}

void int4_tile_make(const struct gemm_weight *weight, const struct gemm_layout *layout, const uint8_t *canonical,
                    int64_t block, int64_t tile, uint8_t *out) {
  struct int4_form form = int4_form_of(weight->format, weight->scale);
  uint8_t nothing[ROW_BYTES];
  struct table table;
  memset(out, 0, 2 * (size_t)form.half_bytes);
  memset(nothing, gemm_format_facts(weight->format)->padding, sizeof nothing);
  for (int r = 0; r < 4; r++)
    for (unsigned code = 0; code < 2 * CODES; code++)
      table.bits[r][code / CODES][code % CODES] = bits_of(&form, r, (int)(code / CODES), code % CODES);
  for (int row = 0; row < INT4_BLOCK_ROWS; row++) {
    struct place place = place_of(row);
    uint8_t *half = out + half_of(&form, row);
    int64_t n = block * INT4_BLOCK_ROWS + row;
    const uint8_t *codes = nothing;
    if (n < weight->n && (uint64_t)tile * ROW_BYTES < layout->row_bytes) {
      codes = canonical + (uint64_t)n * layout->row_bytes + (uint64_t)tile * ROW_BYTES;
      scales_make(&form, weight->scale, layout, canonical, n, tile, row, out);
    }
    if (form.bytes)
      row_make_bytes(codes, &place, half);
    else
      row_make(&table, codes, &place, half);
  }
}
