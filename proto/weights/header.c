#include "header.h"

#include "../limits.h"
#include "gguf.h"

#include <stdlib.h>

enum { GGUF_BYTES_FIRST = 1 << 16 };

static enum status gguf_header(const struct header_source *source, struct safetensors *out, struct error *error) {
  uint64_t most = source->bytes < LIMIT_FILE_HEADER_BYTES ? source->bytes : LIMIT_FILE_HEADER_BYTES;
  enum status status = STATUS_UNSUPPORTED;
  bool more = true;
  /* How long the header is says only the header itself. */
  for (uint64_t have = GGUF_BYTES_FIRST; more; have *= 4) {
    have = have < most ? have : most;
    uint8_t *bytes = malloc((size_t)have + 1);
    if (bytes == NULL)
      return error_set(error, STATUS_NOMEM, "no memory for a header of %llu bytes", (unsigned long long)have);
    status = source->read(source->file, 0, bytes, (size_t)have, error);
    if (status == STATUS_OK)
      status = gguf_parse(bytes, (size_t)have, source->bytes, out, &more, error);
    else
      more = false;
    free(bytes);
    if (have == most)
      break;
  }
  return status;
}

static enum status safetensors_header(const struct header_source *source, const uint8_t *first, size_t have,
                                      struct safetensors *out, struct error *error) {
  uint64_t json_bytes = 0;
  enum status status = safetensors_length(first, have, source->bytes, &json_bytes, error);
  if (status != STATUS_OK)
    return status;
  char *json = malloc((size_t)json_bytes + 1);
  if (json == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for a header of %llu bytes", (unsigned long long)json_bytes);
  status = source->read(source->file, SAFETENSORS_LENGTH_BYTES, json, (size_t)json_bytes, error);
  if (status == STATUS_OK)
    status = safetensors_parse(json, json_bytes, source->bytes, out, error);
  free(json);
  return status;
}

enum status header_read(const struct header_source *source, struct safetensors *out, struct error *error) {
  uint8_t first[SAFETENSORS_LENGTH_BYTES];
  size_t have = source->bytes < sizeof first ? (size_t)source->bytes : sizeof first;
  *out = (struct safetensors){.count = 0};
  enum status status = source->read(source->file, 0, first, have, error);
  if (status != STATUS_OK)
    return status;
  return gguf_is(first, have) ? gguf_header(source, out, error) : safetensors_header(source, first, have, out, error);
}
