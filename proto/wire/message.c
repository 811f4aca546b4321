#include "message.h"

#include "message_shape.h"
#include "message_types.h"

#include <msgpack.h>
#include <stdio.h>
#include <string.h>

enum { ENVELOPE = 0x94 }; /* a msgpack array of four */

/* ---- encoding */

struct writer {
  uint8_t *bytes;
  size_t capacity, length;
  bool full;
};

/* Once full it stays full, so that the packer's results need no look each. */
static int writer_append(void *data, const char *bytes, size_t count) {
  struct writer *writer = data;
  if (writer->full || count > writer->capacity - writer->length) {
    writer->full = true;
    return -1;
  }
  memcpy(writer->bytes + writer->length, bytes, count);
  writer->length += count;
  return 0;
}

static uint32_t list_count(const struct message_field *field, const void *body) {
  uint32_t count;
  memcpy(&count, (const char *)body + field->count_offset, sizeof count);
  return count;
}

/* What a reader would get anyway need not travel. */
static bool worth_writing(const struct message_field *field, const void *body) {
  const char *value = (const char *)body + field->offset;
  if (field->required)
    return true;
  if (field->kind == KIND_LIST)
    return list_count(field, body) > 0;
  if (field->kind == KIND_STR)
    return value[0] != '\0';
  for (size_t i = 0; i < field->size; i++)
    if (value[i] != 0)
      return true;
  return false;
}

static enum status write_body(msgpack_packer *packer, const struct message_type *type, const void *body,
                              struct error *error);

static enum status write_text(msgpack_packer *packer, const struct message_type *type,
                              const struct message_field *field, const char *text, struct error *error) {
  size_t length = strnlen(text, field->size);
  if (length == field->size || !message_shape_text(text, length))
    return error_set(error, STATUS_INVALID, "%s: %s must be UTF-8 text of at most %zu bytes", type->name, field->name,
                     field->size - 1);
  msgpack_pack_str_with_body(packer, text, length);
  return STATUS_OK;
}

static enum status write_list(msgpack_packer *packer, const struct message_type *type,
                              const struct message_field *field, const void *body, struct error *error) {
  uint32_t count = list_count(field, body);
  if (count > field->size)
    return error_set(error, STATUS_INVALID, "%s: %s must have at most %zu items, got %u", type->name, field->name,
                     field->size, count);
  msgpack_pack_array(packer, count);
  const char *item = (const char *)body + field->offset;
  for (uint32_t i = 0; i < count; i++, item += field->item->bytes) {
    enum status status = write_body(packer, field->item, item, error);
    if (status != STATUS_OK)
      return status;
  }
  return STATUS_OK;
}

static enum status write_field(msgpack_packer *packer, const struct message_type *type,
                               const struct message_field *field, const void *body, struct error *error) {
  const void *value = (const char *)body + field->offset;
  msgpack_pack_str_with_body(packer, field->name, strlen(field->name));
  switch (field->kind) {
  case KIND_U32:
    msgpack_pack_uint32(packer, *(const uint32_t *)value);
    return STATUS_OK;
  case KIND_U64:
    msgpack_pack_uint64(packer, *(const uint64_t *)value);
    return STATUS_OK;
  case KIND_I64:
    msgpack_pack_int64(packer, *(const int64_t *)value);
    return STATUS_OK;
  case KIND_BOOL:
    if (*(const bool *)value)
      msgpack_pack_true(packer);
    else
      msgpack_pack_false(packer);
    return STATUS_OK;
  case KIND_STR:
    return write_text(packer, type, field, value, error);
  case KIND_BIN:
    msgpack_pack_bin_with_body(packer, value, field->size);
    return STATUS_OK;
  case KIND_LIST:
    return write_list(packer, type, field, body, error);
  }
  return STATUS_OK;
}

static enum status write_body(msgpack_packer *packer, const struct message_type *type, const void *body,
                              struct error *error) {
  size_t count, written = 0;
  const struct message_field *fields = type->fields(&count);
  for (size_t i = 0; i < count; i++)
    written += worth_writing(&fields[i], body);
  msgpack_pack_map(packer, written);
  enum status status = STATUS_OK;
  for (size_t i = 0; i < count && status == STATUS_OK; i++)
    if (worth_writing(&fields[i], body))
      status = write_field(packer, type, &fields[i], body, error);
  return status;
}

enum status message_encode(const struct message_head *head, const struct message_type *type, const void *body,
                           void *buffer, size_t capacity, size_t *length, struct error *error) {
  struct writer writer = {.bytes = buffer, .capacity = capacity < LIMIT_MESSAGE_BYTES ? capacity : LIMIT_MESSAGE_BYTES};
  msgpack_packer packer;
  msgpack_packer_init(&packer, &writer, writer_append);
  msgpack_pack_array(&packer, 4);
  msgpack_pack_uint32(&packer, (uint32_t)head->kind);
  msgpack_pack_uint32(&packer, head->id);
  msgpack_pack_uint32(&packer, head->code);
  enum status status = write_body(&packer, type, body, error);
  if (status != STATUS_OK)
    return status;
  if (writer.full)
    return error_set(error, STATUS_TOO_LARGE, "%s does not fit into a message of %zu bytes", type->name,
                     writer.capacity);
  *length = writer.length;
  return STATUS_OK;
}

/* ---- decoding */

/* What does not fit the table: PROTOCOL with the field and what it must be. */
static enum status mismatch(const struct message_type *type, const struct message_field *field, const char *must,
                            struct error *error) {
  return error_set(error, STATUS_PROTOCOL, "%s: %s must be %s", type->name, field->name, must);
}

static enum status read_body(const msgpack_object *object, const struct message_type *type, void *out,
                             struct error *error);

static enum status read_integer(const msgpack_object *object, const struct message_type *type,
                                const struct message_field *field, void *out, struct error *error) {
  bool positive = object->type == MSGPACK_OBJECT_POSITIVE_INTEGER;
  uint64_t value = positive ? object->via.u64 : 0;
  switch (field->kind) {
  case KIND_U32:
    if (!positive || value > UINT32_MAX)
      return mismatch(type, field, "an integer of 0..2^32-1", error);
    *(uint32_t *)out = (uint32_t)value;
    return STATUS_OK;
  case KIND_U64:
    if (!positive)
      return mismatch(type, field, "an integer of 0..2^64-1", error);
    *(uint64_t *)out = value;
    return STATUS_OK;
  default:
    if ((!positive && object->type != MSGPACK_OBJECT_NEGATIVE_INTEGER) || value > INT64_MAX)
      return mismatch(type, field, "an integer of -2^63..2^63-1", error);
    *(int64_t *)out = positive ? (int64_t)value : object->via.i64;
    return STATUS_OK;
  }
}

static enum status read_text(const msgpack_object *object, const struct message_type *type,
                             const struct message_field *field, char *out, struct error *error) {
  if (object->type != MSGPACK_OBJECT_STR)
    return mismatch(type, field, "text", error);
  uint32_t length = object->via.str.size;
  if (length >= field->size)
    return error_set(error, STATUS_PROTOCOL, "%s: %s must have at most %zu bytes, got %u", type->name, field->name,
                     field->size - 1, length);
  if (!message_shape_text(object->via.str.ptr, length))
    return mismatch(type, field, "UTF-8 text without NUL", error);
  memcpy(out, object->via.str.ptr, length);
  return STATUS_OK;
}

static enum status read_list(const msgpack_object *object, const struct message_type *type,
                             const struct message_field *field, void *out, struct error *error) {
  if (object->type != MSGPACK_OBJECT_ARRAY)
    return mismatch(type, field, "an array", error);
  uint32_t count = object->via.array.size;
  if (count > field->size)
    return error_set(error, STATUS_PROTOCOL, "%s: %s must have at most %zu items, got %u", type->name, field->name,
                     field->size, count);
  char *item = (char *)out + field->offset;
  for (uint32_t i = 0; i < count; i++, item += field->item->bytes) {
    enum status status = read_body(&object->via.array.ptr[i], field->item, item, error);
    if (status != STATUS_OK)
      return status;
  }
  memcpy((char *)out + field->count_offset, &count, sizeof count);
  return STATUS_OK;
}

static enum status read_field(const msgpack_object *object, const struct message_type *type,
                              const struct message_field *field, void *out, struct error *error) {
  void *value = (char *)out + field->offset;
  switch (field->kind) {
  case KIND_U32:
  case KIND_U64:
  case KIND_I64:
    return read_integer(object, type, field, value, error);
  case KIND_BOOL:
    if (object->type != MSGPACK_OBJECT_BOOLEAN)
      return mismatch(type, field, "true or false", error);
    *(bool *)value = object->via.boolean;
    return STATUS_OK;
  case KIND_STR:
    return read_text(object, type, field, value, error);
  case KIND_BIN:
    if (object->type != MSGPACK_OBJECT_BIN || object->via.bin.size != field->size)
      return error_set(error, STATUS_PROTOCOL, "%s: %s must be %zu bytes", type->name, field->name, field->size);
    memcpy(value, object->via.bin.ptr, field->size);
    return STATUS_OK;
  case KIND_LIST:
    return read_list(object, type, field, out, error);
  }
  return STATUS_OK;
}

/* The row of a key; `count` where there is none. */
static size_t field_find(const struct message_field *fields, size_t count, const msgpack_object_str *key) {
  size_t i = 0;
  while (i < count && (strlen(fields[i].name) != key->size || memcmp(fields[i].name, key->ptr, key->size) != 0))
    i++;
  return i;
}

static enum status read_body(const msgpack_object *object, const struct message_type *type, void *out,
                             struct error *error) {
  size_t count;
  const struct message_field *fields = type->fields(&count);
  if (object->type != MSGPACK_OBJECT_MAP)
    return error_set(error, STATUS_PROTOCOL, "%s must be a map", type->name);
  uint64_t seen = 0;
  for (uint32_t i = 0; i < object->via.map.size; i++) {
    const msgpack_object_kv *pair = &object->via.map.ptr[i];
    if (pair->key.type != MSGPACK_OBJECT_STR)
      return error_set(error, STATUS_PROTOCOL, "%s: keys must be text", type->name);
    size_t row = field_find(fields, count, &pair->key.via.str);
    if (row == count)
      continue;
    if (seen & (uint64_t)1 << row)
      return error_set(error, STATUS_PROTOCOL, "%s: %s is repeated", type->name, fields[row].name);
    seen |= (uint64_t)1 << row;
    enum status status = read_field(&pair->val, type, &fields[row], out, error);
    if (status != STATUS_OK)
      return status;
  }
  for (size_t i = 0; i < count; i++)
    if (fields[i].required && !(seen & (uint64_t)1 << i))
      return error_set(error, STATUS_PROTOCOL, "%s: %s is missing", type->name, fields[i].name);
  return STATUS_OK;
}

/* One integer of the envelope. */
static enum status read_head_number(const uint8_t *bytes, size_t length, uint32_t *out, struct error *error) {
  msgpack_unpacked unpacked;
  msgpack_unpacked_init(&unpacked);
  bool good = msgpack_unpack_next(&unpacked, (const char *)bytes, length, NULL) == MSGPACK_UNPACK_SUCCESS &&
              unpacked.data.type == MSGPACK_OBJECT_POSITIVE_INTEGER && unpacked.data.via.u64 <= UINT32_MAX;
  if (good)
    *out = (uint32_t)unpacked.data.via.u64;
  msgpack_unpacked_destroy(&unpacked);
  return good ? STATUS_OK
              : error_set(error, STATUS_PROTOCOL, "kind, id and code of a message must be integers of 0..2^32-1");
}

enum status message_decode_head(const void *buffer, size_t length, struct message_head *head, struct message_body *body,
                                struct error *error) {
  const uint8_t *bytes = buffer;
  if (length > LIMIT_MESSAGE_BYTES)
    return error_set(error, STATUS_PROTOCOL, "a message must have at most %u bytes, got %zu", LIMIT_MESSAGE_BYTES,
                     length);
  if (length == 0 || bytes[0] != ENVELOPE)
    return error_set(error, STATUS_PROTOCOL, "a message must be an array of 4: kind, id, code, body");
  size_t at = 1, used = 0;
  uint32_t numbers[3];
  enum status status;
  for (int i = 0; i < 3; i++, at += used)
    if ((status = message_shape_value(bytes + at, length - at, 0, &used, error)) != STATUS_OK ||
        (status = read_head_number(bytes + at, used, &numbers[i], error)) != STATUS_OK)
      return status;
  if ((status = message_shape_value(bytes + at, length - at, LIMIT_MESSAGE_DEPTH - 1, &used, error)) != STATUS_OK)
    return status;
  if (at + used != length)
    return error_set(error, STATUS_PROTOCOL, "%zu bytes follow the message", length - at - used);
  if (numbers[0] > MESSAGE_EVENT)
    return error_set(error, STATUS_PROTOCOL, "kind of a message must be 0..2, got %u", numbers[0]);
  uint8_t first = bytes[at];
  if ((first & 0xf0) != 0x80 && first != 0xde && first != 0xdf)
    return error_set(error, STATUS_PROTOCOL, "the body of a message must be a map");
  *head = (struct message_head){(enum message_kind)numbers[0], numbers[1], numbers[2]};
  *body = (struct message_body){bytes + at, used};
  return STATUS_OK;
}

enum status message_decode_body(struct message_body body, const struct message_type *type, void *out,
                                struct error *error) {
  memset(out, 0, type->bytes);
  size_t used = 0;
  enum status status = message_shape_value(body.bytes, body.length, LIMIT_MESSAGE_DEPTH - 1, &used, error);
  if (status != STATUS_OK)
    return status;
  if (used != body.length)
    return error_set(error, STATUS_PROTOCOL, "%zu bytes follow the body", body.length - used);
  msgpack_unpacked unpacked;
  msgpack_unpacked_init(&unpacked);
  switch (msgpack_unpack_next(&unpacked, (const char *)body.bytes, body.length, NULL)) {
  case MSGPACK_UNPACK_SUCCESS:
    status = read_body(&unpacked.data, type, out, error);
    break;
  case MSGPACK_UNPACK_NOMEM_ERROR:
    status = error_set(error, STATUS_NOMEM, "no memory to read a message");
    break;
  default:
    status = error_set(error, STATUS_PROTOCOL, "the body is no msgpack");
  }
  msgpack_unpacked_destroy(&unpacked);
  return status;
}

/* ---- failures */

enum status message_encode_failure(uint32_t id, const struct error *cause, uint32_t retry_ms, void *buffer,
                                   size_t capacity, size_t *length, struct error *error) {
  struct message_head head = {.kind = MESSAGE_REPLY, .id = id, .code = (uint32_t)cause->status};
  struct message_failure failure = {.retry_ms = retry_ms};
  /* An error may quote a path, and a path need not be UTF-8; the reply must go out all the same. */
  snprintf(failure.text, sizeof failure.text, "%s", cause->text);
  for (char *at = failure.text; !message_shape_text(failure.text, strlen(failure.text)) && *at != '\0'; at++)
    if ((unsigned char)*at >= 0x80)
      *at = '?';
  if (cause->field != FIELD_NONE) {
    failure.field = (uint32_t)cause->field;
    failure.value = cause->value;
    failure.low = cause->low;
    failure.high = cause->high;
  }
  return message_encode(&head, &message_failure_type, &failure, buffer, capacity, length, error);
}

void message_decode_failure(uint32_t code, struct message_body body, struct error *out) {
  struct message_failure failure;
  struct error malformed;
  if (message_decode_body(body, &message_failure_type, &failure, &malformed) != STATUS_OK) {
    *out = malformed;
    return;
  }
  *out = (struct error){.status = status_known(code) && code != STATUS_OK ? (enum status)code : STATUS_INTERNAL,
                        .field = (enum field)failure.field,
                        .value = failure.value,
                        .low = failure.low,
                        .high = failure.high};
  snprintf(out->text, sizeof out->text, "%s", failure.text[0] ? failure.text : status_text(out->status));
  if (out->field == FIELD_NONE)
    out->low = 1;
}
