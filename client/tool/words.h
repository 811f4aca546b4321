/* The words that command lines and reports use for the library's numbers. */
#pragma once

#include "../gemmclient.h"

#include <stdbool.h>
#include <stddef.h>

struct word {
  const char *text; /* NULL ends the list */
  int number;
};

extern const struct word words_type[];       /* "f32", "f16", "bf16", "int8", "e4m3", "s32" */
extern const struct word words_format[];     /* "int8" and so on, as all of these */
extern const struct word *const words_scale; /* "one", "row" .. */
extern const struct word words_mode[];       /* "private", "all" */
extern const struct word words_method[];     /* "absmax", "least-squares", "ternary" */
extern const struct word words_placement[];  /* "single", "replicas", "split" */

/* "none" for 0 and for a number that has no word. */
const char *word_text(const struct word *words, int number);
/* False where no word matches. */
bool word_number(const struct word *words, const char *text, int *number);
/* "f32, f16 or bf16", for error sentences; cut to `bytes`. */
void word_list(const struct word *words, char *out, size_t bytes);

/* Bytes of one element; 0 for a number that is no type. */
size_t type_bytes(enum gemmd_type type);
