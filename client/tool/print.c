#include "print.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char *print_bytes(uint64_t bytes, char *out) {
  static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) {
    snprintf(out, PRINT_UNIT_BYTES, "%u B", (unsigned)bytes);
    return out;
  }
  double value = (double)bytes / 1024;
  size_t unit = 0;
  /* 1023.95 would print as 1024.0. */
  for (; value >= 1023.95 && unit + 1 < sizeof units / sizeof *units; unit++)
    value /= 1024;
  snprintf(out, PRINT_UNIT_BYTES, "%.1f %s", value, units[unit]);
  return out;
}

const char *print_duration(uint64_t ns, char *out) {
  const uint64_t second = 1000000000u;
  if (ns < 1000)
    snprintf(out, PRINT_UNIT_BYTES, "%u ns", (unsigned)ns);
  else if (ns < 1000000)
    snprintf(out, PRINT_UNIT_BYTES, "%.1f us", (double)ns / 1e3);
  else if (ns < second)
    snprintf(out, PRINT_UNIT_BYTES, "%.2f ms", (double)ns / 1e6);
  else if (ns < 60 * second)
    snprintf(out, PRINT_UNIT_BYTES, "%.1f s", (double)ns / 1e9);
  else if (ns < 3600 * second)
    snprintf(out, PRINT_UNIT_BYTES, "%u min %u s", (unsigned)(ns / second / 60), (unsigned)(ns / second % 60));
  else if (ns < 24 * 3600 * second)
    snprintf(out, PRINT_UNIT_BYTES, "%u h %u min", (unsigned)(ns / second / 3600), (unsigned)(ns / second / 60 % 60));
  else
    snprintf(out, PRINT_UNIT_BYTES, "%u d %u h", (unsigned)(ns / second / 86400), (unsigned)(ns / second / 3600 % 24));
  return out;
}

/* ---- tables */

void print_table_begin(struct print_table *table, const char *align) {
  *table = (struct print_table){.align = align, .columns = strlen(align)};
}

static void make_harmless(char *text) {
  for (unsigned char *at = (unsigned char *)text; *at != '\0'; at++) {
    if (*at < 0x20 || *at == 0x7f)
      *at = '?';
    else if (at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0) /* the control characters 0x80..0x9f in UTF-8 */
      at[0] = at[1] = '?';
  }
}

void print_cell(struct print_table *table, const char *format, ...) {
  if (table->count == table->room) {
    size_t room = table->room == 0 ? 64 : table->room * 2;
    char **cells = realloc(table->cells, room * sizeof *cells);
    if (cells == NULL) {
      table->failed = true;
      return;
    }
    table->cells = cells;
    table->room = room;
  }
  char *text = NULL;
  va_list arguments;
  va_start(arguments, format);
  int length = vasprintf(&text, format, arguments);
  va_end(arguments);
  if (length < 0) {
    table->failed = true;
    return;
  }
  make_harmless(text);
  table->cells[table->count++] = text;
}

/* Columns of a terminal that a UTF-8 text takes: bytes that continue a character take none. */
static int width_of(const char *text) {
  int width = 0;
  for (; *text != '\0'; text++)
    width += ((unsigned char)*text & 0xc0) != 0x80;
  return width;
}

static int column_width(const struct print_table *table, size_t column) {
  int widest = 0;
  for (size_t i = column; i < table->count; i += table->columns) {
    int width = width_of(table->cells[i]);
    widest = width > widest ? width : widest;
  }
  return widest;
}

static void print_row(const struct print_table *table, size_t row, const int *widths, FILE *out) {
  for (size_t column = 0; column < table->columns; column++) {
    const char *cell = table->cells[row * table->columns + column];
    int pad = widths[column] - width_of(cell);
    bool last = column + 1 == table->columns;
    if (table->align[column] == 'r')
      fprintf(out, "%*s%s%s", pad, "", cell, last ? "\n" : "  ");
    else
      fprintf(out, "%s%*s%s", cell, last ? 0 : pad, "", last ? "\n" : "  ");
  }
}

void print_table_end(struct print_table *table, FILE *out) {
  int *widths = calloc(table->columns, sizeof *widths);
  if (widths == NULL || table->failed) {
    fprintf(stderr, "out of memory: the table is left out\n");
  } else {
    for (size_t column = 0; column < table->columns; column++)
      widths[column] = column_width(table, column);
    for (size_t row = 0; row < table->count / table->columns; row++)
      print_row(table, row, widths, out);
  }
  free(widths);
  for (size_t i = 0; i < table->count; i++)
    free(table->cells[i]);
  free(table->cells);
  *table = (struct print_table){0};
}

/* ---- JSON */

void print_json(FILE *out, json_t *object) {
  if (object == NULL)
    fputs("null", out);
  else
    json_dumpf(object, out, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
  fputc('\n', out);
  json_decref(object);
}

json_t *print_json_text(const char *text) {
  json_t *string = json_string(text);
  if (string != NULL)
    return string;
  char *copy = strdup(text);
  if (copy == NULL)
    return NULL;
  for (unsigned char *at = (unsigned char *)copy; *at != '\0'; at++)
    *at = *at < 0x80 ? *at : '?';
  string = json_string(copy);
  free(copy);
  return string;
}

const char *print_plural(size_t count) {
  return count == 1 ? "" : "s";
}
