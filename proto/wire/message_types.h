/* How bodies are laid out: rows of messages.def as data. For message.c alone. */
#ifndef PROTO_WIRE_MESSAGE_TYPES_H
#define PROTO_WIRE_MESSAGE_TYPES_H

#include "message.h"

enum field_kind { KIND_U32, KIND_U64, KIND_I64, KIND_BOOL, KIND_STR, KIND_BIN, KIND_LIST };

struct message_field {
  const char *name;
  enum field_kind kind;
  bool required;
  size_t offset;                   /* in the struct */
  size_t size;                     /* STR, BIN: bytes; LIST: most items */
  size_t count_offset;             /* LIST: of its uint32_t count */
  const struct message_type *item; /* LIST */
};

struct message_type {
  const char *name;
  const struct message_field *(*fields)(size_t *count);
  size_t bytes; /* of the struct */
};

#endif
