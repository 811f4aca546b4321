#include "layout.h"

#include "../../../proto/number.h"
#include "../micro/micro.h"

#include <string.h>

static bool has_group_scales(const struct gemm_weight *weight) {
  return gemm_is_packed(weight->format) || weight->scale == GEMM_SCALE_BLOCK;
}

/* Elements of K in one dword of a panel of the format. */
static uint64_t step_of(enum gemm_format format) {
  return format == GEMM_FORMAT_F16 ? 1 : format == GEMM_FORMAT_BF16 ? 2 : 4;
}

static int64_t group_of(const struct gemm_weight *weight) {
  int64_t group = gemm_scale_facts(weight->scale)->k;
  return gemm_is_packed(weight->format) && group > 0 ? group : MICRO_GROUP;
}

uint64_t cpu_layout_zero_bytes(const struct gemm_weight *weight) {
  const struct gemm_scale_facts *facts = gemm_scale_facts(weight->scale);
  return facts->zeros_f16 ? sizeof(uint16_t) : facts->zeros;
}

static uint64_t column_bytes(const struct gemm_weight *weight, uint64_t k) {
  uint64_t bits = (uint64_t)gemm_format_facts(weight->format)->bits, group = (uint64_t)group_of(weight);
  if (!gemm_is_packed(weight->format)) {
    return k * bits / 8;
  }
  return k / group * (group * bits / 8 + sizeof(uint16_t) + cpu_layout_zero_bytes(weight));
}

enum status cpu_layout_compute(const struct gemm_weight *weight, struct cpu_layout *out, struct error *error) {
  struct cpu_layout layout = {.width = gemm_is_packed(weight->format) ? 64 : 32, .group = group_of(weight)};
  const struct gemm_weight one = gemm_expert(weight);
  struct gemm_layout all;
  enum status status = gemm_layout_compute(weight, &all, error);
  if (status == STATUS_OK) {
    status = gemm_layout_compute(&one, &layout.canonical, error);
  }
  if (status != STATUS_OK) {
    return status;
  }
  uint64_t n = gemm_round_up((uint64_t)weight->n, MICRO_VECTOR);
  uint64_t k = gemm_round_up((uint64_t)weight->k, has_group_scales(weight) ? MICRO_GROUP : step_of(weight->format));
  layout.k = (int64_t)k;
  layout.panels = (int64_t)gemm_ceil_div(n, (uint64_t)layout.width);
  layout.column_bytes = column_bytes(weight, k);
  if (weight->scale == GEMM_SCALE_BLOCK) {
    layout.scales_bytes = layout.canonical.scales_bytes;
  } else if (weight->format == GEMM_FORMAT_INT8 || weight->format == GEMM_FORMAT_FP8 ||
             layout.canonical.factors_bytes > 0) {
    layout.scales_bytes = n * sizeof(float);
  }
  /* Dimensions are at most 2^24 and the canonical form fits 64 bits with room to spare. */
  layout.scales_offset = gemm_round_up(n * layout.column_bytes, GEMM_SECTION);
  layout.total_bytes = layout.scales_offset + layout.scales_bytes;
  if (layout.canonical.input_bytes > 0) {
    layout.input_offset = gemm_round_up(layout.total_bytes, GEMM_SECTION);
    layout.total_bytes = layout.input_offset + layout.canonical.input_bytes;
  }
  if (weight->experts > 0) {
    layout.expert_bytes = gemm_round_up(layout.total_bytes, GEMM_SECTION);
    layout.total_bytes += (uint64_t)(weight->experts - 1) * layout.expert_bytes;
    layout.canonical.scales_offset = all.scales_offset;
    layout.canonical.zeros_offset = all.zeros_offset;
    layout.canonical.factors_offset = all.factors_offset;
    layout.canonical.total_bytes = all.total_bytes;
  }
  *out = layout;
  return STATUS_OK;
}

const void *cpu_layout_expert(const struct cpu_layout *layout, int64_t e, const void *canonical,
                              struct cpu_layout *out) {
  *out = *layout;
  if (layout->expert_bytes == 0) {
    return canonical;
  }
  uint64_t before = (uint64_t)e * layout->canonical.codes_bytes;
  out->expert_bytes = 0;
  out->total_bytes = layout->scales_offset + layout->scales_bytes;
  out->canonical.scales_offset += (uint64_t)e * layout->canonical.scales_bytes - before;
  out->canonical.zeros_offset += (uint64_t)e * layout->canonical.zeros_bytes - before;
  out->canonical.factors_offset += (uint64_t)e * layout->canonical.factors_bytes - before;
  return canonical != NULL ? (const uint8_t *)canonical + before : NULL;
}

int cpu_layout_width(const struct cpu_layout *layout, const struct gemm_weight *weight, int64_t panel) {
  int64_t left = (int64_t)gemm_round_up((uint64_t)weight->n, MICRO_VECTOR) - panel * layout->width;
  return left < layout->width ? (int)left : layout->width;
}

/* Where byte k % 4 of column % 16 is among the 64 of FP8. */
static int place_e4m3(int column, int64_t k) {
  return column % 16 / 4 * 16 + (int)(k % 4) / 2 * 8 + column % 4 * 2 + (int)(k % 2);
}

/* Elements begin .. end of a row into its column; begin is a multiple of a dword's elements. */
struct piece {
  const uint8_t *row;
  int64_t begin, end;
  int column, width;
};

static void pack_bytes(const struct gemm_weight *weight, const struct piece *piece, uint8_t *out) {
  bool int8 = weight->format == GEMM_FORMAT_INT8;
  int column = piece->column, width = piece->width;
  for (int64_t k = piece->begin; k < piece->end; k++) {
    uint8_t code = k < weight->k ? piece->row[k] : 0;
    if (int8) {
      out[(k / 4 * width + column) * 4 + k % 4] = code ^ 0x80;
    } else {
      out[(k / 4 * width + column / 16 * 16) * 4 + place_e4m3(column, k)] = code;
    }
  }
}

/* The same where every dword is whole. */
static void pack_words(const struct piece *piece, int64_t element_bytes, uint32_t change, uint8_t *out) {
  int64_t step = (int64_t)sizeof(uint32_t) / element_bytes;
  uint8_t *to = out + (piece->begin / step * piece->width + piece->column) * (int64_t)sizeof(uint32_t);
  for (int64_t k = piece->begin; k < piece->end; k += step, to += (size_t)piece->width * sizeof(uint32_t)) {
    uint32_t word;
    memcpy(&word, piece->row + k * element_bytes, sizeof word);
    word ^= change;
    memcpy(to, &word, sizeof word);
  }
}

static void pack_halves(const struct gemm_weight *weight, const struct piece *piece, uint16_t *out) {
  int64_t step = (int64_t)step_of(weight->format);
  for (int64_t k = piece->begin; k < piece->end; k++) {
    uint16_t half = 0;
    if (k < weight->k) {
      memcpy(&half, piece->row + 2 * k, sizeof half);
    }
    out[(k / step * piece->width + piece->column) * step + k % step] = half;
  }
}

static void pack_piece(const struct gemm_weight *weight, const struct piece *piece, uint8_t *out) {
  bool halves = gemm_is_wide(weight->format);
  if (weight->format == GEMM_FORMAT_INT8 && piece->end <= weight->k) {
    pack_words(piece, 1, 0x80808080u, out);
  } else if (weight->format == GEMM_FORMAT_BF16 && piece->end <= weight->k) {
    pack_words(piece, 2, 0, out);
  } else if (halves) {
    pack_halves(weight, piece, (uint16_t *)(void *)out);
  } else {
    pack_bytes(weight, piece, out);
  }
}

/* ---- four columns at a time */

enum { COLUMNS = 4, VECTOR_BYTES = 16 };
typedef uint32_t words4 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t pairs4 __attribute__((vector_size(VECTOR_BYTES)));

/* Dword i of four rows, for i < 4. */
static inline void transpose(const uint8_t *rows, uint64_t row_bytes, words4 out[COLUMNS]) {
  words4 row[COLUMNS];
  for (int i = 0; i < COLUMNS; i++) {
    memcpy(&row[i], rows + (uint64_t)i * row_bytes, sizeof(row[i]));
  }
  words4 low01 = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
  words4 low23 = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
  words4 high01 = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
  words4 high23 = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
  out[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
  out[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
  out[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
  out[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
}

/* The low halves of four dwords, then the high ones. By shuffles that every processor has. */
static inline words4 part_halves(words4 words) {
  pairs4 pairs = (pairs4)words;
  pairs = __builtin_shufflevector(pairs, pairs, 0, 2, 1, 3, 4, 5, 6, 7);
  pairs = __builtin_shufflevector(pairs, pairs, 0, 1, 2, 3, 4, 6, 5, 7);
  words = (words4)pairs;
  return __builtin_shufflevector(words, words, 0, 2, 1, 3);
}

/* As pack_piece does it for each of four rows, row_bytes apart, as far as whole vectors go; returns where that is. */
static int64_t pack_four(const struct gemm_weight *weight, const struct piece *piece, uint64_t row_bytes,
                         uint8_t *out) {
  bool wide = gemm_is_wide(weight->format);
  int64_t k = piece->begin, end = piece->end < weight->k ? piece->end : weight->k;
  int64_t elements = wide ? VECTOR_BYTES / 2 : VECTOR_BYTES, bytes = wide ? 2 : 1;
  uint32_t change = weight->format == GEMM_FORMAT_INT8 ? 0x80808080u : 0;
  for (; k + elements <= end; k += elements) {
    words4 words[COLUMNS];
    transpose(piece->row + bytes * k, row_bytes, words);
    for (int i = 0; i < COLUMNS; i++) {
      uint8_t *to = out + (bytes * k / 4 + i) * piece->width * (int64_t)sizeof(uint32_t);
      bool parted = weight->format == GEMM_FORMAT_FP8 || weight->format == GEMM_FORMAT_F16;
      words4 four = parted ? part_halves(words[i]) : words[i] ^ change;
      if (weight->format == GEMM_FORMAT_F16) { /* two steps of 16 bits */
        memcpy(to + 2 * piece->column, &four, sizeof(four) / 2);
        memcpy(to + 2 * (piece->width + piece->column), (uint8_t *)&four + sizeof(four) / 2, sizeof(four) / 2);
      } else {
        memcpy(to + 4 * piece->column, &four, sizeof(four));
      }
    }
  }
  return k;
}

/* Where the scale of a group, and its zero point, stand in the canonical form. A group of K's padding has neither. */
static bool scale_index(const struct cpu_layout *layout, int64_t n, int64_t group, uint64_t *out) {
  uint64_t columns = layout->canonical.scale_columns;
  *out = (uint64_t)n * columns + (columns > 1 ? (uint64_t)group : 0);
  return columns == 1 || (uint64_t)group < columns;
}

/* A scale as panels have it. */
static uint16_t scale_bits(enum gemm_type type, const void *scales, uint64_t index) {
  return gemm_type_bytes(type) == 1 ? number_to_bf16(gemm_scale_get(type, scales, index))
                                    : ((const uint16_t *)scales)[index];
}

/* Successive codes of a row, four canonical bytes, as one dword. Of 2 bits code j of byte i becomes code i of byte j,
 * of 4 bits code k of 8 code k / 4 of byte k % 4. */
static uint32_t order_codes(const uint8_t *codes, bool two) {
  uint32_t word, swap;
  memcpy(&word, codes, sizeof(word));
  if (two) {
    swap = (word ^ word >> 6) & 0x00cc00cc;
    word ^= swap ^ swap << 6;
    swap = (word ^ word >> 12) & 0x0000f0f0;
    return word ^ swap ^ swap << 12;
  }
  swap = (word ^ word >> 8) & 0x0000ff00;
  word ^= swap ^ swap << 8;
  swap = (word ^ word >> 4) & 0x00f000f0;
  return word ^ swap ^ swap << 4;
}

static void pack_codes(const struct gemm_weight *weight, const struct cpu_layout *layout, const void *canonical,
                       int64_t n, int column, int width, uint8_t *out) {
  const uint8_t *row = (const uint8_t *)canonical + (uint64_t)n * layout->canonical.row_bytes;
  const uint8_t *scales = (const uint8_t *)canonical + layout->canonical.scales_offset;
  int bits = gemm_format_facts(weight->format)->bits;
  int64_t words = layout->group * bits / 32;
  uint64_t zero_bytes = cpu_layout_zero_bytes(weight);
  for (int64_t group = 0; group < layout->k / layout->group; group++) {
    for (int64_t i = 0; i < words; i++, row += sizeof(uint32_t), out += 4 * width) {
      uint32_t word = order_codes(row, bits == 2);
      memcpy(out + 4 * column, &word, sizeof(word));
    }
    uint64_t index;
    bool there = scale_index(layout, n, group, &index);
    uint16_t scale = there ? scale_bits(gemm_scale_type(weight), scales, index) : 0;
    memcpy(out + 2 * column, &scale, sizeof(scale));
    out += 2 * width;
    if (zero_bytes > 0 && there) {
      memcpy(out + zero_bytes * (uint64_t)column,
             (const uint8_t *)canonical + layout->canonical.zeros_offset + index * zero_bytes, zero_bytes);
    }
    out += zero_bytes * (uint64_t)width;
  }
}

static void pack_coded_panel(const struct gemm_weight *weight, const struct cpu_layout *layout, const void *canonical,
                             int64_t first, int width, uint8_t *out) {
  for (int column = 0; column < width && first + column < weight->n; column++) {
    pack_codes(weight, layout, canonical, first + column, column, width, out);
  }
}

/* Of up to four columns of a panel whose first is `first`. */
static void pack_columns(const struct gemm_weight *weight, const struct cpu_layout *layout, const void *canonical,
                         int64_t first, struct piece piece, uint8_t *out) {
  uint64_t row_bytes = layout->canonical.row_bytes;
  piece.row = (const uint8_t *)canonical + (uint64_t)(first + piece.column) * row_bytes;
  if (first + piece.column + COLUMNS <= weight->n) {
    piece.begin = pack_four(weight, &piece, row_bytes, out);
  }
  for (int i = 0; i < COLUMNS && first + piece.column < weight->n && piece.begin < piece.end; i++) {
    pack_piece(weight, &piece, out);
    piece.row += row_bytes;
    piece.column++;
  }
}

void cpu_layout_pack(const struct gemm_weight *weight, const struct cpu_layout *layout, const void *canonical,
                     int64_t panel, uint8_t *out) {
  enum { STRETCH_BYTES = 1024 }; /* of a row: what all columns write of it stays in a core's first cache */
  int width = cpu_layout_width(layout, weight, panel);
  int64_t first = panel * layout->width, stretch = gemm_is_wide(weight->format) ? STRETCH_BYTES / 2 : STRETCH_BYTES;
  if (first + width > weight->n || layout->k > weight->k) {
    memset(out, weight->format == GEMM_FORMAT_INT8 ? 0x80 : 0, (uint64_t)width * layout->column_bytes);
  }
  if (gemm_is_packed(weight->format)) {
    pack_coded_panel(weight, layout, canonical, first, width, out);
    return;
  }
  for (int64_t begin = 0; begin < layout->k; begin += stretch) {
    int64_t end = begin + stretch < layout->k ? begin + stretch : layout->k;
    for (int column = 0; column < width && first + column < weight->n; column += COLUMNS) {
      pack_columns(weight, layout, canonical, first,
                   (struct piece){.begin = begin, .end = end, .column = column, .width = width}, out);
    }
  }
}

void cpu_layout_scales(const struct gemm_weight *weight, const struct cpu_layout *layout, const void *canonical,
                       uint8_t *out) {
  const struct gemm_layout *from = &layout->canonical;
  const float *scales = (const float *)((const uint8_t *)canonical +
                                        (from->factors_bytes > 0 ? from->factors_offset : from->scales_offset));
  if (weight->scale == GEMM_SCALE_BLOCK) {
    memcpy(out, scales, layout->scales_bytes);
    return;
  }
  for (int64_t n = 0; n < (int64_t)(layout->scales_bytes / sizeof(float)); n++) {
    ((float *)out)[n] = n >= weight->n ? 0 : weight->scale == GEMM_SCALE_ONE ? scales[0] : scales[n];
  }
}
