#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum option_kind { OPTION_STRING, OPTION_NUMBER };

struct option_row {
  const char *name, *summary, *fallback;
  const char *words; /* that a string may be; NULL: anything */
  enum option_kind kind;
  size_t offset;
  int64_t number, low, high;
};

static const struct option_row option_rows[] = {
#define WORD(id, value, list, text)                                                                                    \
  {.name = #id,                                                                                                        \
   .summary = text,                                                                                                    \
   .fallback = value,                                                                                                  \
   .words = list,                                                                                                      \
   .kind = OPTION_STRING,                                                                                              \
   .offset = offsetof(struct config, id)},
#define STRING(id, value, text) WORD(id, value, NULL, text)
#define NUMBER(id, value, least, most, text)                                                                           \
  {.name = #id,                                                                                                        \
   .summary = text,                                                                                                    \
   .fallback = #value,                                                                                                 \
   .kind = OPTION_NUMBER,                                                                                              \
   .offset = offsetof(struct config, id),                                                                              \
   .number = value,                                                                                                    \
   .low = least,                                                                                                       \
   .high = most},
#include "options.def"
};

/* More than every option, commented, a hundred times; a device that never ends gets no further. */
enum { LINES_MOST = 10000 };
enum { OPTION_COUNT = sizeof option_rows / sizeof *option_rows };

static char *string_of(struct config *config, const struct option_row *row) {
  return (char *)config + row->offset;
}

static int64_t *number_of(struct config *config, const struct option_row *row) {
  return (int64_t *)(void *)((char *)config + row->offset);
}

void config_defaults(struct config *config) {
  memset(config, 0, sizeof *config);
  for (size_t i = 0; i < OPTION_COUNT; i++) {
    const struct option_row *row = &option_rows[i];
    if (row->kind == OPTION_NUMBER)
      *number_of(config, row) = row->number;
    else
      memcpy(string_of(config, row), row->fallback, strlen(row->fallback) + 1);
  }
}

static bool same_name(const char *a, const char *b) {
  for (; *a != '\0' && *b != '\0'; a++, b++)
    if ((*a == '-' ? '_' : *a) != (*b == '-' ? '_' : *b))
      return false;
  return *a == *b;
}

static const struct option_row *find_row(const char *name) {
  for (size_t i = 0; i < OPTION_COUNT; i++)
    if (same_name(name, option_rows[i].name))
      return &option_rows[i];
  return NULL;
}

/* "12", "0660" (octal), "64M". False for anything else. */
static bool parse_number(const char *text, int64_t *out) {
  const char *digits = *text == '-' ? text + 1 : text;
  if (!isdigit((unsigned char)*digits))
    return false;
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, *digits == '0' ? 8 : 10);
  if (errno != 0)
    return false;
  int64_t unit = 1;
  switch (*end) {
  case 'K':
  case 'k':
    unit = (int64_t)1 << 10;
    break;
  case 'M':
  case 'm':
    unit = (int64_t)1 << 20;
    break;
  case 'G':
  case 'g':
    unit = (int64_t)1 << 30;
    break;
  default:
    break;
  }
  if (unit != 1)
    end++;
  int64_t product;
  if (*end != '\0' || __builtin_mul_overflow((int64_t)value, unit, &product))
    return false;
  *out = product;
  return true;
}

/* Of "one, two, three". */
static bool is_word(const char *words, const char *value) {
  size_t length = strlen(value);
  for (const char *at = words; *at != '\0'; at += strspn(at, ", ")) {
    size_t word = strcspn(at, ",");
    if (word == length && memcmp(at, value, length) == 0)
      return true;
    at += word;
  }
  return false;
}

enum status config_set(struct config *config, const char *name, const char *value, struct error *error) {
  const struct option_row *row = find_row(name);
  if (row == NULL)
    return error_set(error, STATUS_NOT_FOUND, "unknown option \"%.64s\"", name);
  if (row->kind == OPTION_STRING) {
    size_t length = strlen(value);
    if (length >= CONFIG_STRING_BYTES)
      return error_set(error, STATUS_INVALID, "%s may have %d bytes, got %zu", row->name, CONFIG_STRING_BYTES - 1,
                       length);
    if (row->words != NULL && !is_word(row->words, value))
      return error_set(error, STATUS_INVALID, "%s must be one of %s, got \"%.64s\"", row->name, row->words, value);
    memcpy(string_of(config, row), value, length + 1);
    return STATUS_OK;
  }
  int64_t number;
  if (!parse_number(value, &number))
    return error_set(error, STATUS_INVALID, "%s must be an integer, got \"%.64s\"", row->name, value);
  if (number < row->low || number > row->high)
    return error_set(error, STATUS_INVALID, "%s must be %lld..%lld, got %lld", row->name, (long long)row->low,
                     (long long)row->high, (long long)number);
  *number_of(config, row) = number;
  return STATUS_OK;
}

/* ---- the file */

static char *trim(char *text) {
  char *end = text + strlen(text);
  while (end > text && isspace((unsigned char)end[-1]))
    end--;
  *end = '\0';
  return text + strspn(text, " \t");
}

/* Takes "name = value" or "name: value", where the value is the rest of the line; nothing of an empty line or a
 * comment. *sections: there was a "[section]". */
static enum status take_line(struct config *config, char *line, bool *sections, struct error *error) {
  char *name = trim(line), *value = name + strcspn(name, "=:");
  if (*name == '\0' || *name == '#' || *name == ';')
    return STATUS_OK;
  if (*name == '[' && strchr(name, ']') != NULL) {
    *sections = true;
    return STATUS_OK;
  }
  if (*value == '\0')
    return error_set(error, STATUS_INVALID, "not of the form name = value");
  if (*sections)
    return error_set(error, STATUS_INVALID, "sections are not used here");
  *value++ = '\0';
  return config_set(config, trim(name), trim(value), error);
}

enum status config_read(struct config *config, const char *path, struct error *error) {
  char line[512];
  bool sections = false;
  enum status status = STATUS_OK;
  FILE *file = fopen(path, "re");
  if (file == NULL)
    return error_set(error, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_SYSTEM, "%.128s: %s", path, strerror(errno));
  for (int number = 1; status == STATUS_OK && fgets(line, sizeof line, file) != NULL; number++) {
    struct error why;
    size_t length = strlen(line);
    bool whole = length > 0 && (length < sizeof line - 1 || line[length - 1] == '\n');
    status = number > LINES_MOST ? error_set(&why, STATUS_INVALID, "more lines than options can need")
             : whole             ? take_line(config, line, &sections, &why)
                                 : error_set(&why, STATUS_INVALID, "the line is too long, or binary");
    if (status != STATUS_OK)
      status = error_set(error, STATUS_INVALID, "%.100s:%d: %.120s", path, number, why.text);
  }
  if (status == STATUS_OK && ferror(file))
    status = error_set(error, STATUS_SYSTEM, "%.128s: cannot be read", path);
  fclose(file);
  return status;
}

/* ---- the table */

size_t config_option_count(void) {
  return OPTION_COUNT;
}

void config_option_at(size_t index, struct config_option *out) {
  const struct option_row *row = &option_rows[index];
  out->name = row->name;
  out->summary = row->summary;
  snprintf(out->fallback, sizeof out->fallback, "%s", row->fallback);
}

void config_value(const struct config *config, size_t index, char *out, size_t bytes) {
  const struct option_row *row = &option_rows[index];
  if (row->kind == OPTION_NUMBER)
    snprintf(out, bytes, "%lld", (long long)*number_of((struct config *)config, row));
  else
    snprintf(out, bytes, "%s", string_of((struct config *)config, row));
}
