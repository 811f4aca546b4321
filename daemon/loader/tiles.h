/* What a load reads of its files: parts of tensors as they lie there, and what stands beside them, whole. */
#pragma once

#include "../bands.h"
#include "file.h"
#include "source.h"

/* Bytes of `columns` columns of a row of the piece; where it lies by columns, of a row of W in all its words. */
uint64_t tiles_row_bytes(const struct source_piece *piece, uint64_t columns);

/* Reads rows first.. (of W) of the piece, columns first_column.. (of the source) into `raw`, which holds them: rows
 * times tiles_row_bytes. Adds what was read to watch->done. */
MUST_CHECK enum status tiles_read(const struct files *files, const struct source_piece *piece, uint64_t first,
                                  uint64_t rows, uint64_t column, uint64_t columns, uint8_t *raw,
                                  struct import_tile *tile, struct watch *watch, struct error *error);

/* The tensors beside the codes of every piece, read whole and looked through by their importer. */
struct tiles_aux {
  struct import_data data[SOURCE_PIECES];
  uint8_t *memory[SOURCE_PIECES][IMPORT_AUX]; /* owned */
};

/* Free it, whatever is returned. */
MUST_CHECK enum status tiles_aux_read(const struct files *files, const struct source *source, struct tiles_aux *aux,
                                      struct error *error);
void tiles_aux_free(struct tiles_aux *aux);
