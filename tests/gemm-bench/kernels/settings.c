#include "settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The items of "a,b,c", one a call: false at the end or where there are too many. */
static bool next_item(const char **list, char *out, size_t room) {
  size_t length = strcspn(*list, ",");
  if (length == 0 || length >= room) {
    return false;
  }
  memcpy(out, *list, length);
  out[length] = 0;
  *list += length + ((*list)[length] == ',');
  return true;
}

static bool parse_number(const char *text, int64_t *out, const char **end) {
  char *stop;
  long long value = strtoll(text, &stop, 10);
  *out = value;
  *end = stop;
  return stop != text && value >= 1 && value <= 1 << 24;
}

static bool parse_case(const struct tool_call *call, const char *formats, const char *shapes, const char *m,
                       struct cases *out) {
  const char *end;
  char item[32];
  *out = (struct cases){0};
  while (out->format_count < SETTINGS_ITEMS && next_item(&formats, item, sizeof(item))) {
    if (!gemm_format_parse(item, &out->formats[out->format_count++])) {
      return tool_fail(call, TOOL_USAGE, "--formats: %s is no format", item) == TOOL_OK;
    }
  }
  while (out->shape_count < SETTINGS_ITEMS && next_item(&shapes, item, sizeof(item))) {
    int i = out->shape_count++;
    if (!parse_number(item, &out->n[i], &end) || *end != 'x' || !parse_number(end + 1, &out->k[i], &end) || *end != 0) {
      return tool_fail(call, TOOL_USAGE, "--shapes: %s is no NxK of 1..16777216", item) == TOOL_OK;
    }
  }
  while (out->m_count < SETTINGS_ITEMS && next_item(&m, item, sizeof(item))) {
    if (!parse_number(item, &out->m[out->m_count++], &end) || *end != 0) {
      return tool_fail(call, TOOL_USAGE, "--m: %s is no number of 1..16777216", item) == TOOL_OK;
    }
  }
  if (*formats != 0 || *shapes != 0 || *m != 0 || out->format_count * out->shape_count * out->m_count == 0) {
    return tool_fail(call, TOOL_USAGE, "a list has 1 to %d items, none of them empty", SETTINGS_ITEMS) == TOOL_OK;
  }
  return true;
}

/* Lines of three lists each: formats, shapes, M. What stands behind # is for people. */
static bool parse_file(const struct tool_call *call, const char *path, struct settings *settings) {
  FILE *file = fopen(path, "r");
  char line[1024], formats[256], shapes[512], m[256];
  bool ok = true;
  if (file == NULL) {
    return tool_fail(call, TOOL_USAGE, "--file: %s: %s", path, strerror(errno)) == TOOL_OK;
  }
  while (ok && fgets(line, sizeof(line), file) != NULL) {
    line[strcspn(line, "#\n")] = 0;
    int words = sscanf(line, "%255s %511s %255s", formats, shapes, m);
    if (words < 1) {
      continue;
    }
    if (words != 3 || settings->case_count == SETTINGS_CASES) {
      ok = tool_fail(call, TOOL_USAGE, "--file: %s: up to %d lines of formats, shapes and M, got: %s", path,
                     SETTINGS_CASES, line) == TOOL_OK;
    } else {
      ok = parse_case(call, formats, shapes, m, &settings->cases[settings->case_count++]);
    }
  }
  fclose(file);
  if (ok && settings->case_count == 0) {
    return tool_fail(call, TOOL_USAGE, "--file: %s: there is nothing to measure in it", path) == TOOL_OK;
  }
  return ok;
}

static bool parse_cases(const struct tool_call *call, struct settings *settings) {
  const char *formats = tool_value(call, "formats"), *shapes = tool_value(call, "shapes"), *m = tool_value(call, "m");
  const char *path = tool_value(call, "file");
  if (path != NULL && (formats != NULL || shapes != NULL || m != NULL)) {
    return tool_fail(call, TOOL_USAGE, "--file takes the place of --formats, --shapes and --m") == TOOL_OK;
  }
  if (path != NULL) {
    return parse_file(call, path, settings);
  }
  settings->case_count = 1;
  return parse_case(call, formats != NULL ? formats : "int8,fp8,int2,int2a8,f16,bf16",
                    shapes != NULL ? shapes : "4096x4096,11008x4096,1536x384", m != NULL ? m : "1,8,64,512",
                    &settings->cases[0]);
}

static const struct word kernel_words[] = {
    {"own", KERNEL_OWN}, {"tuned", KERNEL_TUNED}, {"all", KERNEL_ALL}, {NULL, 0}};

static const struct word clock_words[] = {{"wall", false}, {"cpu", true}, {NULL, 0}};

bool settings_parse(const struct tool_call *call, struct settings *settings) {
  int64_t rounds, burst, cold, threads, top;
  double skew;
  int x_type, y_type, scale, kernel, processor_time;
  bool cuda = strcmp(settings->ops->name, "cuda") == 0;
  if (!tool_integer(call, "rounds", 1, SETTINGS_ROUNDS, 7, &rounds) ||
      !tool_integer(call, "burst-ms", 1, 10000, cuda ? 2 : 40, &burst) ||
      !tool_integer(call, "cold-mib", 0, 65536, cuda ? 256 : 160, &cold) ||
      !tool_integer(call, "threads", 0, 256, 0, &threads) ||
      !tool_integer(call, "experts", 1, SETTINGS_EXPERTS, 0, &settings->experts) ||
      !tool_integer(call, "top", 1, SETTINGS_EXPERTS, 1, &top) || !tool_number(call, "zipf", 0, 8, 0, &skew) ||
      !tool_word(call, "x-type", words_type, 0, &x_type) || !tool_word(call, "y-type", words_type, 0, &y_type) ||
      !tool_word(call, "scale", words_scale, 0, &scale) ||
      !tool_word(call, "clock", clock_words, false, &processor_time) ||
      !tool_word(call, "kernel", kernel_words, KERNEL_OWN, &kernel) || !parse_cases(call, settings)) {
    return false;
  }
  settings->peer = tool_value(call, "peer");
  settings->rounds = (int)rounds;
  settings->burst_ns = (uint64_t)burst * 1000000u;
  settings->cold_bytes = (uint64_t)cold << 20;
  settings->config.threads = (int)threads;
  settings->x_type = (enum gemm_type)x_type;
  settings->y_type = (enum gemm_type)y_type;
  settings->scale = (enum gemm_scale)scale;
  settings->kernel = (enum settings_kernel)kernel;
  settings->family = tool_value(call, "family");
  settings->dependent = tool_value(call, "dependent") != NULL;
  settings->quantizer = tool_value(call, "quantizer") != NULL;
  settings->bias = tool_value(call, "bias") != NULL;
  if (settings->bias && !cuda) {
    settings->peer = "none"; /* the libraries there are asked for none */
  }
  settings->plot = tool_value(call, "plot");
  settings->top = settings->experts > 0 ? top : 0;
  settings->skew = skew;
  settings->sorted = tool_value(call, "sorted") != NULL;
  if (settings->top > settings->experts) {
    return tool_fail(call, TOOL_USAGE, "--top is at most what --experts is") == TOOL_OK;
  }
  settings->processor_time = processor_time;
  if (settings->processor_time && (cuda || threads != 1 || settings->experts > 0)) {
    return tool_fail(call, TOOL_USAGE, "--clock cpu is of one thread: cpu backend, --threads 1, no experts") == TOOL_OK;
  }
  if (settings->sorted && (!cuda || settings->experts == 0)) {
    return tool_fail(call, TOOL_USAGE, "--sorted is of --experts on the cuda backend") == TOOL_OK;
  }
  if (!cuda && (settings->kernel != KERNEL_OWN || settings->family || settings->dependent || settings->quantizer ||
                settings->plot)) {
    return tool_fail(call, TOOL_USAGE,
                     "--kernel, --family, --dependent, --quantizer and --plot are for the cuda backend") == TOOL_OK;
  }
  return true;
}

enum gemm_scale settings_scale(const struct settings *settings, enum gemm_format format) {
  bool plain = format == GEMM_FORMAT_F16 || format == GEMM_FORMAT_BF16;
  if (settings->scale != GEMM_SCALE_NONE && !plain) {
    return settings->scale;
  }
  return plain ? GEMM_SCALE_NONE : gemm_format_facts(format)->scale_default;
}

int settings_copies(const struct settings *settings, uint64_t bytes) {
  uint64_t copies = settings->cold_bytes / bytes + 1;
  return copies > 1024 ? 1024 : (int)copies;
}

uint64_t settings_arena_bytes(const struct settings *settings) {
  uint64_t most = 0;
  for (int c = 0; c < settings->case_count; c++) {
    const struct cases *cases = &settings->cases[c];
    for (int i = 0; i < cases->shape_count * cases->m_count; i++) {
      int shape = i / cases->m_count;
      uint64_t m = (uint64_t)cases->m[i % cases->m_count];
      uint64_t columns = (uint64_t)(cases->n[shape] + cases->k[shape] + cases->k[shape] / GEMM_GROUP + 1);
      uint64_t bytes = (m * columns + (uint64_t)cases->n[shape]) * sizeof(float) + 20480;
      most = bytes > most ? bytes : most;
    }
  }
  return gemm_round_up(most, 4096);
}
