#include "compare.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char program[] = "gemm-inprocess";
enum { NOT_FOUND = 127 }; /* what a shell ends with */

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
  out->plan_us = number_at(object, "plan", NULL);
  json_decref(object);
  if (status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == NOT_FOUND)
    return tool_cannot(call, GEMMD_SYSTEM,
                       "%s is neither beside this program nor in the PATH: a source tree builds it (make bench), as "
                       "build/%s",
                       program, program);
  if (status != 0 || !(out->best_us > 0))
    return tool_cannot(call, GEMMD_SYSTEM, "%s has not answered", program);
  return TOOL_OK;
}

static const char *scale_word(const gemmd_weight_info *info) {
  return info->scale != 0 ? word_text(words_scale, info->scale) : "none";
}

/* What the program takes for a product, or for a plan. */
static void write_arguments(const struct serve_settings *settings, FILE *out) {
  const struct mix *mix = &settings->mix;
  const gemmd_weight_info *info = &mix->weights[0];
  const char *x_type = word_text(words_type, (int)settings->x_type);
  const char *y_type = word_text(words_type, (int)settings->y_type);
  if (!mix->plan) {
    fprintf(out, "%s %s %s %lld %lld %u %s %s 1", settings->backend, word_text(words_format, (int)info->format),
            scale_word(info), (long long)info->n, (long long)info->k, mix->rows[0], x_type, y_type);
    return;
  }
  fprintf(out, "plan %s %u %s %s 1", settings->backend, mix->rows[0], x_type, y_type);
  for (int i = 0; i < mix->weight_count; i++, info++)
    fprintf(out, " %s %s %lld %lld %s", word_text(words_format, (int)info->format), scale_word(info),
            (long long)info->n, (long long)info->k, mix_step_word(mix, i));
}

enum tool_exit compare_measure(const struct tool_call *call, const struct serve_settings *settings,
                               struct compare *out) {
  char path[PATH_MAX], *command = NULL;
  size_t length;
  find_program(path, sizeof path);
  if (strchr(path, '\'') != NULL)
    return tool_cannot(call, GEMMD_UNSUPPORTED, "%s lies at a path with a quote", program);
  FILE *text = open_memstream(&command, &length);
  if (text == NULL)
    return tool_cannot(call, GEMMD_NOMEM, "out of memory");
  fprintf(text, "'%s' ", path);
  write_arguments(settings, text);
  fclose(text);
  enum tool_exit code = read_answer(call, command, out);
  free(command);
  return code;
}
