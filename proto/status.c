#include "status.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct status_row {
  const char *name, *text;
  bool retryable;
};

static const struct status_row rows[] = {
#define STATUS(number, name, retryable, text) [number] = {#name, text, retryable},
#include "status.def"
};

static const char *const fields[] = {
#define FIELD(number, name, text) [number] = text,
#include "status.def"
};

static const struct status_row *status_row_of(uint32_t number) {
  if (number >= sizeof rows / sizeof rows[0] || rows[number].name == NULL)
    return NULL;
  return &rows[number];
}

const char *status_name(enum status status) {
  const struct status_row *row = status_row_of((uint32_t)status);
  return row ? row->name : "UNKNOWN";
}

const char *status_text(enum status status) {
  const struct status_row *row = status_row_of((uint32_t)status);
  return row ? row->text : "unknown status";
}

bool status_retryable(enum status status) {
  const struct status_row *row = status_row_of((uint32_t)status);
  return row && row->retryable;
}

bool status_known(uint32_t number) {
  return status_row_of(number) != NULL;
}

const char *field_text(enum field field) {
  uint32_t number = (uint32_t)field;
  return number < sizeof fields / sizeof fields[0] && fields[number] ? fields[number] : "";
}

/* A sentence that was cut must not end inside a UTF-8 character: it travels as text. */
static void cut_whole(char *text, size_t length) {
  size_t start = length;
  while (start > 0 && ((unsigned char)text[start - 1] & 0xc0) == 0x80)
    start--;
  if (start == 0)
    return;
  unsigned char first = (unsigned char)text[--start];
  size_t width = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
  if (start + width > length)
    text[start] = '\0';
}

enum status error_set(struct error *error, enum status status, const char *format, ...) {
  va_list arguments;
  char text[ERROR_TEXT_BYTES]; /* an argument may be error->text itself */
  va_start(arguments, format);
  int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (length <= 0)
    snprintf(text, sizeof text, "%s", status_text(status));
  else if ((size_t)length >= sizeof text)
    cut_whole(text, sizeof text - 1);
  *error = (struct error){.status = status, .field = FIELD_NONE, .low = 1, .high = 0};
  memcpy(error->text, text, sizeof text);
  return status;
}

enum status error_field(struct error *error, enum status status, enum field field, int64_t value, int64_t low,
                        int64_t high) {
  *error = (struct error){.status = status, .field = field, .value = value, .low = low, .high = high};
  error_compose(error);
  return status;
}

void error_compose(struct error *error) {
  const char *field = field_text(error->field);
  char *text = error->text;
  size_t size = sizeof error->text;
  if (field[0] == '\0')
    snprintf(text, size, "%s", status_text(error->status));
  else if (error->low == error->high)
    snprintf(text, size, "%s must be %" PRId64 ", got %" PRId64, field, error->low, error->value);
  else if (error->low < error->high)
    snprintf(text, size, "%s must be %" PRId64 "..%" PRId64 ", got %" PRId64, field, error->low, error->high,
             error->value);
  else if (error->high == 0 && error->low > 1)
    snprintf(text, size, "%s must be a multiple of %" PRId64 ", got %" PRId64, field, error->low, error->value);
  else
    snprintf(text, size, "%s %" PRId64 ": %s", field, error->value, status_text(error->status));
}
