/* Aligned text for people, JSON for programs. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define PRINT_UNIT_BYTES 32

/* "16.0 MiB", "512 B"; into `out` of PRINT_UNIT_BYTES, which is returned. */
const char *print_bytes(uint64_t bytes, char *out);
/* "850 ns", "23.4 us", "1.52 ms", "3.1 s", "2 h 5 min", "3 d 4 h". */
const char *print_duration(uint64_t ns, char *out);

/* A table whose columns are as wide as their widest cell. */
struct print_table {
  const char *align; /* one letter a column: 'l' or 'r' */
  char **cells;      /* owned; row by row */
  size_t columns, count, room;
  bool failed; /* out of memory: some cells are missing */
};

/* `align` stays the caller's and outlives the table. */
void print_table_begin(struct print_table *table, const char *align);
/* Adds the next cell; characters that a terminal would act on become '?'. */
void print_cell(struct print_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Writes the table and frees it. */
void print_table_end(struct print_table *table, FILE *out);

/* Writes an object and a newline; frees it. NULL (out of memory) writes "null". */
void print_json(FILE *out, json_t *object);
/* A JSON string of any bytes: those that are no UTF-8 become '?'. */
json_t *print_json_text(const char *text);

/* What stands behind a noun of which there are so many: "" or "s". */
const char *print_plural(size_t count);
