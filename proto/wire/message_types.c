#include "message_types.h"

#define PRESENCE_REQUIRED true
#define PRESENCE_OPTIONAL false

/* clang-format off */
/* A function a body, because its rows need a name for the struct that they are in. */
#define MESSAGE(body)                                                                                                  \
  static const struct message_field *fields_of_##body(size_t *count) {                                                 \
    typedef struct message_##body self;                                                                                \
    static const struct message_field rows[] = {
#define END(body)                                                                                                      \
    };                                                                                                                 \
    _Static_assert(sizeof rows / sizeof rows[0] <= 64, "the decoder marks fields in 64 bits");                         \
    *count = sizeof rows / sizeof rows[0];                                                                             \
    return rows;                                                                                                       \
  }                                                                                                                    \
  const struct message_type message_##body##_type = {#body, fields_of_##body, sizeof(struct message_##body)};
/* clang-format on */
#define ROW(field, row_kind, presence, ...)                                                                            \
  {.name = #field, .kind = row_kind, .required = PRESENCE_##presence, .offset = offsetof(self, field), __VA_ARGS__},
#define U32(field, presence) ROW(field, KIND_U32, presence, .size = sizeof(uint32_t))
#define U64(field, presence) ROW(field, KIND_U64, presence, .size = sizeof(uint64_t))
#define I64(field, presence) ROW(field, KIND_I64, presence, .size = sizeof(int64_t))
#define BOOL(field, presence) ROW(field, KIND_BOOL, presence, .size = sizeof(bool))
#define STR(field, bytes, presence) ROW(field, KIND_STR, presence, .size = bytes)
#define BIN(field, bytes, presence) ROW(field, KIND_BIN, presence, .size = bytes)
#define LIST(field, body, most, presence)                                                                              \
  ROW(field, KIND_LIST, presence, .size = most, .count_offset = offsetof(self, field##_count),                         \
      .item = &message_##body##_type)
#include "messages.def"
