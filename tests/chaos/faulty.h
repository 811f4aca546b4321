/* When libraries that fail do so: once for each time that a test makes the file that $GEMMD_FAULTY names. */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FAULTY_WORD = 16 };

/* Who takes the file away is who does what it says. `only`: no other word is taken; NULL: any. */
static inline bool faulty_take(const char *only, char word[FAULTY_WORD]) {
  const char *path = getenv("GEMMD_FAULTY");
  FILE *file = path != NULL ? fopen(path, "r") : NULL;
  if (file == NULL)
    return false;
  bool there = fgets(word, FAULTY_WORD, file) != NULL && (only == NULL || strcmp(word, only) == 0) && unlink(path) == 0;
  fclose(file);
  return there;
}
