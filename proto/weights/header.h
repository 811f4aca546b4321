/* The header of a file of weights, safetensors or GGUF, read through a function of the caller's: no I/O here. */
#pragma once

#include "safetensors.h"

struct header_source {
  void *file;
  uint64_t bytes; /* of the file */
  /* Reads exactly so many bytes. */
  enum status (*read)(void *file, uint64_t offset, void *out, size_t bytes, struct error *error);
};

/* Free *out with safetensors_free. BAD_FILE, UNSUPPORTED, NOMEM, and what `read` says. */
MUST_CHECK enum status header_read(const struct header_source *source, struct safetensors *out, struct error *error);
