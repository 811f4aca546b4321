#include "convert.h"

#include "../../proto/number.h"
#include "../../proto/weights/quantize.h"
#include "../../proto/weights/quantize4.h"
#include "input.h"
#include "tiles.h"

#include <math.h>
#include <string.h>

/* Input of one band: little enough that a band stays in a core's cache, enough that a read is cheap. */
enum { BAND_BYTES = 1 << 20, WORDS_ROWS = 64 };

struct convert {
  const struct files *files;
  const struct source *source;
  const struct tiles_aux *aux;
  uint8_t *canonical;
  struct watch *watch;
  uint64_t n, k;
  uint64_t row_bytes; /* in the file, of the piece with the longest */
  uint64_t band_rows;
  uint64_t tile_columns; /* block scales: columns that are read at a time, a multiple of the block but for the end */
  float one_scale;
  float factor;                 /* of all rows */
  _Atomic uint32_t absmax_bits; /* of the whole weight: the order of positive floats is that of their bits */
};

/* Each thread's memory, cut from its scratch. */
struct scratch {
  uint8_t *raw;     /* a band (block scales: a tile) as it is in the file */
  float *values;    /* a row (a tile) */
  uint8_t *codes;   /* packed formats: a row */
  uint32_t *sorted; /* packed formats: twice a row */
};

static bool is_blocked(const struct source *source) {
  return !source->stored && source->weight.scale == GEMM_SCALE_BLOCK;
}

static uint64_t values_count(const struct convert *convert) {
  return is_blocked(convert->source) ? GEMM_GROUP * convert->tile_columns : convert->k;
}

static uint64_t raw_bytes(const struct convert *convert) {
  uint64_t row_bytes = convert->row_bytes;
  if (is_blocked(convert->source)) {
    row_bytes = 0;
    for (uint32_t i = 0; i < convert->source->count; i++) {
      uint64_t bytes = tiles_row_bytes(&convert->source->pieces[i], convert->tile_columns);
      row_bytes = bytes > row_bytes ? bytes : row_bytes;
    }
  }
  return gemm_round_up(convert->band_rows * row_bytes, 64);
}

static size_t scratch_bytes(const struct convert *convert) {
  uint64_t count = values_count(convert);
  bool packed = gemm_is_packed(convert->source->weight.format);
  return (size_t)(raw_bytes(convert) + count * sizeof(float) + (packed ? count * (2 * sizeof(uint32_t) + 1) : 0));
}

static struct scratch scratch_cut(const struct convert *convert, void *memory) {
  uint64_t count = values_count(convert);
  struct scratch scratch = {.raw = memory};
  scratch.values = (float *)(void *)(scratch.raw + raw_bytes(convert));
  scratch.sorted = (uint32_t *)(void *)(scratch.values + count);
  scratch.codes = (uint8_t *)(scratch.sorted + 2 * count);
  return scratch;
}

/* Rows of a band, in runs that lie in one piece. */
struct run {
  const struct source_piece *piece;
  uint64_t first, rows; /* of W */
};

/* The next run of the band behind `run`, which begins with rows 0 at the band's first row; false: there is none. */
static bool next_run(const struct convert *convert, uint64_t band, struct run *run) {
  uint64_t end = (band + 1) * convert->band_rows;
  end = end < convert->n ? end : convert->n;
  run->first = run->rows == 0 ? band * convert->band_rows : run->first + run->rows;
  if (run->first >= end)
    return false;
  run->piece = source_piece_at(convert->source, run->first);
  uint64_t piece_end = (uint64_t)(run->piece->begin + run->piece->n);
  run->rows = (piece_end < end ? piece_end : end) - run->first;
  return true;
}

static enum status read_run(const struct convert *convert, const struct run *run, uint64_t column, uint64_t columns,
                            uint8_t *raw, struct import_tile *tile, struct error *error) {
  return tiles_read(convert->files, run->piece, run->first, run->rows, column, columns, raw, tile, convert->watch,
                    error);
}

static enum status refuse_value(const struct convert *convert, uint64_t row, uint64_t column, float value,
                                const char *why, struct error *error) {
  const struct source_piece *piece = source_piece_at(convert->source, row);
  return error_set(error, STATUS_BAD_FILE, "tensor '%s': %g in row %llu, column %llu %s",
                   safetensors_show(piece->from.tensor->tensor->name).text, (double)value,
                   (unsigned long long)(row - (uint64_t)piece->begin + (uint64_t)piece->row),
                   (unsigned long long)(column + (uint64_t)piece->column), why);
}

/* Real numbers of row `first` + `row` of W, or a piece of it, from `column` on, as f32, all of them finite. */
static enum status take_row(const struct convert *convert, const struct run *run, const struct import_tile *tile,
                            uint64_t row, uint64_t column, float *out, struct error *error) {
  const struct import_weight *from = &run->piece->from;
  from->importer->numbers(from, tile, row, out);
  for (uint64_t i = 0; !quantize_finite(out, tile->columns) && i < tile->columns; i++)
    if (!isfinite(out[i]))
      return refuse_value(convert, run->first + row, column + i, out[i], "is not finite", error);
  return STATUS_OK;
}

/* ---- one row of real numbers */

/* Returns the scale as it is stored. */
static float set_scale(const struct convert *convert, uint64_t index, float value) {
  enum gemm_type type = gemm_scale_type(&convert->source->weight);
  uint8_t *scales = convert->canonical + convert->source->layout.scales_offset;
  gemm_scale_put(type, scales, index, value);
  return gemm_scale_get(type, scales, index);
}

static void set_factor(const struct convert *convert, uint64_t row, float value) {
  gemm_scale_put(GEMM_F32, convert->canonical + convert->source->layout.factors_offset, row, value);
}

static float scale_of(enum gemm_format format, float absmax) {
  return format == GEMM_FORMAT_INT8 ? number_scale_int8(absmax) : number_scale_e4m3(absmax);
}

static void quantize_bytes(enum gemm_format format, const float *values, uint64_t count, float scale, uint8_t *codes) {
  if (format == GEMM_FORMAT_INT8)
    quantize_int8(values, count, scale, (int8_t *)codes);
  else
    quantize_e4m3(values, count, scale, codes);
}

static enum status write_bytes(const struct convert *convert, uint64_t row, const float *values, uint8_t *to,
                               struct error *error) {
  const struct gemm_weight *weight = &convert->source->weight;
  uint64_t k = convert->k;
  (void)error; /* finite values always have a code */
  float scale = convert->one_scale;
  if (weight->scale == GEMM_SCALE_ROW)
    scale = set_scale(convert, row, scale_of(weight->format, quantize_absmax(values, k)));
  quantize_bytes(weight->format, values, k, scale, to);
  return STATUS_OK;
}

static enum status write_halves(const struct convert *convert, uint64_t row, const float *values, uint8_t *to,
                                struct error *error) {
  uint64_t k = convert->k;
  uint16_t *out = (uint16_t *)(void *)to;
  bool f16 = convert->source->weight.format == GEMM_FORMAT_F16;
  uint64_t bad = f16 ? quantize_f16(values, k, out) : quantize_bf16(values, k, out);
  return bad < k ? refuse_value(convert, row, bad, values[bad], f16 ? "is beyond f16" : "is beyond bf16", error)
                 : STATUS_OK;
}

static enum status write_int2(const struct convert *convert, uint64_t row, const struct scratch *scratch, uint8_t *to,
                              struct error *error) {
  const struct source *source = convert->source;
  uint64_t k = convert->k;
  uint64_t columns = source->layout.scale_columns, group = (uint64_t)gemm_scale_group(&source->weight);
  for (uint64_t i = 0; i < k; i++)
    if (fabsf(scratch->values[i]) > QUANTIZE_INT2_MOST)
      return refuse_value(convert, row, i, scratch->values[i], "is beyond what an f16 scale can express", error);
  for (uint64_t i = 0, begin = 0; begin < k; i++, begin += group) {
    const float *values = scratch->values + begin;
    uint64_t count = k - begin < group ? k - begin : group;
    uint16_t scale = source->method == GEMM_METHOD_TERNARY
                         ? quantize_ternary(values, count, scratch->codes + begin)
                         : quantize_least_squares(values, count, scratch->sorted, scratch->codes + begin);
    (void)set_scale(convert, row * columns + i, number_from_f16(scale));
  }
  quantize_pack(scratch->codes, k, to, source->layout.row_bytes);
  return STATUS_OK;
}

static enum status write_codes4(const struct convert *convert, uint64_t row, const struct scratch *scratch, uint8_t *to,
                                struct error *error) {
  const struct source *source = convert->source;
  const struct gemm_weight *weight = &source->weight;
  uint64_t k = convert->k, columns = source->layout.scale_columns, group = (uint64_t)gemm_scale_group(weight);
  bool f16 = gemm_scale_type(weight) == GEMM_F16, search = source->method == GEMM_METHOD_LEAST_SQUARES;
  if (source->layout.factors_bytes > 0)
    set_factor(convert, row, convert->factor);
  for (uint64_t i = 0; f16 && i < k; i++)
    if (fabsf(scratch->values[i]) > QUANTIZE_INT2_MOST)
      return refuse_value(convert, row, i, scratch->values[i], "is beyond what an f16 scale can express", error);
  for (uint64_t i = row * columns, begin = 0; begin < k; i++, begin += group) {
    uint8_t zero;
    (void)set_scale(convert, i,
                    quantize_group4(weight, search, convert->factor, scratch->values + begin,
                                    k - begin < group ? k - begin : group, scratch->codes + begin, &zero));
    if (source->layout.zeros_bytes > 0)
      gemm_zero_put(weight->scale, convert->canonical + source->layout.zeros_offset, i, zero);
  }
  quantize_pack4(scratch->codes, k, gemm_format_facts(weight->format)->padding, to, source->layout.row_bytes);
  return STATUS_OK;
}

static enum status write_row(const struct convert *convert, uint64_t row, const struct scratch *scratch,
                             struct error *error) {
  uint8_t *to = convert->canonical + row * convert->source->layout.row_bytes;
  switch (gemm_format_facts(convert->source->weight.format)->bits) {
  case 2:
    return write_int2(convert, row, scratch, to, error);
  case 4:
    return write_codes4(convert, row, scratch, to, error);
  case 8:
    return write_bytes(convert, row, scratch->values, to, error);
  default:
    return write_halves(convert, row, scratch->values, to, error);
  }
}

/* ---- bands */

static enum status work_real(void *context, uint64_t band, void *memory, struct error *error) {
  const struct convert *convert = context;
  struct scratch scratch = scratch_cut(convert, memory);
  struct import_tile tile;
  enum status status = STATUS_OK;
  for (struct run run = {.rows = 0}; status == STATUS_OK && next_run(convert, band, &run);) {
    status = read_run(convert, &run, 0, convert->k, scratch.raw, &tile, error);
    for (uint64_t i = 0; status == STATUS_OK && i < run.rows; i++) {
      status = take_row(convert, &run, &tile, i, 0, scratch.values, error);
      if (status == STATUS_OK)
        status = write_row(convert, run.first + i, &scratch, error);
    }
  }
  return status;
}

/* Halves that stay what they are: read where they belong, unless rows are longer there than in the file. */
static enum status work_halves(void *context, uint64_t band, void *memory, struct error *error) {
  const struct convert *convert = context;
  struct scratch scratch = scratch_cut(convert, memory);
  uint64_t row_bytes = convert->source->layout.row_bytes;
  bool direct = row_bytes == convert->k * sizeof(uint16_t);
  uint16_t infinity = convert->source->weight.format == GEMM_FORMAT_F16 ? 0x7c00 : 0x7f80;
  struct import_tile tile;
  enum status status = STATUS_OK;
  for (struct run run = {.rows = 0}; status == STATUS_OK && next_run(convert, band, &run);) {
    uint8_t *to = convert->canonical + run.first * row_bytes;
    status = read_run(convert, &run, 0, convert->k, direct ? to : scratch.raw, &tile, error);
    for (uint64_t i = 0; status == STATUS_OK && i < run.rows; i++) {
      uint16_t *row = (uint16_t *)(void *)(to + i * row_bytes);
      if (!direct)
        memcpy(row, tile.raw + i * tile.stride, convert->k * sizeof *row);
      if (!quantize_finite_halves(row, convert->k, infinity))
        status = take_row(convert, &run, &tile, i, 0, scratch.values, error);
    }
  }
  return status;
}

static enum status work_absmax(void *context, uint64_t band, void *memory, struct error *error) {
  struct convert *convert = context;
  struct scratch scratch = scratch_cut(convert, memory);
  struct import_tile tile;
  float absmax = 0.0f;
  enum status status = STATUS_OK;
  for (struct run run = {.rows = 0}; status == STATUS_OK && next_run(convert, band, &run);) {
    status = read_run(convert, &run, 0, convert->k, scratch.raw, &tile, error);
    for (uint64_t i = 0; status == STATUS_OK && i < run.rows; i++) {
      status = take_row(convert, &run, &tile, i, 0, scratch.values, error);
      if (status == STATUS_OK)
        absmax = fmaxf(absmax, quantize_absmax(scratch.values, convert->k));
    }
  }
  uint32_t bits = 0, seen = atomic_load(&convert->absmax_bits);
  memcpy(&bits, &absmax, sizeof bits);
  while (bits > seen && !atomic_compare_exchange_weak(&convert->absmax_bits, &seen, bits))
    ;
  return status;
}

/* Scales and codes of the 128x128 blocks of one tile; `columns` values a row, rows behind each other. */
static void write_blocks(const struct convert *convert, uint64_t band, uint64_t rows, uint64_t first_column,
                         uint64_t columns, const float *values) {
  const struct gemm_layout *layout = &convert->source->layout;
  for (uint64_t begin = 0; begin < columns; begin += GEMM_GROUP) {
    uint64_t width = columns - begin < GEMM_GROUP ? columns - begin : GEMM_GROUP;
    float absmax = 0.0f;
    for (uint64_t i = 0; i < rows; i++)
      absmax = fmaxf(absmax, quantize_absmax(values + i * columns + begin, width));
    float scale = number_scale_e4m3(absmax);
    (void)set_scale(convert, band * layout->scale_columns + (first_column + begin) / GEMM_GROUP, scale);
    for (uint64_t i = 0; i < rows; i++)
      quantize_e4m3(values + i * columns + begin, width, scale,
                    convert->canonical + (band * GEMM_GROUP + i) * layout->row_bytes + first_column + begin);
  }
}

static enum status work_blocks(void *context, uint64_t band, void *memory, struct error *error) {
  const struct convert *convert = context;
  struct scratch scratch = scratch_cut(convert, memory);
  struct import_tile tile;
  for (uint64_t column = 0; column < convert->k; column += convert->tile_columns) {
    uint64_t left = convert->k - column, columns = left < convert->tile_columns ? left : convert->tile_columns;
    uint64_t rows = 0;
    for (struct run run = {.rows = 0}; next_run(convert, band, &run); rows += run.rows) {
      enum status status = read_run(convert, &run, column, columns, scratch.raw, &tile, error);
      for (uint64_t i = 0; status == STATUS_OK && i < run.rows; i++)
        status = take_row(convert, &run, &tile, i, column, scratch.values + (rows + i) * columns, error);
      if (status != STATUS_OK)
        return status;
    }
    write_blocks(convert, band, rows, column, columns, scratch.values);
  }
  return STATUS_OK;
}

/* ---- bands of codes */

static enum status check_e4m3(const struct convert *convert, uint64_t row, struct error *error) {
  const uint8_t *codes = convert->canonical + row * convert->source->layout.row_bytes;
  unsigned bad = 0;
  for (uint64_t i = 0; i < convert->k; i++)
    bad |= (codes[i] & 0x7f) == 0x7f;
  for (uint64_t i = 0; bad && i < convert->k; i++)
    if ((codes[i] & 0x7f) == 0x7f)
      return refuse_value(convert, row, i, NAN, "is not finite", error);
  return STATUS_OK;
}

static enum status put_scale(const struct convert *convert, const struct source_piece *piece, uint64_t index,
                             float value, struct error *error) {
  const struct import_entry *scales = piece->from.aux[IMPORT_SCALES];
  enum gemm_type type = gemm_scale_type(&convert->source->weight);
  float stored = set_scale(convert, index, value);
  /* A factor below zero is possible for packed formats alone, whose codes are not symmetric. */
  if (!isfinite(value) || (value < 0.0f && !gemm_is_packed(convert->source->weight.format)) || !isfinite(stored) ||
      (value != 0.0f && stored == 0.0f) || (gemm_type_bytes(type) == 1 && stored != value))
    return error_set(error, STATUS_BAD_FILE, "scale tensor '%s': element %llu is %g",
                     safetensors_show((scales ? scales : piece->from.tensor)->tensor->name).text,
                     (unsigned long long)index, (double)value);
  return STATUS_OK;
}

static enum status put_zero(const struct convert *convert, const struct source_piece *piece, uint64_t index,
                            float value, struct error *error) {
  const struct gemm_weight *weight = &convert->source->weight;
  uint32_t most = (1u << gemm_format_facts(weight->format)->bits) - 1;
  const char *name = safetensors_show(piece->from.tensor->tensor->name).text;
  bool any = gemm_scale_facts(weight->scale)->zeros_f16;
  if (any && !isfinite(value))
    return error_set(error, STATUS_BAD_FILE, "tensor '%s': zero point %llu is %g", name, (unsigned long long)index,
                     (double)value);
  if (!any && !(value >= 0.0f && value <= (float)most))
    return error_set(error, STATUS_BAD_FILE, "tensor '%s': zero point %llu is %g, codes reach %u", name,
                     (unsigned long long)index, (double)value, most);
  gemm_zero_put(weight->scale, convert->canonical + convert->source->layout.zeros_offset, index, value);
  return STATUS_OK;
}

static enum status put_factor(const struct convert *convert, const struct source_piece *piece, uint64_t row,
                              float value, struct error *error) {
  if (!isfinite(value) || value < 0.0f)
    return error_set(error, STATUS_BAD_FILE, "tensor '%s': the factor of its scales is %g",
                     safetensors_show(piece->from.tensor->tensor->name).text, (double)value);
  set_factor(convert, row, value);
  return STATUS_OK;
}

static enum status put_tile_scales(const struct convert *convert, const struct run *run, const struct import_tile *tile,
                                   float *values, struct error *error) {
  uint64_t columns = convert->source->layout.scale_columns;
  enum status status = STATUS_OK;
  for (uint64_t i = 0; status == STATUS_OK && i < run->rows; i++) {
    run->piece->from.importer->tile_scales(&run->piece->from, tile, i, values);
    for (uint64_t j = 0; status == STATUS_OK && j < columns; j++)
      status = put_scale(convert, run->piece, (run->first + i) * columns + j, values[j], error);
  }
  return status;
}

static enum status work_codes(void *context, uint64_t band, void *memory, struct error *error) {
  const struct convert *convert = context;
  const struct source *source = convert->source;
  const struct gemm_format_facts *facts = gemm_format_facts(source->weight.format);
  struct scratch scratch = scratch_cut(convert, memory);
  uint64_t row_bytes = source->layout.row_bytes, used = convert->k * (uint64_t)facts->bits / 8;
  struct import_tile tile;
  enum status status = STATUS_OK;
  for (struct run run = {.rows = 0}; status == STATUS_OK && next_run(convert, band, &run);) {
    const struct importer *importer = run.piece->from.importer;
    uint8_t *to = convert->canonical + run.first * row_bytes;
    status = read_run(convert, &run, 0, convert->k, scratch.raw, &tile, error);
    if (status != STATUS_OK)
      return status;
    importer->codes(&run.piece->from, &convert->aux->data[run.piece - source->pieces], &tile, to, row_bytes);
    for (uint64_t i = 0; source->reorders && i < run.rows; i++)
      input_reorder(source, to + i * row_bytes, (uint8_t *)(void *)scratch.values);
    for (uint64_t i = 0; used < row_bytes && i < run.rows; i++)
      memset(to + i * row_bytes + used, facts->padding, row_bytes - used);
    for (uint64_t i = 0; status == STATUS_OK && facts->element == GEMM_E4M3 && i < run.rows; i++)
      status = check_e4m3(convert, run.first + i, error);
    if (status == STATUS_OK && importer->tile_scales)
      status = put_tile_scales(convert, &run, &tile, scratch.values, error);
  }
  return status;
}

static enum status put_scales(const struct convert *convert, struct error *error) {
  const struct source *source = convert->source;
  const struct gemm_layout *layout = &source->layout;
  const struct gemm_scale_facts *facts = gemm_scale_facts(source->weight.scale);
  uint64_t height = facts->n > 0 ? (uint64_t)facts->n : 1;
  enum status status = STATUS_OK;
  for (uint64_t i = 0; i < layout->scale_rows; i++) {
    const struct source_piece *piece = source_piece_at(source, i * height);
    const struct importer *importer = piece->from.importer;
    uint64_t row = (i * height - (uint64_t)piece->begin + (uint64_t)piece->row) / height;
    uint64_t column = facts->k > 0 ? (uint64_t)(piece->column / facts->k) : 0;
    const struct import_data *data = &convert->aux->data[piece - source->pieces];
    for (uint64_t j = 0; importer->scale && status == STATUS_OK && j < layout->scale_columns; j++) {
      uint64_t index = i * layout->scale_columns + j;
      status = put_scale(convert, piece, index, importer->scale(&piece->from, data, row, column + j), error);
      if (status == STATUS_OK && layout->zeros_bytes > 0)
        status = put_zero(convert, piece, index, importer->zero(&piece->from, data, row, column + j), error);
    }
    if (status == STATUS_OK && layout->factors_bytes > 0)
      status = put_factor(convert, piece, i, importer->factor(&piece->from, data, row), error);
  }
  return status;
}

/* ---- the whole */

static bool needs_absmax(const struct source *source) {
  return !source->stored && (source->weight.scale == GEMM_SCALE_ONE || source->layout.factors_bytes > 0);
}

uint64_t convert_bytes(const struct source *source) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < source->count; i++)
    bytes += (uint64_t)source->pieces[i].n * tiles_row_bytes(&source->pieces[i], (uint64_t)source->weight.k);
  return needs_absmax(source) ? 2 * bytes : bytes;
}

/* How the weight is cut: bands of whole rows; under block scales bands of 128 rows, in tiles. */
static void choose_bands(struct convert *convert) {
  const struct source *source = convert->source;
  bool words = false;
  uint32_t widest = 1;
  for (uint32_t i = 0; i < source->count; i++) {
    uint64_t bytes = tiles_row_bytes(&source->pieces[i], convert->k);
    convert->row_bytes = bytes > convert->row_bytes ? bytes : convert->row_bytes;
    words |= source->pieces[i].from.by_columns;
    uint32_t element = source->pieces[i].from.pack_bytes / source->pieces[i].from.pack;
    widest = element > widest ? element : widest;
  }
  convert->band_rows =
      convert->row_bytes < BAND_BYTES ? BAND_BYTES / (convert->row_bytes > 0 ? convert->row_bytes : 1) : 1;
  if (words)
    convert->band_rows = gemm_round_up(convert->band_rows, WORDS_ROWS);
  convert->tile_columns = convert->k;
  if (is_blocked(source)) {
    convert->band_rows = GEMM_GROUP;
    uint64_t most = BAND_BYTES / (GEMM_GROUP * widest) / GEMM_GROUP * GEMM_GROUP;
    if (convert->tile_columns > most)
      convert->tile_columns = most;
  }
}

static bool is_copied(const struct source *source) {
  for (uint32_t i = 0; i < source->count; i++)
    if (source->pieces[i].from.format != source->weight.format || source->pieces[i].from.pack_bytes != 2)
      return false;
  return gemm_is_wide(source->weight.format);
}

static enum status find_one_scale(struct convert *convert, const struct bands *bands, struct error *error) {
  struct bands first = *bands;
  first.work = work_absmax;
  enum status status = bands_run(&first, convert->watch, error);
  if (status != STATUS_OK)
    return status;
  uint32_t bits = atomic_load(&convert->absmax_bits);
  float absmax = 0.0f;
  memcpy(&absmax, &bits, sizeof absmax);
  if (convert->source->weight.scale == GEMM_SCALE_ONE)
    convert->one_scale = set_scale(convert, 0, scale_of(convert->source->weight.format, absmax));
  else
    convert->factor = quantize_nvfp4_factor(absmax);
  return STATUS_OK;
}

static enum status run(struct convert *convert, unsigned threads, struct error *error) {
  const struct source *source = convert->source;
  struct bands bands = {.count = gemm_ceil_div(convert->n, convert->band_rows),
                        .scratch_bytes = scratch_bytes(convert),
                        .threads = threads,
                        .work = source->stored       ? work_codes
                                : is_blocked(source) ? work_blocks
                                : is_copied(source)  ? work_halves
                                                     : work_real,
                        .context = convert};
  enum status status = STATUS_OK;
  if (source->stored)
    status = put_scales(convert, error);
  else if (needs_absmax(source))
    status = find_one_scale(convert, &bands, error);
  return status == STATUS_OK ? bands_run(&bands, convert->watch, error) : status;
}

enum status convert_run(const struct files *files, const struct source *source, void *canonical, unsigned threads,
                        struct watch *watch, struct error *error) {
  struct tiles_aux aux;
  struct convert convert = {.files = files,
                            .source = source,
                            .aux = &aux,
                            .canonical = canonical,
                            .watch = watch,
                            .n = (uint64_t)source->weight.n,
                            .k = (uint64_t)source->weight.k};
  choose_bands(&convert);
  enum status status = tiles_aux_read(files, source, &aux, error);
  if (status == STATUS_OK)
    status = run(&convert, threads, error);
  tiles_aux_free(&aux);
  return status;
}
