#include "words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct word words_type[] = {{"f32", GEMMD_F32},
                                  {"f16", GEMMD_F16},
                                  {"bf16", GEMMD_BF16},
                                  {"int8", GEMMD_INT8},
                                  {"e4m3", GEMMD_E4M3},
                                  {"s32", GEMMD_S32},
                                  {0}};
const struct word words_format[] = {
#define FORMAT(number, name, word, ...) {word, GEMMD_FORMAT_##name},
#include "../../proto/formats.def"
    {0}};
#define GEMMD_SCALE_NONE GEMMD_SCALE_DEFAULT
static const struct word scales[] = {
#define SCALE(number, name, word, ...) {word, GEMMD_SCALE_##name},
#include "../../proto/formats.def"
    {0}};
const struct word *const words_scale = &scales[1]; /* without "none" */
const struct word words_method[] = {{"absmax", GEMMD_METHOD_ABSMAX},
                                    {"least-squares", GEMMD_METHOD_LEAST_SQUARES},
                                    {"ternary", GEMMD_METHOD_TERNARY},
                                    {0}};

const struct word words_placement[] = {
    {"single", GEMMD_PLACEMENT_SINGLE}, {"replicas", GEMMD_PLACEMENT_REPLICAS}, {"split", GEMMD_PLACEMENT_SPLIT}, {0}};

const struct word words_mode[] = {{"private", GEMMD_MODE_PRIVATE}, {"all", GEMMD_MODE_ALL}, {0}};

const char *word_text(const struct word *words, int number) {
  for (; words->text != NULL; words++) {
    if (words->number == number)
      return words->text;
  }
  return "none";
}

bool word_number(const struct word *words, const char *text, int *number) {
  for (; words->text != NULL; words++) {
    if (strcmp(words->text, text) == 0) {
      *number = words->number;
      return true;
    }
  }
  return false;
}

void word_list(const struct word *words, char *out, size_t bytes) {
  size_t used = 0;
  out[0] = '\0';
  for (const struct word *word = words; word->text != NULL && used < bytes; word++) {
    const char *joint = word == words ? "" : word[1].text == NULL ? " or " : ", ";
    used += (size_t)snprintf(out + used, bytes - used, "%s%s", joint, word->text);
  }
}

size_t type_bytes(enum gemmd_type type) {
  switch (type) {
  case GEMMD_F32:
  case GEMMD_S32:
    return 4;
  case GEMMD_F16:
  case GEMMD_BF16:
    return 2;
  case GEMMD_INT8:
  case GEMMD_E4M3:
    return 1;
  default:
    return 0;
  }
}
