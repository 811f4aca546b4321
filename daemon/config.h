/* The options of gemmd: defaults, then the file, then the command line. */
#pragma once

#include "../proto/status.h"

#include <stddef.h>
#include <stdint.h>

enum { CONFIG_STRING_BYTES = 256 };

struct config {
#define STRING(name, fallback, summary) char name[CONFIG_STRING_BYTES];
#define WORD(name, fallback, words, summary) char name[CONFIG_STRING_BYTES];
#define NUMBER(name, fallback, low, high, summary) int64_t name;
#include "options.def"
};

void config_defaults(struct config *config);
/* One option by its name ("cpu-threads" and "cpu_threads" are the same). INVALID or NOT_FOUND naming it. */
MUST_CHECK enum status config_set(struct config *config, const char *name, const char *value, struct error *error);
/* Reads a file; the error names path and line. */
MUST_CHECK enum status config_read(struct config *config, const char *path, struct error *error);

/* A row of the table, for --help, for the documentation's test and for passing options on to a child. */
struct config_option {
  const char *name, *summary;
  char fallback[CONFIG_STRING_BYTES];
};
size_t config_option_count(void);
void config_option_at(size_t index, struct config_option *out);
/* The present value as text that config_set takes. */
void config_value(const struct config *config, size_t index, char *out, size_t bytes);
