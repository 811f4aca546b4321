#include "quantize_model.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Options of both; of `quantize` the rest is for files. */
static const char *const passed[] = {"format", "scale", "calibration", "output", "tensor", "damping", "threads"};
static const char *const refused[] = {"method", "evaluate"};
enum { PASSED = sizeof passed / sizeof *passed, REFUSED = sizeof refused / sizeof *refused };

enum tool_exit quantize_model(const struct tool_call *call) {
  char program[PATH_MAX], options[PASSED][32];
  const char *python = getenv("GEMMD_PYTHON"), *words[5 + 2 * PASSED + 1] = {NULL, "-m", "gemmclient.quantize"};
  size_t count = 3;
  for (size_t i = 0; i < REFUSED; i++)
    if (tool_value(call, refused[i]) != NULL)
      return tool_fail(call, TOOL_USAGE, "--%s is for a file; %s is a folder with a model", refused[i],
                       call->arguments[0]);
  ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length > 0) {
    program[length] = '\0';
    setenv("GEMMCTL", program, 0);
  }
  words[0] = python != NULL ? python : "python3";
  words[count++] = call->arguments[0];
  for (size_t i = 0; i < PASSED; i++) {
    const char *value = tool_value(call, passed[i]);
    if (value == NULL)
      continue;
    snprintf(options[i], sizeof options[i], "--%s", passed[i]);
    words[count++] = options[i];
    words[count++] = value;
  }
  if (call->json)
    words[count++] = "--json";
  execvp(words[0], (char *const *)words);
  return tool_fail(call, TOOL_REFUSED, "%s: %s; a model takes python3 with gemmclient, torch and transformers",
                   words[0], strerror(errno));
}
