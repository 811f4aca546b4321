#include "mix.h"

#include <stdlib.h>
#include <string.h>

enum { M_MOST = 1 << 20 };

bool mix_parse_weights(const struct tool_call *call, const char *text, struct mix *mix) {
  for (const char *end; *text != '\0'; text = *end == ',' ? end + 1 : end) {
    end = strchrnul(text, ',');
    size_t length = (size_t)(end - text);
    if (mix->weight_count == MIX_MOST || length == 0 || length >= sizeof mix->names[0]) {
      tool_fail(call, TOOL_USAGE, "--weight takes 1..%d names of 1..255 bytes, with commas between", MIX_MOST);
      return false;
    }
    memcpy(mix->names[mix->weight_count], text, length);
    mix->names[mix->weight_count++][length] = '\0';
  }
  return true;
}

static const struct {
  const char *word;
  enum gemmd_activation activation;
  bool gated;
} activations[] = {
    {"none", GEMMD_ACTIVATION_NONE, false},
    {"relu", GEMMD_RELU, false},
    {"gelu", GEMMD_GELU, false},
    {"silu", GEMMD_SILU, false},
    {"reglu", GEMMD_RELU, true},
    {"geglu", GEMMD_GELU, true},
    {"swiglu", GEMMD_SILU, true},
};
enum { ACTIVATIONS = sizeof activations / sizeof *activations };

static int find_activation(const char *text, size_t length) {
  for (int i = 0; i < ACTIVATIONS; i++)
    if (strlen(activations[i].word) == length && strncmp(activations[i].word, text, length) == 0)
      return i;
  return -1;
}

bool mix_parse_plan(const struct tool_call *call, const char *text, struct mix *mix) {
  int count = 0;
  for (const char *end; *text != '\0'; text = *end == ',' ? end + 1 : end) {
    end = strchrnul(text, ',');
    int found = find_activation(text, (size_t)(end - text));
    if (found < 0 || count == mix->weight_count) {
      tool_fail(call, TOOL_USAGE,
                "--plan takes none, relu, gelu, silu, reglu, geglu or swiglu for each of the %d weights, got %s",
                mix->weight_count, text);
      return false;
    }
    mix->steps[count].activation = activations[found].activation;
    mix->steps[count++].gated = activations[found].gated;
  }
  mix->plan = true;
  return true;
}

const char *mix_step_word(const struct mix *mix, int step) {
  for (int i = 0; i < ACTIVATIONS; i++)
    if (activations[i].activation == mix->steps[step].activation && activations[i].gated == mix->steps[step].gated)
      return activations[i].word;
  return NULL;
}

/* "M" or "M:SHARE" at *text; moves behind it and the comma. */
static bool parse_one(const char **text, double *m, double *share) {
  char *end;
  *share = 1;
  *m = strtod(*text, &end);
  if (end == *text || !(*m >= 1 && *m <= M_MOST) || *m != (double)(uint32_t)*m)
    return false;
  if (*end == ':') {
    const char *begin = end + 1;
    *share = strtod(begin, &end);
    if (end == begin || !(*share > 0 && *share <= 1e9))
      return false;
  }
  if (*end != '\0' && *end != ',')
    return false;
  *text = *end == ',' ? end + 1 : end;
  return true;
}

bool mix_parse_rows(const struct tool_call *call, const char *text, struct mix *mix) {
  double sum = 0, m, share;
  const char *at = text;
  do {
    if (mix->rows_count == MIX_MOST || !parse_one(&at, &m, &share)) {
      tool_fail(call, TOOL_USAGE, "--m must be 1..%d, or a list as 1:8,16:1 of at most %d, got %s", M_MOST, MIX_MOST,
                text);
      return false;
    }
    sum += share;
    mix->rows[mix->rows_count] = (uint32_t)m;
    mix->shares[mix->rows_count++] = sum;
    mix->rows_most = m > mix->rows_most ? (uint32_t)m : mix->rows_most;
  } while (*at != '\0');
  for (int i = 0; i < mix->rows_count; i++)
    mix->shares[i] /= sum;
  return true;
}

int mix_weight(const struct mix *mix, double random) {
  int index = (int)(random * mix->weight_count);
  return index < mix->weight_count ? index : mix->weight_count - 1;
}

uint32_t mix_rows(const struct mix *mix, double random) {
  int i = 0;
  while (i < mix->rows_count - 1 && random >= mix->shares[i])
    i++;
  return mix->rows[i];
}
