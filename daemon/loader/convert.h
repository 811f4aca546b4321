/* From the tensors of files to the canonical form of a weight: what source.h resolved is read band by band, quantized
 * or copied, and written into a mapping. */
#pragma once

#include "../bands.h"
#include "file.h"
#include "source.h"

/* Bytes that convert_run will add to watch->done. */
uint64_t convert_bytes(const struct source *source);

/* Writes source->layout.total_bytes to `canonical`, which is zeroed. Reads about a MiB a thread at a time, but at
 * least a row, or 128 rows by 128 columns of block-scaled FP8. BAD_FILE with row and column for values that are not
 * finite or beyond the format, and for bad scales. The result does not depend on the number of threads. */
MUST_CHECK enum status convert_run(const struct files *files, const struct source *source, void *canonical,
                                   unsigned threads, struct watch *watch, struct error *error);
