#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
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

struct reading {
  FILE *file;
  struct config *config;
  const char *path;
  int line;
  char text[512]; /* the line itself */
  bool failed;    /* *error holds the first failure */
  struct error *error;
};

static void fail_at(struct reading *reading, const char *why) {
  if (reading->failed)
    return;
  reading->failed = true;
  (void)error_set(reading->error, STATUS_INVALID, "%.100s:%d: %.120s", reading->path, reading->line, why);
}

/* What libinih has to see of a line: an option's name and what separates it from the value, which may have more bytes
 * than there is room for; of a comment nothing. */
static size_t head_length(const char *begin) {
  size_t name = strcspn(begin, "=:");
  return *begin == '#' || *begin == ';' ? 0 : *begin == '[' || begin[name] == '\0' ? strlen(begin) : name + 1;
}

/* Hands lines to libinih without their indentation, which it would take for the continuation of a value, and counts
 * them; a line that does not fit is refused instead of being split. */
static char *read_line(char *text, int bytes, void *opaque) {
  struct reading *reading = opaque;
  char *line = reading->text;
  const size_t room = sizeof reading->text;
  if (reading->failed || fgets(line, (int)room, reading->file) == NULL)
    return NULL;
  reading->line++;
  char *begin = line + strspn(line, " \t");
  size_t length = head_length(begin);
  bool whole = strlen(line) < room - 1 || line[room - 2] == '\n';
  if (!whole || length >= (size_t)bytes) {
    fail_at(reading, "the line is too long");
    return NULL;
  }
  memcpy(text, begin, length);
  text[length] = '\0';
  return text;
}

/* The line's, whole: libinih takes what stands behind " ;" for a comment, and tune_pins has several parts. */
static const char *value_of(char *line) {
  char *value = line + strcspn(line, "=:"), *end = value + strlen(value);
  while (end > value && isspace((unsigned char)end[-1]))
    end--;
  *end = '\0';
  value += strspn(value, "=:") != 0;
  return value + strspn(value, " \t");
}

static int take_option(void *opaque, const char *section, const char *name, const char *cut) {
  struct reading *reading = opaque;
  struct error error;
  (void)cut;
  if (reading->failed)
    return 0;
  if (*section != '\0')
    fail_at(reading, "sections are not used here");
  else if (config_set(reading->config, name, value_of(reading->text), &error) != STATUS_OK)
    fail_at(reading, error.text);
  return !reading->failed;
}

enum status config_read(struct config *config, const char *path, struct error *error) {
  FILE *file = fopen(path, "re");
  if (file == NULL)
    return error_set(error, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_SYSTEM, "%.128s: %s", path, strerror(errno));
  struct reading reading = {.file = file, .config = config, .path = path, .error = error};
  int bad_line = ini_parse_stream(read_line, &reading, take_option, &reading);
  if (!reading.failed && ferror(file)) {
    reading.failed = true;
    (void)error_set(error, STATUS_SYSTEM, "%.128s: cannot be read", path);
  }
  fclose(file);
  if (reading.failed)
    return error->status;
  if (bad_line != 0)
    return error_set(error, STATUS_INVALID, "%.128s:%d: not of the form name = value", path, bad_line);
  return STATUS_OK;
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
