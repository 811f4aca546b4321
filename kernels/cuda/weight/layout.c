#include "layout.h"

#include "../families/sm90/grouped_int2/config.h"
#include "../families/sm90/grouped_int4/config.h"
#include "../families/sm90/int2/a8_tile.h"
#include "../families/sm90/int2/tile.h"
#include "../families/sm90/int2_few/config.h"
#include "../families/sm90/int2a8/config.h"
#include "../families/sm90/int4/rests.h"
#include "../families/sm90/int4/tile.h"
#include "../families/sm90/int4_few/config.h"

#include <assert.h>
#include <string.h>

/* A run of rows of one section of the stored form, taken from the rows of the canonical form. */
struct section {
  uint64_t begin, end;               /* in the stored form */
  uint64_t row_bytes;                /* there */
  const uint8_t *source;             /* NULL: zeros */
  uint64_t source_row_bytes;         /* from one row to the next */
  uint64_t source_used, source_rows; /* bytes of a row that are copied, and rows that there are */
};

static uint64_t min_u64(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

/* Rows of W, of all experts. */
static int64_t rows_of(const struct gemm_weight *weight) {
  return weight->n * gemm_matrices(weight);
}

/* Sums of the tensor cores are good to 2^-16 of the numbers that they are made of: few columns of y might all cancel.
 * Nor does the rounding of sums of two of x (int2_few/kernel.cuh) average out in few columns.
 */
enum { TILES_ROWS_LEAST = 128 };

/* Sums of a row of y fit into what a product may use beside its tensors. */
enum { REAL_ZEROS_ROWS_MOST = 1 << 20 };

enum {
  LINE_BYTES = 128,
  LINES_LEAST = 16, /* in rows that end with one: it is a sixteenth of them, or less */
};

static uint64_t element_bytes(const struct gemm_weight *weight) {
  return gemm_is_wide(weight->format) ? 2 : 1;
}

static uint32_t rows_choose(const struct gemm_weight *weight) {
  bool padded = weight->k % GEMM_ALIGN != 0 && weight->scale != GEMM_SCALE_BLOCK,
       long_rows = (uint64_t)weight->k * element_bytes(weight) >= LINES_LEAST * LINE_BYTES;
  return padded && long_rows ? LAYOUT_LINES : LAYOUT_ROWS;
}

uint32_t layout_choose(const struct gemm_weight *weight, int capability, bool places) {
  if (!gemm_is_packed(weight->format))
    return rows_choose(weight);
  if (!gemm_is_int2(weight->format)) {
    bool hopper = capability == 90, dense = weight->experts == 0;
    bool f16 = gemm_scale_facts(weight->scale)->zeros_f16; /* which one family takes */
    if (f16 && !(hopper && dense && weight->n <= REAL_ZEROS_ROWS_MOST))
      return LAYOUT_CODES4;
    if (weight->format == GEMM_FORMAT_INT4A8)
      return hopper && dense ? LAYOUT_TILES4A8 : LAYOUT_CODES4;
    bool few = hopper ? weight->k <= INT4_FEW_K_MOST : capability >= 80;
    bool fits = dense ? few : hopper && grouped_int4_fits(weight->n, weight->k);
    return fits ? LAYOUT_TILES4 : LAYOUT_CODES4;
  }
  if (weight->experts > 0) {
    if (weight->format == GEMM_FORMAT_INT2A8)
      return capability == 90 && weight->n % INT2A8_BLOCK_ROWS == 0 ? LAYOUT_TILES2A8 : LAYOUT_CODES2;
    return capability == 90 && places && grouped_int2_fits(weight->n, weight->k) ? LAYOUT_TILES2 : LAYOUT_CODES2;
  }
  if (weight->format == GEMM_FORMAT_INT2A8)
    return weight->k <= INT2A8_K_MOST ? LAYOUT_TILES2A8 : LAYOUT_CODES2;
  bool reads = capability != 90 || places;
  bool tiles = reads && weight->n >= TILES_ROWS_LEAST && weight->k <= INT2_FEW_K_MOST;
  return tiles ? LAYOUT_TILES2 : LAYOUT_CODES2;
}

bool layout_is_tiled(const struct layout *layout) {
  uint32_t tiles[] = {LAYOUT_TILES2, LAYOUT_TILES2A8, LAYOUT_TILES4, LAYOUT_TILES4A8};
  return layout->layout == tiles[0] || layout->layout == tiles[1] || layout->layout == tiles[2] ||
         layout->layout == tiles[3];
}

static bool stored_by(const struct gemm_weight *weight, uint32_t layout) {
  if (!gemm_is_packed(weight->format))
    return layout == LAYOUT_ROWS || layout == LAYOUT_LINES;
  if (!gemm_is_int2(weight->format))
    return layout == LAYOUT_CODES4 ||
           layout == (weight->format == GEMM_FORMAT_INT4A8 ? LAYOUT_TILES4A8 : LAYOUT_TILES4);
  return layout == LAYOUT_CODES2 || layout == (weight->format == GEMM_FORMAT_INT2 ? LAYOUT_TILES2 : LAYOUT_TILES2A8);
}

enum status layout_compute(const struct gemm_weight *weight, uint32_t layout, struct layout *out, struct error *error) {
  memset(out, 0, sizeof *out);
  enum status status = gemm_layout_compute(weight, &out->canonical, error);
  if (status != STATUS_OK)
    return status;
  const struct gemm_layout *canonical = &out->canonical;
  if (!stored_by(weight, layout))
    return error_set(error, STATUS_UNSUPPORTED, "the weight is stored in a layout that this version does not know (%u)",
                     layout);
  out->layout = layout;
  if (layout == LAYOUT_TILES2) {
    out->n = (int64_t)gemm_round_up((uint64_t)rows_of(weight), INT2_BLOCK_ROWS);
    out->k = (int64_t)canonical->row_bytes * 4;
    /* At most 2^24 rows of a quarter of 2^24 bytes: nothing overflows. */
    out->codes_bytes = (uint64_t)(out->n / INT2_BLOCK_ROWS) * (uint64_t)(out->k / GEMM_GROUP) * INT2_TILE_BYTES;
  } else if (layout == LAYOUT_TILES2A8) {
    out->n = (int64_t)gemm_round_up((uint64_t)rows_of(weight), INT2A8_BLOCK_ROWS);
    out->k = (int64_t)gemm_round_up((uint64_t)weight->k, INT2A8_TILE_K);
    out->codes_bytes = (uint64_t)(out->n / INT2A8_BLOCK_ROWS) * (uint64_t)(out->k / INT2A8_TILE_K) * INT2A8_TILE_BYTES;
  } else if (layout == LAYOUT_TILES4 || layout == LAYOUT_TILES4A8) {
    struct int4_form form = int4_form_of(weight->format, weight->scale);
    out->n = (int64_t)gemm_round_up((uint64_t)rows_of(weight), INT4_BLOCK_ROWS);
    out->k = (int64_t)gemm_round_up((uint64_t)weight->k, layout == LAYOUT_TILES4 ? GEMM_GROUP : 2 * GEMM_GROUP);
    out->codes_bytes =
        (uint64_t)(out->n / INT4_BLOCK_ROWS) * (uint64_t)(out->k / GEMM_GROUP) * 2 * (uint64_t)form.half_bytes;
    out->scales_bytes = gemm_scale_facts(weight->scale)->zeros_f16
                            ? (uint64_t)out->n * canonical->scale_columns * sizeof(uint32_t)
                            : canonical->factors_bytes;
  } else if (layout == LAYOUT_CODES2 || layout == LAYOUT_CODES4) {
    out->n = rows_of(weight);
    out->k = (int64_t)canonical->row_bytes * 8 / gemm_format_facts(weight->format)->bits;
    out->row_bytes = canonical->row_bytes;
    out->codes_bytes = canonical->codes_bytes;
    out->scale_columns = canonical->scale_columns;
    out->scale_row_bytes = canonical->scales_bytes / canonical->scale_rows;
    out->scales_bytes = canonical->scales_bytes;
    if (canonical->zeros_bytes > 0)
      out->scales_bytes = canonical->zeros_offset + canonical->zeros_bytes - canonical->scales_offset;
    if (canonical->factors_bytes > 0) {
      out->factors_offset = canonical->factors_offset;
      out->scales_bytes = canonical->factors_offset + canonical->factors_bytes - canonical->scales_offset;
    }
  } else {
    bool block = weight->scale == GEMM_SCALE_BLOCK;
    uint64_t element = element_bytes(weight), align = layout == LAYOUT_LINES ? LINE_BYTES / element : GEMM_ALIGN;
    out->n = (int64_t)gemm_round_up((uint64_t)rows_of(weight), GEMM_ALIGN);
    out->k = (int64_t)gemm_round_up((uint64_t)weight->k, block ? GEMM_GROUP : align);
    /* Dimensions are at most 2^24: no product of two and an element overflows. */
    out->row_bytes = (uint64_t)out->k * element;
    out->codes_bytes = (uint64_t)out->n * out->row_bytes;
    out->x_row_bytes = out->row_bytes;
    if (block) {
      out->scale_columns = canonical->scale_columns;
      out->scale_row_bytes = 4 * gemm_round_up(canonical->scale_columns, 4);
      out->scales_bytes = canonical->scale_rows * out->scale_row_bytes;
    } else if (weight->scale != GEMM_SCALE_NONE) {
      out->scale_columns = 1;
      out->scale_row_bytes = 4;
      out->scales_bytes = 4 * (uint64_t)out->n;
    }
  }
  if (gemm_is_packed(weight->format) && gemm_quantizes_x(weight->format))
    out->x_row_bytes = (uint64_t)out->k;
  out->scales_offset = gemm_round_up(out->codes_bytes, GEMM_SECTION);
  if (layout == LAYOUT_TILES4 && canonical->factors_bytes > 0)
    out->factors_offset = out->scales_offset;
  out->input_offset = gemm_round_up(out->scales_offset + out->scales_bytes, GEMM_SECTION);
  out->total_bytes = gemm_round_up(out->input_offset + canonical->input_bytes, GEMM_SECTION);
  return STATUS_OK;
}

/* Copies what of [offset, end) lies in the section to where it belongs in `out`, which begins at `offset`. */
static void section_fill(const struct section *section, uint64_t offset, uint64_t end, uint8_t *out) {
  uint64_t at = offset > section->begin ? offset : section->begin;
  uint64_t stop = min_u64(end, section->end);
  while (at < stop) {
    uint64_t row = (at - section->begin) / section->row_bytes;
    uint64_t column = (at - section->begin) % section->row_bytes;
    if (row >= section->source_rows)
      return;
    if (section->row_bytes == section->source_row_bytes && section->row_bytes == section->source_used) {
      uint64_t last = section->begin + section->source_rows * section->row_bytes;
      memcpy(out + (at - offset), section->source + (at - section->begin), min_u64(stop, last) - at);
      return;
    }
    uint64_t run = min_u64(stop - at, section->row_bytes - column);
    if (column < section->source_used)
      memcpy(out + (at - offset), section->source + row * section->source_row_bytes + column,
             min_u64(run, section->source_used - column));
    at += run;
  }
}

/* Bytes that are the same in both forms: in the canonical one from `from` on, here from `begin` on. */
static void same_fill(const void *canonical, uint64_t from, uint64_t bytes, uint64_t begin, uint64_t offset,
                      uint64_t end, uint8_t *out) {
  const struct section same = {
      .begin = begin,
      .end = begin + bytes,
      .row_bytes = bytes,
      .source = (const uint8_t *)canonical + from,
      .source_row_bytes = bytes,
      .source_used = bytes,
      .source_rows = 1,
  };
  section_fill(&same, offset, end, out);
}

static void factors_fill(const struct layout *layout, const void *canonical, uint64_t offset, uint64_t end,
                         uint8_t *out) {
  same_fill(canonical, layout->canonical.factors_offset, layout->canonical.factors_bytes, layout->factors_offset,
            offset, end, out);
}

static void input_fill(const struct layout *layout, const void *canonical, uint64_t offset, uint64_t end,
                       uint8_t *out) {
  same_fill(canonical, layout->canonical.input_offset, layout->canonical.input_bytes, layout->input_offset, offset, end,
            out);
}

/* int4/rests.h. */
static void rests_fill(const struct gemm_weight *weight, const struct layout *layout, const uint8_t *canonical,
                       uint64_t offset, uint64_t end, uint8_t *out) {
  const struct gemm_layout *from = &layout->canonical;
  uint64_t rows = (uint64_t)layout->n, begin = layout->scales_offset;
  uint64_t at = offset > begin ? offset : begin, stop = min_u64(end, begin + layout->scales_bytes), run;
  if (!gemm_scale_facts(weight->scale)->zeros_f16)
    return;
  for (; at < stop; at += run) {
    uint64_t word = (at - begin) / sizeof(uint32_t), within = (at - begin) % sizeof(uint32_t), n = word % rows;
    uint64_t index = n * from->scale_columns + word / rows;
    uint16_t scale;
    run = min_u64(sizeof(uint32_t) - within, stop - at);
    if (n >= (uint64_t)weight->n)
      continue;
    memcpy(&scale, canonical + from->scales_offset + index * sizeof scale, sizeof scale);
    uint32_t rest = int4_rest(scale, gemm_zero_get(weight->scale, canonical + from->zeros_offset, index));
    memcpy(out + (at - offset), (const uint8_t *)&rest + within, run);
  }
}

/* A form in tiles: one of them, by its block of rows and its place in that. */
struct tiling {
  uint64_t tile_bytes, tile_k;
  void (*make)(const struct gemm_weight *weight, const struct gemm_layout *layout, const uint8_t *canonical,
               int64_t block, int64_t tile, uint8_t *out);
};

static struct tiling tiling_of(const struct gemm_weight *weight) {
  if (weight->format == GEMM_FORMAT_INT2)
    return (struct tiling){INT2_TILE_BYTES, GEMM_GROUP, int2_tile_make};
  if (weight->format == GEMM_FORMAT_INT2A8)
    return (struct tiling){INT2A8_TILE_BYTES, INT2A8_TILE_K, int2a8_tile_make};
  uint64_t half = (uint64_t)int4_form_of(weight->format, weight->scale).half_bytes;
  return (struct tiling){2 * half, GEMM_GROUP, int4_tile_make};
}

/* The tiles that [offset, offset + bytes) touches; whole ones are made in place. */
static void tiles_fill(const struct gemm_weight *weight, const struct layout *layout, const struct tiling *tiling,
                       const void *canonical, uint64_t offset, uint8_t *out, uint64_t bytes) {
  uint8_t spare[2 * INT4_HALF_BYTES_MOST];
  static_assert(sizeof spare >= INT2A8_TILE_BYTES && sizeof spare >= INT2_TILE_BYTES, "room for any tile");
  struct gemm_weight all = gemm_expert(weight);
  all.n = rows_of(weight);
  uint64_t end = min_u64(offset + bytes, layout->codes_bytes), tiles = (uint64_t)layout->k / tiling->tile_k;
  for (uint64_t at = offset; at < end;) {
    uint64_t tile = at / tiling->tile_bytes, within = at % tiling->tile_bytes;
    uint64_t run = min_u64(end - at, tiling->tile_bytes - within);
    uint8_t *to = run == tiling->tile_bytes ? out + (at - offset) : spare;
    tiling->make(&all, &layout->canonical, canonical, (int64_t)(tile / tiles), (int64_t)(tile % tiles), to);
    if (to == spare)
      memcpy(out + (at - offset), spare + within, run);
    at += run;
  }
}

/* Of zero points where scales are as in the canonical form. */
static uint64_t zeros_offset(const struct layout *layout) {
  return layout->scales_offset + layout->canonical.zeros_offset - layout->canonical.scales_offset;
}

void layout_fill(const struct gemm_weight *weight, const struct layout *layout, const void *canonical, uint64_t offset,
                 void *out, uint64_t bytes) {
  const struct gemm_layout *from = &layout->canonical;
  bool one = weight->scale == GEMM_SCALE_ONE;
  if (layout_is_tiled(layout)) {
    const struct tiling tiling = tiling_of(weight);
    memset(out, 0, bytes);
    tiles_fill(weight, layout, &tiling, canonical, offset, out, bytes);
    rests_fill(weight, layout, canonical, offset, offset + bytes, out);
    factors_fill(layout, canonical, offset, offset + bytes, out);
    input_fill(layout, canonical, offset, offset + bytes, out);
    return;
  }
  if (layout->row_bytes == from->row_bytes && offset + bytes <= (uint64_t)rows_of(weight) * from->row_bytes) {
    memcpy(out, (const uint8_t *)canonical + offset, bytes);
    return;
  }
  struct section codes = {
      .end = layout->codes_bytes,
      .row_bytes = layout->row_bytes,
      .source = canonical,
      .source_row_bytes = from->row_bytes,
      .source_used = from->row_bytes,
      .source_rows = (uint64_t)rows_of(weight),
  };
  memset(out, 0, bytes);
  section_fill(&codes, offset, offset + bytes, out);
  factors_fill(layout, canonical, offset, offset + bytes, out);
  input_fill(layout, canonical, offset, offset + bytes, out);
  same_fill(canonical, from->zeros_offset, from->zeros_bytes, zeros_offset(layout), offset, offset + bytes, out);
  if (layout->scales_bytes == 0)
    return;
  uint64_t used = from->scales_bytes / from->scale_rows, n = (uint64_t)weight->n;
  struct section scales = {
      .begin = layout->scales_offset,
      .end = layout->scales_offset + layout->scales_bytes,
      .row_bytes = layout->scale_row_bytes,
      .source = (const uint8_t *)canonical + from->scales_offset,
      .source_row_bytes = one ? 0 : used,
      .source_used = used,
      .source_rows = one ? n : from->scale_rows,
  };
  if (one)
    scales.end = scales.begin + n * scales.row_bytes;
  for (int64_t i = 0; i < (one ? gemm_matrices(weight) : 1); i++) {
    section_fill(&scales, offset, offset + bytes, out);
    scales.begin = scales.end;
    scales.end += n * scales.row_bytes;
    scales.source += used;
  }
}

/* ---- back: where an element of tiles lies, by int2/layout.h and int2/a8_layout.h */

static unsigned code_in_tiles(const struct layout *layout, const uint8_t *stored, uint64_t n, uint64_t k) {
  uint64_t tiles = (uint64_t)layout->k / GEMM_GROUP, row = n % 16;
  const uint8_t *tile = stored + (n / INT2_BLOCK_ROWS * tiles + k / GEMM_GROUP) * INT2_TILE_BYTES;
  const uint8_t *unit = tile + n % 64 / 32 * INT2_HALF_BYTES + n % 32 / 16 * INT2_UNIT_BYTES;
  uint32_t word;
  memcpy(&word, unit + (row % 8 * 4 + k % 8 / 2) * 16 + 4 * (k % 128 / 32), sizeof word);
  uint32_t nibble = word >> (16 * (row / 8) + 8 * (k % 2) + 4 * (k % 32 / 16)) & 15, second = k % 16 / 8;
  return (nibble >> (2 + second) & 1) << 1 | ((nibble >> second & 1) ^ 1);
}

static const uint8_t *scale_in_tiles(const struct layout *layout, const uint8_t *stored, uint64_t n, uint64_t group) {
  uint64_t tiles = (uint64_t)layout->k / GEMM_GROUP;
  const uint8_t *tile = stored + (n / INT2_BLOCK_ROWS * tiles + group) * INT2_TILE_BYTES;
  return tile + n % 64 / 32 * INT2_HALF_BYTES + INT2_HALF_SCALES + n % 32 / 16 * 32 + n % 8 * 4 + n % 16 / 8 * 2;
}

static unsigned code_in_tiles_a8(const struct layout *layout, const uint8_t *stored, uint64_t n, uint64_t k) {
  uint64_t tiles = (uint64_t)layout->k / INT2A8_TILE_K, row = n % 16;
  const uint8_t *tile = stored + (n / INT2A8_BLOCK_ROWS * tiles + k / INT2A8_TILE_K) * INT2A8_TILE_BYTES;
  const uint8_t *unit = tile + n % 64 / 16 * INT2A8_QUARTER_BYTES + k % 256 / 128 * INT2A8_UNIT_BYTES;
  uint64_t byte = (row % 8 * 4 + k % 16 / 4) * 16 + (2 * (k % 32 / 16) + row / 8) * 4 + k % 4;
  return unit[byte] >> k % 128 / 32 * 2 & 3;
}

static const uint8_t *scale_in_tiles_a8(const struct layout *layout, const uint8_t *stored, uint64_t n,
                                        uint64_t group) {
  uint64_t tiles = (uint64_t)layout->k / INT2A8_TILE_K;
  const uint8_t *tile = stored + (n / INT2A8_BLOCK_ROWS * tiles + group / 2) * INT2A8_TILE_BYTES;
  return tile + n % 64 / 16 * INT2A8_QUARTER_BYTES + INT2A8_QUARTER_SCALES + group % 2 * 32 + n % 8 * 4 +
         n % 16 / 8 * 2;
}

static void zero_read(const struct gemm_weight *weight, const struct layout *layout, const uint8_t *stored, uint64_t n,
                      uint64_t group, uint8_t code, uint8_t *zeros) {
  uint32_t rest = 0;
  if (gemm_scale_facts(weight->scale)->zeros_f16)
    memcpy(&rest, stored + layout->scales_offset + (group * (uint64_t)layout->n + n) * sizeof rest, sizeof rest);
  gemm_zero_put(weight->scale, zeros, n * layout->canonical.scale_columns + group, int4_rest_zero(code, rest));
}

static void tiles4_read(const struct gemm_weight *weight, const struct layout *layout, const uint8_t *stored,
                        uint8_t *out) {
  const struct gemm_layout *to = &layout->canonical;
  const struct int4_form form = int4_form_of(weight->format, weight->scale);
  uint64_t bytes = form.e2m1 ? 1 : 2, groups = (uint64_t)form.groups;
  for (uint64_t n = 0; n < (uint64_t)rows_of(weight); n++) {
    const uint8_t *tiles =
        stored + n / INT4_BLOCK_ROWS * (uint64_t)(layout->k / GEMM_GROUP) * 2 * (uint64_t)form.half_bytes;
    int row = (int)(n % INT4_BLOCK_ROWS);
    for (uint64_t k = 0; k < 2 * to->row_bytes; k++) {
      const uint8_t *tile = tiles + k / GEMM_GROUP * 2 * (uint64_t)form.half_bytes;
      out[n * to->row_bytes + k / 2] |= (uint8_t)(int4_tile_code(&form, tile, row, (int)(k % GEMM_GROUP)) << k % 2 * 4);
    }
    for (uint64_t i = 0; i < to->scale_columns; i++) {
      const uint8_t *tile = tiles + i / groups * 2 * (uint64_t)form.half_bytes;
      uint64_t at = n * to->scale_columns + i;
      int group = (int)(i % groups);
      memcpy(out + to->scales_offset + at * bytes, tile + int4_tile_scale(&form, row, group), bytes);
      if (form.zeros)
        zero_read(weight, layout, stored, n, i, tile[int4_tile_zero(&form, row, group)], out + to->zeros_offset);
    }
  }
}

static void tiles_read(const struct gemm_weight *weight, const struct layout *layout, const uint8_t *stored,
                       uint8_t *out) {
  const struct gemm_layout *to = &layout->canonical;
  bool a8 = layout->layout == LAYOUT_TILES2A8;
  for (uint64_t n = 0; n < (uint64_t)rows_of(weight); n++) {
    uint8_t *row = out + n * to->row_bytes, *scales = out + to->scales_offset + n * to->scale_columns * 2;
    for (uint64_t k = 0; k < 4 * to->row_bytes; k++) {
      unsigned code = k >= (uint64_t)weight->k ? 1 /* the value 0 */
                      : a8                     ? code_in_tiles_a8(layout, stored, n, k)
                                               : code_in_tiles(layout, stored, n, k);
      row[k / 4] |= (uint8_t)(code << k % 4 * 2);
    }
    for (uint64_t i = 0; i < to->scale_columns; i++)
      memcpy(scales + 2 * i, a8 ? scale_in_tiles_a8(layout, stored, n, i) : scale_in_tiles(layout, stored, n, i), 2);
  }
}

void layout_read(const struct gemm_weight *weight, const struct layout *layout, const void *stored, void *canonical) {
  const struct gemm_layout *to = &layout->canonical;
  const uint8_t *from = stored;
  uint8_t *out = canonical;
  memcpy(out + to->input_offset, from + layout->input_offset, to->input_bytes);
  memcpy(out + to->factors_offset, from + layout->factors_offset, to->factors_bytes);
  if (layout_is_tiled(layout)) {
    (gemm_is_int2(weight->format) ? tiles_read : tiles4_read)(weight, layout, from, out);
    return;
  }
  /* Padded rows are not longer in the canonical form. */
  for (uint64_t row = 0; row < (uint64_t)rows_of(weight); row++)
    memcpy(out + row * to->row_bytes, from + row * layout->row_bytes, min_u64(to->row_bytes, layout->row_bytes));
  uint64_t used = to->scales_bytes > 0 ? to->scales_bytes / to->scale_rows : 0;
  uint64_t apart = layout->scale_row_bytes * (weight->scale == GEMM_SCALE_ONE ? (uint64_t)weight->n : 1);
  for (uint64_t row = 0; used > 0 && row < to->scale_rows; row++)
    memcpy(out + to->scales_offset + row * used, from + layout->scales_offset + row * apart, used);
  if (to->zeros_bytes > 0)
    memcpy(out + to->zeros_offset, from + zeros_offset(layout), to->zeros_bytes);
}
