#include "message_shape.h"

struct reader {
  const uint8_t *bytes;
  size_t at, length;
  struct error *error;
};

static enum status cut_short(struct reader *reader) {
  return error_set(reader->error, STATUS_PROTOCOL, "the message ends inside a value");
}

static enum status skip(struct reader *reader, uint64_t count) {
  if (count > reader->length - reader->at)
    return cut_short(reader);
  reader->at += (size_t)count;
  return STATUS_OK;
}

/* A big-endian length of `width` bytes. */
static enum status read_length(struct reader *reader, unsigned width, uint64_t *out) {
  size_t start = reader->at;
  enum status status = skip(reader, width);
  if (status != STATUS_OK)
    return status;
  *out = 0;
  for (size_t i = start; i < reader->at; i++)
    *out = *out << 8 | reader->bytes[i];
  return STATUS_OK;
}

/* Passes the first byte of a value, its length and its own bytes. *items: values that it contains. */
static enum status read_header(struct reader *reader, bool *container, uint64_t *items) {
  *container = false;
  *items = 0;
  if (reader->at == reader->length)
    return cut_short(reader);
  uint8_t first = reader->bytes[reader->at++];
  if (first <= 0x7f || first >= 0xe0 || first == 0xc0 || first == 0xc2 || first == 0xc3)
    return STATUS_OK;  /* small integers, nil, booleans */
  if (first <= 0x9f) { /* small maps, then small arrays */
    *container = true;
    *items = (uint64_t)(first & 0x0f) << (first <= 0x8f);
    return STATUS_OK;
  }
  if (first <= 0xbf)
    return skip(reader, first & 0x1f); /* small strings */
  if (first >= 0xca && first <= 0xd3) {
    static const uint8_t widths[] = {4, 8, 1, 2, 4, 8, 1, 2, 4, 8}; /* floats, unsigned, signed */
    return skip(reader, widths[first - 0xca]);
  }
  if (first >= 0xd4 && first <= 0xd8)
    return skip(reader, 1 + (1u << (first - 0xd4))); /* extensions of a fixed size, behind their type */

  enum status status = STATUS_OK;
  uint64_t length = 0;
  switch (first) {
  case 0xc4: /* binary */
  case 0xc5:
  case 0xc6:
    status = read_length(reader, 1u << (first - 0xc4), &length);
    return status == STATUS_OK ? skip(reader, length) : status;
  case 0xc7: /* extensions */
  case 0xc8:
  case 0xc9:
    status = read_length(reader, 1u << (first - 0xc7), &length);
    return status == STATUS_OK ? skip(reader, length + 1) : status;
  case 0xd9: /* strings */
  case 0xda:
  case 0xdb:
    status = read_length(reader, 1u << (first - 0xd9), &length);
    return status == STATUS_OK ? skip(reader, length) : status;
  case 0xdc: /* arrays */
  case 0xdd:
    *container = true;
    return read_length(reader, 2u << (first - 0xdc), items);
  case 0xde: /* maps */
  case 0xdf:
    *container = true;
    status = read_length(reader, 2u << (first - 0xde), items);
    *items *= 2;
    return status;
  default:
    return error_set(reader->error, STATUS_PROTOCOL, "byte 0x%02x is no msgpack value", first);
  }
}

/* Recursion ends with `depth`, which the caller bounds. */
static enum status read_value(struct reader *reader, unsigned depth) {
  bool container;
  uint64_t items;
  enum status status = read_header(reader, &container, &items);
  if (status != STATUS_OK || !container)
    return status;
  if (depth == 0)
    return error_set(reader->error, STATUS_PROTOCOL, "arrays and maps are nested too deep");
  if (items > reader->length - reader->at) /* every value takes a byte at least */
    return cut_short(reader);
  for (uint64_t i = 0; i < items && status == STATUS_OK; i++)
    status = read_value(reader, depth - 1);
  return status;
}

enum status message_shape_value(const uint8_t *bytes, size_t length, unsigned depth, size_t *used,
                                struct error *error) {
  struct reader reader = {.bytes = bytes, .length = length, .error = error};
  enum status status = read_value(&reader, depth);
  *used = reader.at;
  return status;
}

/* Bytes of the well-formed character that `bytes` begin with; 0 where there is none. */
static size_t character_length(const uint8_t *bytes, size_t length) {
  uint8_t first = bytes[0];
  if (first < 0x80)
    return first != 0;
  size_t count = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || count > length)
    return 0;
  for (size_t i = 1; i < count; i++)
    if ((bytes[i] & 0xc0) != 0x80)
      return 0;
  /* No longer form than needed, no surrogates, nothing above U+10FFFF. */
  if ((first == 0xe0 && bytes[1] < 0xa0) || (first == 0xed && bytes[1] > 0x9f) || (first == 0xf0 && bytes[1] < 0x90) ||
      (first == 0xf4 && bytes[1] > 0x8f))
    return 0;
  return count;
}

bool message_shape_text(const char *text, size_t length) {
  const uint8_t *bytes = (const uint8_t *)text;
  for (size_t at = 0, count; at < length; at += count) {
    count = character_length(bytes + at, length - at);
    if (count == 0)
      return false;
  }
  return true;
}
