/* One product of rows that are staged. */
#pragma once

#include "chunk.h"

/* The product of what is staged, to y or to v. */
MUST_CHECK enum status chunk_compute(struct backend *backend, struct chunk *chunk, struct error *error);
