#include "shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

static const char *work;
static char tools[4096];

void shell_begin(const struct daemon *daemon) {
  const char *build = getenv("GEMMD_BUILD");
  assert_non_null(realpath(build != NULL ? build : "build", tools));
  work = daemon->folder;
  assert_int_equal(setenv("GEMMD_SOCKET", daemon->socket, 1), 0);
}

static void read_text(const char *name, char *out, size_t room) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", work, name);
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  out[fread(out, 1, room - 1, file)] = '\0';
  fclose(file);
}

const struct shell_outcome *shell_expect(const char *line, int code) {
  static struct shell_outcome outcome;
  char command[8192];
  snprintf(command, sizeof command, "T='%s'; D='%s'; cd \"$D\"; { %s\n} >out 2>err", tools, work, line);
  int status = system(command);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  read_text("out", outcome.out, sizeof outcome.out);
  read_text("err", outcome.err, sizeof outcome.err);
  if (outcome.code != code)
    fail_msg("%s: exit %d in place of %d\n%s%s", line, outcome.code, code, outcome.out, outcome.err);
  return &outcome;
}

void shell_expect_parts(const char *line, int code, const char *const *parts) {
  const struct shell_outcome *outcome = shell_expect(line, code);
  for (; *parts != NULL; parts++) {
    if (strstr(outcome->err, *parts) == NULL)
      fail_msg("%s: stderr lacks \"%s\": %s", line, *parts, outcome->err);
  }
}

json_t *shell_expect_json(const char *line, int code) {
  const struct shell_outcome *outcome = shell_expect(line, code);
  json_error_t error;
  json_t *object = json_loads(outcome->out, JSON_REJECT_DUPLICATES, &error);
  if (!json_is_object(object))
    fail_msg("%s: no JSON object: %s\n%s", line, error.text, outcome->out);
  return object;
}

json_int_t shell_integer(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_integer(value))
    fail_msg("%s is no integer", key);
  return json_integer_value(value);
}

const char *shell_string(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_string(value))
    fail_msg("%s is no string", key);
  return json_string_value(value);
}
