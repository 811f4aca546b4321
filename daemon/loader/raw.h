/* Numbers for a device that makes the weight of them itself. */
#pragma once

#include "../bands.h"
#include "file.h"
#include "source.h"

/* The type of W's numbers where they are worth a device: INT2 with a scale for 128, which takes a search, of plain rows
 * of one type, each no longer than a device takes. 0: the weight is made here. */
enum gemm_type raw_type(const struct source *source);
/* Writes rows behind each other, n * k of that type. Adds to watch->done what convert_run would. */
MUST_CHECK enum status raw_run(const struct files *files, const struct source *source, uint8_t *out, unsigned threads,
                               struct watch *watch, struct error *error);
