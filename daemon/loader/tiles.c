#include "tiles.h"

#include <stdlib.h>

/* Scales of the largest weight that can be take less. */
#define AUX_BYTES_MOST ((uint64_t)1 << 30)

uint64_t tiles_row_bytes(const struct source_piece *piece, uint64_t columns) {
  return columns / piece->from.pack * piece->from.pack_bytes / piece->from.pack_rows;
}

static const struct file *file_of(const struct files *files, const struct import_entry *entry) {
  return &files->file[entry->file];
}

/* Rows that follow each other in the file are read together. */
static enum status read_rows(const struct files *files, const struct source_piece *piece, uint64_t first, uint64_t rows,
                             uint64_t column, uint64_t columns, uint8_t *raw, struct error *error) {
  const struct import_weight *from = &piece->from;
  const struct safetensors_tensor *tensor = from->tensor->tensor;
  uint64_t row_bytes = tiles_row_bytes(piece, (uint64_t)from->k), bytes = tiles_row_bytes(piece, columns);
  uint64_t (*place)(const struct import_weight *weight, uint64_t n) = from->importer->file_row;
  for (uint64_t done = 0, run; done < rows; done += run) {
    uint64_t row = place ? place(from, first + done) : first + done;
    for (run = 1; done + run < rows && bytes == row_bytes; run++)
      if (place && place(from, first + done + run) != row + run)
        break;
    uint64_t offset = tensor->begin + row * row_bytes + tiles_row_bytes(piece, column);
    enum status status =
        file_read(file_of(files, from->tensor), offset, raw + done * bytes, (size_t)(run * bytes), error);
    if (status != STATUS_OK)
      return status;
  }
  return STATUS_OK;
}

/* One row of words for every `pack` columns of W; rows are a multiple of `pack_rows`. */
static enum status read_words(const struct files *files, const struct source_piece *piece, uint64_t first,
                              uint64_t rows, uint64_t column, uint64_t columns, uint8_t *raw, struct error *error) {
  const struct import_weight *from = &piece->from;
  uint64_t words = columns / from->pack, bytes = rows / from->pack_rows * from->pack_bytes;
  uint64_t row_bytes = (uint64_t)from->n / from->pack_rows * from->pack_bytes;
  uint64_t offset =
      from->tensor->tensor->begin + column / from->pack * row_bytes + first / from->pack_rows * from->pack_bytes;
  if (bytes == row_bytes)
    return file_read(file_of(files, from->tensor), offset, raw, (size_t)(words * bytes), error);
  enum status status = STATUS_OK;
  for (uint64_t i = 0; status == STATUS_OK && i < words; i++)
    status = file_read(file_of(files, from->tensor), offset + i * row_bytes, raw + i * bytes, (size_t)bytes, error);
  return status;
}

enum status tiles_read(const struct files *files, const struct source_piece *piece, uint64_t first, uint64_t rows,
                       uint64_t column, uint64_t columns, uint8_t *raw, struct import_tile *tile, struct watch *watch,
                       struct error *error) {
  uint64_t row = first - (uint64_t)piece->begin + (uint64_t)piece->row, from = column + (uint64_t)piece->column;
  bool words = piece->from.by_columns;
  *tile = (struct import_tile){.raw = raw,
                               .stride = words ? rows / piece->from.pack_rows * piece->from.pack_bytes
                                               : tiles_row_bytes(piece, columns),
                               .first = row,
                               .rows = rows,
                               .column = from,
                               .columns = columns};
  enum status status = words ? read_words(files, piece, row, rows, from, columns, raw, error)
                             : read_rows(files, piece, row, rows, from, columns, raw, error);
  atomic_fetch_add(&watch->done, rows * tiles_row_bytes(piece, columns));
  return status;
}

/* One of `parts` equal parts of the tensor. */
static enum status read_aux(const struct files *files, const struct import_entry *entry, uint64_t part, uint64_t parts,
                            uint8_t **out, struct error *error) {
  uint64_t bytes = (entry->tensor->end - entry->tensor->begin) / parts;
  if (bytes > AUX_BYTES_MOST)
    return error_set(error, STATUS_TOO_LARGE, "tensor '%s' has %llu bytes; beside a weight the most is %llu",
                     safetensors_show(entry->tensor->name).text, (unsigned long long)bytes,
                     (unsigned long long)AUX_BYTES_MOST);
  *out = malloc((size_t)bytes + 1);
  if (!*out)
    return error_set(error, STATUS_NOMEM, "no memory for %llu bytes of scales", (unsigned long long)bytes);
  return file_read(file_of(files, entry), entry->tensor->begin + part * bytes, *out, (size_t)bytes, error);
}

enum status tiles_aux_read(const struct files *files, const struct source *source, struct tiles_aux *aux,
                           struct error *error) {
  enum status status = STATUS_OK;
  *aux = (struct tiles_aux){0};
  for (uint32_t i = 0; status == STATUS_OK && i < source->count; i++) {
    const struct import_weight *from = &source->pieces[i].from;
    for (int j = 0; status == STATUS_OK && j < IMPORT_AUX; j++) {
      bool sliced = j == IMPORT_SCALES && !from->real && from->tensor->parts > 0; /* as the codes of an expert are */
      if (from->aux[j])
        status = read_aux(files, from->aux[j], sliced ? from->tensor->part : 0, sliced ? from->tensor->parts : 1,
                          &aux->memory[i][j], error);
      aux->data[i].aux[j] = aux->memory[i][j];
    }
    if (status == STATUS_OK && from->importer->check)
      status = from->importer->check(from, &aux->data[i], error);
  }
  return status;
}

void tiles_aux_free(struct tiles_aux *aux) {
  for (int i = 0; i < SOURCE_PIECES; i++)
    for (int j = 0; j < IMPORT_AUX; j++)
      free(aux->memory[i][j]);
}
