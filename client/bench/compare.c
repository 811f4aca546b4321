#include "compare.h"

#include <jansson.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

static const char program[] = "gemm-inprocess";

/* Beside this program where it is there, else by its name alone. */
static void find_program(char *path, size_t bytes) {
  ssize_t length = readlink("/proc/self/exe", path, bytes - 1);
  char *slash = length > 0 ? memrchr(path, '/', (size_t)length) : NULL;
  if (slash != NULL && (size_t)(slash + 1 - path) + sizeof program <= bytes) {
    memcpy(slash + 1, program, sizeof program);
    if (access(path, X_OK) == 0)
      return;
  }
  snprintf(path, bytes, "%s", program);
}

static double number_at(const json_t *object, const char *key, const char *below) {
  const json_t *value = json_object_get(object, key);
  return json_number_value(below != NULL ? json_object_get(value, below) : value);
}

/* Everything in the command is a number or a word of our own, but for the path, which is quoted. */
static enum tool_exit read_answer(const struct tool_call *call, const char *command, struct compare *out) {
  fflush(NULL);
  FILE *answer = popen(command, "r");
  json_t *object = answer != NULL ? json_loadf(answer, 0, NULL) : NULL;
  int status = answer != NULL ? pclose(answer) : -1;
  out->best_us = number_at(object, "best", "p50");
  out->obvious_us = number_at(object, "obvious", "p50");
  out->kernel_us = number_at(object, "kernel", NULL);
  json_decref(object);
  if (status != 0 || !(out->best_us > 0))
    return tool_fail(call, TOOL_REFUSED, "%s has not answered; it is built by make bench", program);
  return TOOL_OK;
}

enum tool_exit compare_measure(const struct tool_call *call, const struct serve_settings *settings,
                               struct compare *out) {
  const gemmd_weight_info *info = &settings->mix.weights[0];
  char path[PATH_MAX], command[PATH_MAX + 256];
  find_program(path, sizeof path);
  if (strchr(path, '\'') != NULL)
    return tool_fail(call, TOOL_REFUSED, "%s lies at a path with a quote", program);
  snprintf(command, sizeof command, "'%s' %s %s %s %lld %lld %u %s %s 1", path, settings->backend,
           word_text(words_format, (int)info->format), info->scale != 0 ? word_text(words_scale, info->scale) : "none",
           (long long)info->n, (long long)info->k, settings->mix.rows[0], word_text(words_type, (int)settings->x_type),
           word_text(words_type, (int)settings->y_type));
  return read_answer(call, command, out);
}
