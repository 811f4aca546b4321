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
const struct word words_format[] = {{"int8", GEMMD_FORMAT_INT8},
                                    {"fp8", GEMMD_FORMAT_FP8},
                                    {"int2", GEMMD_FORMAT_INT2},
                                    {"f16", GEMMD_FORMAT_F16},
                                    {"bf16", GEMMD_FORMAT_BF16},
                                    {"int2a8", GEMMD_FORMAT_INT2A8},
                                    {"int4", GEMMD_FORMAT_INT4},
                                    {"int4a8", GEMMD_FORMAT_INT4A8},
                                    {"mxfp4", GEMMD_FORMAT_MXFP4},
                                    {"nvfp4", GEMMD_FORMAT_NVFP4},
                                    {0}};
const struct word words_scale[] = {{"one", GEMMD_SCALE_ONE},
                                   {"row", GEMMD_SCALE_ROW},
                                   {"block", GEMMD_SCALE_BLOCK},
                                   {"group", GEMMD_SCALE_GROUP},
                                   {"group64", GEMMD_SCALE_GROUP64},
                                   {"group32", GEMMD_SCALE_GROUP32},
                                   {"row-bf16", GEMMD_SCALE_ROW_BF16},
                                   {"group-bf16", GEMMD_SCALE_GROUP_BF16},
                                   {"group64-bf16", GEMMD_SCALE_GROUP64_BF16},
                                   {"group32-bf16", GEMMD_SCALE_GROUP32_BF16},
                                   {"row-zeros", GEMMD_SCALE_ROW_ZEROS},
                                   {"group-zeros", GEMMD_SCALE_GROUP_ZEROS},
                                   {"group64-zeros", GEMMD_SCALE_GROUP64_ZEROS},
                                   {"group32-zeros", GEMMD_SCALE_GROUP32_ZEROS},
                                   {"row-bf16-zeros", GEMMD_SCALE_ROW_BF16_ZEROS},
                                   {"group-bf16-zeros", GEMMD_SCALE_GROUP_BF16_ZEROS},
                                   {"group64-bf16-zeros", GEMMD_SCALE_GROUP64_BF16_ZEROS},
                                   {"group32-bf16-zeros", GEMMD_SCALE_GROUP32_BF16_ZEROS},
                                   {"row-zeros-f16", GEMMD_SCALE_ROW_ZEROS_F16},
                                   {"group-zeros-f16", GEMMD_SCALE_GROUP_ZEROS_F16},
                                   {"group64-zeros-f16", GEMMD_SCALE_GROUP64_ZEROS_F16},
                                   {"group32-zeros-f16", GEMMD_SCALE_GROUP32_ZEROS_F16},
                                   {"row-bf16-zeros-f16", GEMMD_SCALE_ROW_BF16_ZEROS_F16},
                                   {"group-bf16-zeros-f16", GEMMD_SCALE_GROUP_BF16_ZEROS_F16},
                                   {"group64-bf16-zeros-f16", GEMMD_SCALE_GROUP64_BF16_ZEROS_F16},
                                   {"group32-bf16-zeros-f16", GEMMD_SCALE_GROUP32_BF16_ZEROS_F16},
                                   {"group16-factors", GEMMD_SCALE_GROUP16_FACTORS},
                                   {0}};
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

const struct format_stored *format_stored(int format) {
  static const struct format_stored each[] = {
      [GEMMD_FORMAT_INT8] = {8, "I8", "F32"},       [GEMMD_FORMAT_FP8] = {8, "F8_E4M3", "F32"},
      [GEMMD_FORMAT_INT2] = {2, "U8", "F16"},       [GEMMD_FORMAT_F16] = {16, "F16", "F32"},
      [GEMMD_FORMAT_BF16] = {16, "BF16", "F32"},    [GEMMD_FORMAT_INT2A8] = {2, "U8", "F16"},
      [GEMMD_FORMAT_INT4] = {4, "U16", "F16"},      [GEMMD_FORMAT_INT4A8] = {4, "U16", "F16"},
      [GEMMD_FORMAT_MXFP4] = {4, "U16", "F8_E8M0"}, [GEMMD_FORMAT_NVFP4] = {4, "U16", "F8_E4M3"}};
  return &each[format];
}

struct scale_stored scale_stored(int scale) {
  const char *word = word_text(words_scale, scale);
  bool blocks = strcmp(word, "block") == 0, groups = strncmp(word, "group", strlen("group")) == 0;
  int group = groups ? atoi(word + strlen("group")) : 0;
  return (struct scale_stored){.group = group > 0          ? group
                                        : blocks || groups ? 128
                                                           : 0,
                               .bf16 = strstr(word, "-bf16") != NULL,
                               .zeros = strstr(word, "-zeros") != NULL,
                               .zeros_f16 = strstr(word, "-zeros-f16") != NULL,
                               .factors = strstr(word, "-factors") != NULL};
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
