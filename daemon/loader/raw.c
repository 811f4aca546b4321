#include "raw.h"

#include "../../kernels/backend.h"
#include "tiles.h"

enum { BAND_BYTES = 4 << 20 };

static enum gemm_type type_of(const struct source_piece *piece) {
  switch (piece->from.tensor->tensor->dtype) {
  case DTYPE_F32:
    return GEMM_F32;
  case DTYPE_F16:
    return GEMM_F16;
  case DTYPE_BF16:
    return GEMM_BF16;
  default:
    return 0;
  }
}

enum gemm_type raw_type(const struct source *source) {
  enum gemm_type type = type_of(&source->pieces[0]);
  if (source->stored || !gemm_is_int2(source->weight.format) || source->weight.scale != GEMM_SCALE_GROUP || type == 0 ||
      (uint64_t)source->weight.k * gemm_type_bytes(type) > BACKEND_CONVERT_BYTES)
    return 0;
  for (uint32_t i = 0; i < source->count; i++)
    if (source->pieces[i].from.importer != &import_plain || type_of(&source->pieces[i]) != type)
      return 0;
  return type;
}

struct raw {
  const struct files *files;
  const struct source *source;
  uint8_t *out;
  uint64_t row_bytes, band_rows;
  struct watch *watch;
};

static enum status read_band(void *context, uint64_t band, void *scratch, struct error *error) {
  const struct raw *raw = context;
  const struct source *source = raw->source;
  uint64_t row = band * raw->band_rows, left = (uint64_t)source->weight.n - row;
  uint64_t end = row + (left < raw->band_rows ? left : raw->band_rows);
  struct import_tile tile;
  enum status status = STATUS_OK;
  for (uint64_t rows; status == STATUS_OK && row < end; row += rows) {
    const struct source_piece *piece = source_piece_at(source, row);
    uint64_t piece_end = (uint64_t)(piece->begin + piece->n);
    rows = (piece_end < end ? piece_end : end) - row;
    status = tiles_read(raw->files, piece, row, rows, 0, (uint64_t)source->weight.k, raw->out + row * raw->row_bytes,
                        &tile, raw->watch, error);
  }
  return status;
}

enum status raw_run(const struct files *files, const struct source *source, uint8_t *out, unsigned threads,
                    struct watch *watch, struct error *error) {
  struct raw raw = {.files = files,
                    .source = source,
                    .out = out,
                    .row_bytes = (uint64_t)source->weight.k * gemm_type_bytes(raw_type(source)),
                    .watch = watch};
  raw.band_rows = gemm_ceil_div(BAND_BYTES, raw.row_bytes);
  const struct bands bands = {.count = gemm_ceil_div((uint64_t)source->weight.n, raw.band_rows),
                              .scratch_bytes = 1,
                              .threads = threads,
                              .work = read_band,
                              .context = &raw};
  return bands_run(&bands, watch, error);
}
