/* The catalog as bytes, for the next gemmd: written into a sealed memfd, read back with every number checked. Only what
 * has a name is kept, because handles end with their sessions. */
#pragma once

#include "catalog.h"

enum { CATALOG_BACKEND_BYTES = 16 };

/* *bytes is malloc'ed and the caller's. NOMEM. */
MUST_CHECK enum status catalog_image_write(const struct catalog *catalog, const char *backend, uint8_t **bytes,
                                           size_t *length, struct error *error);
/* Fills an empty catalog; the descriptors of slabs are -1. BAD_FILE with the reason for anything but an image of this
 * version, or the one before, whose parts agree; the catalog is empty then. */
MUST_CHECK enum status catalog_image_read(struct catalog *catalog, char backend[CATALOG_BACKEND_BYTES],
                                          const uint8_t *bytes, size_t length, struct error *error);
