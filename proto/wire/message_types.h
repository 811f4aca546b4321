/* The bodies of messages, made from messages.def: structs, and how they are laid out in memory and on the wire. */
#pragma once

#include "../limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Who may see and open a weight, besides its owner and admins. */
enum message_mode {
  MODE_DEFAULT = 0, /* what the name has already; else ALL where an admin loads it, PRIVATE where not */
  MODE_PRIVATE = 1, /* nobody */
  MODE_ALL = 2,     /* every user; only admins may ask for it */
};

/* What a handle of CUDA's IPC stands for. The numbers travel. */
enum message_ipc { MESSAGE_IPC_MEMORY = 1, MESSAGE_IPC_EVENT = 2 };

enum message_placement { PLACEMENT_SINGLE = 0, PLACEMENT_REPLICAS = 1, PLACEMENT_SPLIT = 2 };

/* ---- layouts, for message.c */

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

/* ---- bodies */

/* struct message_<name> and message_<name>_type for every row of messages.def. */
/* clang-format off */
#define MESSAGE(name) struct message_##name {
#define END(name) }; extern const struct message_type message_##name##_type;
#define U32(field, presence) uint32_t field;
#define U64(field, presence) uint64_t field;
#define I64(field, presence) int64_t field;
#define BOOL(field, presence) bool field;
#define STR(field, bytes, presence) char field[bytes];
#define BIN(field, bytes, presence) uint8_t field[bytes];
#define LIST(field, name, most, presence) uint32_t field##_count; struct message_##name field[most];
#include "messages.def"
/* clang-format on */
