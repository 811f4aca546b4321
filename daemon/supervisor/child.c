#include "child.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MODE_WORDS = 4, CHILD_SOCKET = 3 };

struct command_line {
  char **words; /* owned, as are the words; NULL at the end */
  size_t count;
};

static bool add_word(struct command_line *line, const char *text) {
  line->words[line->count] = strdup(text);
  return line->words[line->count] != NULL && ++line->count > 0;
}

static void free_words(struct command_line *line) {
  for (size_t i = 0; line->words != NULL && i < line->count; i++)
    free(line->words[i]);
  free(line->words);
}

static bool make_words(struct command_line *line, const char *self, const char *const *mode,
                       const struct config *config) {
  size_t options = config_option_count();
  line->words = calloc(1 + MODE_WORDS + 2 * options + 1, sizeof *line->words);
  if (line->words == NULL || !add_word(line, self))
    return false;
  for (size_t i = 0; i < MODE_WORDS && mode[i] != NULL; i++)
    if (!add_word(line, mode[i]))
      return false;
  for (size_t i = 0; i < options; i++) {
    struct config_option option;
    config_option_at(i, &option);
    char name[CONFIG_STRING_BYTES], value[CONFIG_STRING_BYTES];
    snprintf(name, sizeof name, "--%s", option.name);
    config_value(config, i, value, sizeof value);
    if (!add_word(line, name) || !add_word(line, value))
      return false;
  }
  return true;
}

enum status child_start(uv_loop_t *loop, uv_process_t *process, const char *self, const char *const *mode,
                        const struct config *config, uv_exit_cb exited, int *socket, struct error *error) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
    return error_set(error, STATUS_SYSTEM, "socketpair: %s", strerror(errno));
  struct command_line line = {.count = 0};
  enum status status = STATUS_OK;
  if (!make_words(&line, self, mode, config)) {
    status = error_set(error, STATUS_NOMEM, "no memory for the command line of a child");
  } else {
    uv_stdio_container_t stdio[CHILD_SOCKET + 1] = {
        {.flags = UV_IGNORE},
        {.flags = UV_INHERIT_FD, .data.fd = STDOUT_FILENO},
        {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
        {.flags = UV_INHERIT_FD, .data.fd = pair[1]},
    };
    uv_process_options_t options = {
        .file = self,
        .args = line.words,
        .exit_cb = exited,
        /* A session of its own: a ^C at the terminal is for the supervisor, which then ends its children in order. */
        .flags = UV_PROCESS_DETACHED,
        .stdio_count = CHILD_SOCKET + 1,
        .stdio = stdio,
    };
    int rc = uv_spawn(loop, process, &options);
    if (rc != 0)
      status = error_set(error, STATUS_SYSTEM, "%.160s cannot be started: %s", self, uv_strerror(rc));
  }
  free_words(&line);
  close(pair[1]);
  if (status != STATUS_OK)
    close(pair[0]);
  else
    *socket = pair[0];
  return status;
}
