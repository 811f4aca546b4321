#include "convert.h"

#include "../../proto/number.h"
#include "../../proto/weights/quantize.h"
#include "trirun.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* Input of one band: little enough that a band stays in a core's cache, enough that a read is cheap. */
enum { BAND_BYTES = 1 << 20 };

struct convert {
  const struct file *file;
  const struct source *source;
  uint8_t *canonical;
  struct watch *watch;
  int64_t n, k;
  uint32_t element_bytes; /* in the file; a byte of INT2 counts as one element */
  uint64_t row_elements;  /* in the file */
  uint64_t file_rows;
  uint64_t band_rows;
  uint64_t tile_columns; /* block scales: columns that are read at a time, a multiple of the block but for the end */
  float one_scale;
  _Atomic uint32_t absmax_bits; /* of the whole tensor: the order of positive floats is that of their bits */
};

/* Each thread's memory, cut from its scratch. */
struct scratch {
  uint8_t *raw;     /* a band (block scales: a tile) as it is in the file */
  float *values;    /* a row (a tile) */
  uint8_t *codes;   /* INT2: a row */
  uint32_t *sorted; /* INT2: twice a row */
};

static bool is_blocked(const struct source *source) {
  return !source->stored && source->weight.scale == GEMM_SCALE_BLOCK;
}

static uint64_t values_count(const struct convert *convert) {
  return is_blocked(convert->source) ? GEMM_GROUP * convert->tile_columns : convert->row_elements;
}

static uint64_t raw_bytes(const struct convert *convert) {
  uint64_t columns = is_blocked(convert->source) ? convert->tile_columns
                     : convert->source->trirun   ? convert->file_rows
                                                 : convert->row_elements;
  return gemm_round_up(convert->band_rows * columns * convert->element_bytes, 64);
}

static size_t scratch_bytes(const struct convert *convert) {
  uint64_t count = values_count(convert);
  bool int2 = gemm_is_int2(convert->source->weight.format);
  return (size_t)(raw_bytes(convert) + count * sizeof(float) + (int2 ? count * (2 * sizeof(uint32_t) + 1) : 0));
}

static struct scratch scratch_cut(const struct convert *convert, void *memory) {
  uint64_t count = values_count(convert);
  struct scratch scratch = {.raw = memory};
  scratch.values = (float *)(void *)(scratch.raw + raw_bytes(convert));
  scratch.sorted = (uint32_t *)(void *)(scratch.values + count);
  scratch.codes = (uint8_t *)(scratch.sorted + 2 * count);
  return scratch;
}

static uint64_t rows_of_band(const struct convert *convert, uint64_t band) {
  uint64_t first = band * convert->band_rows, left = (uint64_t)convert->n - first;
  return left < convert->band_rows ? left : convert->band_rows;
}

/* ---- reading */

/* Rows first_row .. and columns first_column .. of the tensor, one row behind the other. */
static enum status read_tile(const struct convert *convert, uint64_t first_row, uint64_t rows, uint64_t first_column,
                             uint64_t columns, uint8_t *out, struct error *error) {
  uint64_t row_bytes = convert->row_elements * convert->element_bytes, bytes = columns * convert->element_bytes;
  uint64_t offset = convert->source->tensor->begin + first_row * row_bytes + first_column * convert->element_bytes;
  enum status status = STATUS_OK;
  if (columns == convert->row_elements)
    status = file_read(convert->file, offset, out, (size_t)(rows * row_bytes), error);
  else
    for (uint64_t row = 0; status == STATUS_OK && row < rows; row++)
      status = file_read(convert->file, offset + row * row_bytes, out + row * bytes, (size_t)bytes, error);
  atomic_fetch_add(&convert->watch->done, rows * bytes);
  return status;
}

static enum status refuse_value(const struct convert *convert, uint64_t row, uint64_t column, float value,
                                const char *why, struct error *error) {
  return error_set(error, STATUS_BAD_FILE, "tensor '%s': %g in row %llu, column %llu %s",
                   safetensors_show(convert->source->tensor->name).text, (double)value, (unsigned long long)row,
                   (unsigned long long)column, why);
}

/* Real numbers of one row (or a piece of it, from `first_column`) as f32, all of them finite. */
static enum status take_row(const struct convert *convert, const uint8_t *raw, uint64_t row, uint64_t first_column,
                            uint64_t count, float *out, struct error *error) {
  safetensors_to_f32(convert->source->tensor->dtype, raw, count, out);
  for (uint64_t i = 0; i < count; i++)
    if (!isfinite(out[i]))
      return refuse_value(convert, row, first_column + i, out[i], "is not finite", error);
  return STATUS_OK;
}

/* ---- one row of real numbers */

static float *scale_f32(const struct convert *convert, uint64_t index) {
  return (float *)(void *)(convert->canonical + convert->source->layout.scales_offset) + index;
}

static uint16_t *scale_f16(const struct convert *convert, uint64_t index) {
  return (uint16_t *)(void *)(convert->canonical + convert->source->layout.scales_offset) + index;
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
  uint64_t k = (uint64_t)convert->k;
  (void)error; /* finite values always have a code */
  float scale = convert->one_scale;
  if (weight->scale == GEMM_SCALE_ROW)
    *scale_f32(convert, row) = scale = scale_of(weight->format, quantize_absmax(values, k));
  quantize_bytes(weight->format, values, k, scale, to);
  return STATUS_OK;
}

static enum status write_halves(const struct convert *convert, uint64_t row, const float *values, uint8_t *to,
                                struct error *error) {
  uint64_t k = (uint64_t)convert->k;
  uint16_t *out = (uint16_t *)(void *)to;
  bool f16 = convert->source->weight.format == GEMM_FORMAT_F16;
  uint64_t bad = f16 ? quantize_f16(values, k, out) : quantize_bf16(values, k, out);
  return bad < k ? refuse_value(convert, row, bad, values[bad], f16 ? "is beyond f16" : "is beyond bf16", error)
                 : STATUS_OK;
}

static enum status write_int2(const struct convert *convert, uint64_t row, const struct scratch *scratch, uint8_t *to,
                              struct error *error) {
  const struct source *source = convert->source;
  uint64_t k = (uint64_t)convert->k;
  uint64_t group = source->weight.scale == GEMM_SCALE_GROUP ? GEMM_GROUP : k, columns = source->layout.scale_columns;
  for (uint64_t i = 0; i < k; i++)
    if (fabsf(scratch->values[i]) > QUANTIZE_INT2_MOST)
      return refuse_value(convert, row, i, scratch->values[i], "is beyond what an f16 scale can express", error);
  for (uint64_t i = 0, begin = 0; begin < k; i++, begin += group) {
    const float *values = scratch->values + begin;
    uint64_t count = k - begin < group ? k - begin : group;
    *scale_f16(convert, row * columns + i) =
        source->method == METHOD_TERNARY
            ? quantize_ternary(values, count, scratch->codes + begin)
            : quantize_least_squares(values, count, scratch->sorted, scratch->codes + begin);
  }
  quantize_pack(scratch->codes, k, to, source->layout.row_bytes);
  return STATUS_OK;
}

static enum status write_row(const struct convert *convert, uint64_t row, const struct scratch *scratch,
                             struct error *error) {
  uint8_t *to = convert->canonical + row * convert->source->layout.row_bytes;
  switch (convert->source->weight.format) {
  case GEMM_FORMAT_INT8:
  case GEMM_FORMAT_FP8:
    return write_bytes(convert, row, scratch->values, to, error);
  case GEMM_FORMAT_INT2:
  case GEMM_FORMAT_INT2A8:
    return write_int2(convert, row, scratch, to, error);
  default:
    return write_halves(convert, row, scratch->values, to, error);
  }
}

/* ---- bands */

static enum status work_real(void *context, uint64_t band, void *memory, struct error *error) {
  const struct convert *convert = context;
  struct scratch scratch = scratch_cut(convert, memory);
  uint64_t first = band * convert->band_rows, rows = rows_of_band(convert, band), k = convert->row_elements;
  enum status status = read_tile(convert, first, rows, 0, k, scratch.raw, error);
  for (uint64_t i = 0; status == STATUS_OK && i < rows; i++) {
    status = take_row(convert, scratch.raw + i * k * convert->element_bytes, first + i, 0, k, scratch.values, error);
    if (status == STATUS_OK)
      status = write_row(convert, first + i, &scratch, error);
  }
  return status;
}

static enum status work_absmax(void *context, uint64_t band, void *memory, struct error *error) {
  struct convert *convert = context;
  struct scratch scratch = scratch_cut(convert, memory);
  uint64_t first = band * convert->band_rows, rows = rows_of_band(convert, band), k = convert->row_elements;
  enum status status = read_tile(convert, first, rows, 0, k, scratch.raw, error);
  for (uint64_t i = 0; status == STATUS_OK && i < rows; i++) {
    status = take_row(convert, scratch.raw + i * k * convert->element_bytes, first + i, 0, k, scratch.values, error);
    if (status != STATUS_OK)
      break;
    float absmax = quantize_absmax(scratch.values, k);
    uint32_t bits = 0, seen = atomic_load(&convert->absmax_bits);
    memcpy(&bits, &absmax, sizeof bits);
    while (bits > seen && !atomic_compare_exchange_weak(&convert->absmax_bits, &seen, bits))
      ;
  }
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
    *scale_f32(convert, band * layout->scale_columns + (first_column + begin) / GEMM_GROUP) = scale;
    for (uint64_t i = 0; i < rows; i++)
      quantize_e4m3(values + i * columns + begin, width, scale,
                    convert->canonical + (band * GEMM_GROUP + i) * layout->row_bytes + first_column + begin);
  }
}

static enum status work_blocks(void *context, uint64_t band, void *memory, struct error *error) {
  const struct convert *convert = context;
  struct scratch scratch = scratch_cut(convert, memory);
  uint64_t first = band * GEMM_GROUP, rows = rows_of_band(convert, band), k = convert->row_elements;
  for (uint64_t column = 0; column < k; column += convert->tile_columns) {
    uint64_t columns = k - column < convert->tile_columns ? k - column : convert->tile_columns;
    enum status status = read_tile(convert, first, rows, column, columns, scratch.raw, error);
    for (uint64_t i = 0; status == STATUS_OK && i < rows; i++)
      status = take_row(convert, scratch.raw + i * columns * convert->element_bytes, first + i, column, columns,
                        scratch.values + i * columns, error);
    if (status != STATUS_OK)
      return status;
    write_blocks(convert, band, rows, column, columns, scratch.values);
  }
  return STATUS_OK;
}

static enum status work_stored(void *context, uint64_t band, void *memory, struct error *error) {
  const struct convert *convert = context;
  const struct gemm_layout *layout = &convert->source->layout;
  struct scratch scratch = scratch_cut(convert, memory);
  uint64_t first = band * convert->band_rows, rows = rows_of_band(convert, band), columns = convert->row_elements;
  enum status status = read_tile(convert, first, rows, 0, columns, scratch.raw, error);
  for (uint64_t i = 0; status == STATUS_OK && i < rows; i++) {
    const uint8_t *row = scratch.raw + i * columns;
    uint8_t *to = convert->canonical + (first + i) * layout->row_bytes;
    for (uint64_t j = 0; convert->source->weight.format == GEMM_FORMAT_FP8 && j < columns; j++)
      if ((row[j] & 0x7f) == 0x7f)
        return refuse_value(convert, first + i, j, NAN, "is not finite", error);
    memcpy(to, row, columns);
    if (gemm_is_int2(convert->source->weight.format))
      memset(to + columns, 0x55, layout->row_bytes - columns); /* code 1 stands for 0 */
  }
  return status;
}

/* 64 or more rows of W, which are columns of the tensor. */
static enum status work_trirun(void *context, uint64_t band, void *memory, struct error *error) {
  const struct convert *convert = context;
  struct scratch scratch = scratch_cut(convert, memory);
  uint64_t first = band * convert->band_rows, columns = rows_of_band(convert, band), rows = convert->file_rows;
  enum status status = read_tile(convert, 0, rows, first, columns, scratch.raw, error);
  const uint32_t *words = (const uint32_t *)(const void *)scratch.raw;
  uint64_t row_bytes = convert->source->layout.row_bytes;
  memset(convert->canonical + first * row_bytes, 0, columns * row_bytes);
  for (uint64_t i = 0; status == STATUS_OK && i < columns; i += TRIRUN_COLUMNS)
    trirun_unpack(words + i, rows, columns, convert->canonical + (first + i) * row_bytes, row_bytes);
  return status;
}

/* ---- the whole */

enum { SCALES_AT_ONCE = 4096 };

/* One scale out of the file. A factor below zero is possible for INT2 alone, whose codes are not symmetric. */
static enum status write_scale(const struct convert *convert, uint64_t index, const uint8_t *raw, struct error *error) {
  const struct source *source = convert->source;
  bool int2 = gemm_is_int2(source->weight.format);
  uint64_t to = index;
  float value = 0.0f;
  safetensors_to_f32(source->scales->dtype, raw, 1, &value);
  if (!isfinite(value) || (value < 0.0f && !int2))
    return error_set(error, STATUS_BAD_FILE, "scale tensor '%s': element %llu is %g",
                     safetensors_show(source->scales->name).text, (unsigned long long)index, (double)value);
  if (source->trirun) {
    bool grouped = source->weight.scale == GEMM_SCALE_GROUP;
    uint64_t n = (uint64_t)convert->n;
    to = trirun_scale_row(index % n, grouped) * source->layout.scale_columns + index / n;
  }
  if (int2)
    memcpy(scale_f16(convert, to), raw, sizeof(uint16_t));
  else
    *scale_f32(convert, index) = value;
  return STATUS_OK;
}

static enum status copy_scales(const struct convert *convert, struct error *error) {
  const struct safetensors_tensor *scales = convert->source->scales;
  uint8_t raw[SCALES_AT_ONCE * sizeof(float)] __attribute__((aligned(16)));
  uint64_t bytes = scales->dtype == DTYPE_F32 ? 4 : 2, count = convert->source->layout.scale_count;
  for (uint64_t begin = 0; begin < count; begin += SCALES_AT_ONCE) {
    uint64_t some = count - begin < SCALES_AT_ONCE ? count - begin : SCALES_AT_ONCE;
    enum status status = file_read(convert->file, scales->begin + begin * bytes, raw, (size_t)(some * bytes), error);
    for (uint64_t i = 0; status == STATUS_OK && i < some; i++)
      status = write_scale(convert, begin + i, raw + i * bytes, error);
    if (status != STATUS_OK)
      return status;
  }
  return STATUS_OK;
}

static bool needs_absmax(const struct source *source) {
  return !source->stored && source->weight.scale == GEMM_SCALE_ONE;
}

uint64_t convert_bytes(const struct source *source) {
  uint64_t bytes = source->tensor->end - source->tensor->begin;
  return needs_absmax(source) ? 2 * bytes : bytes;
}

/* How the tensor is cut: bands of whole rows; under block scales bands of 128 rows, in tiles. */
static void choose_bands(struct convert *convert) {
  uint64_t row_bytes = (convert->source->trirun ? convert->file_rows : convert->row_elements) * convert->element_bytes;
  convert->band_rows = row_bytes < BAND_BYTES ? BAND_BYTES / row_bytes : 1;
  if (convert->source->trirun)
    convert->band_rows = gemm_round_up(convert->band_rows, TRIRUN_COLUMNS);
  convert->tile_columns = convert->row_elements;
  if (is_blocked(convert->source)) {
    convert->band_rows = GEMM_GROUP;
    uint64_t most = BAND_BYTES / (GEMM_GROUP * convert->element_bytes) / GEMM_GROUP * GEMM_GROUP;
    if (convert->tile_columns > most)
      convert->tile_columns = most;
  }
}

enum status convert_run(const struct file *file, const struct source *source, void *canonical, unsigned threads,
                        struct watch *watch, struct error *error) {
  const struct safetensors_tensor *tensor = source->tensor;
  struct convert convert = {.file = file,
                            .source = source,
                            .canonical = canonical,
                            .watch = watch,
                            .n = source->weight.n,
                            .k = source->weight.k,
                            .element_bytes = (uint32_t)((tensor->end - tensor->begin) / tensor->elements),
                            .row_elements = tensor->shape[1],
                            .file_rows = tensor->shape[0]};
  choose_bands(&convert);
  struct bands bands = {.count = gemm_ceil_div((uint64_t)convert.n, convert.band_rows),
                        .scratch_bytes = scratch_bytes(&convert),
                        .threads = threads,
                        .work = source->trirun       ? work_trirun
                                : source->stored     ? work_stored
                                : is_blocked(source) ? work_blocks
                                                     : work_real,
                        .context = &convert};
  if (source->stored) {
    enum status status = copy_scales(&convert, error);
    if (status != STATUS_OK)
      return status;
  }
  if (needs_absmax(source)) {
    struct bands first = bands;
    first.work = work_absmax;
    enum status status = bands_run(&first, watch, error);
    if (status != STATUS_OK)
      return status;
    uint32_t bits = atomic_load(&convert.absmax_bits);
    float absmax = 0.0f;
    memcpy(&absmax, &bits, sizeof absmax);
    *scale_f32(&convert, 0) = convert.one_scale = scale_of(source->weight.format, absmax);
  }
  return bands_run(&bands, watch, error);
}
