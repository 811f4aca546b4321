#include "child.h"

#include "../net/closing.h"

#include <errno.h>
#include <signal.h>
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

/* ---- who ends first where memory ends */

/* Workers and loaders hold nothing that cannot be had again; gemmd holds all weights. A child begins with what its
 * parent has, and has memory before it could say anything itself. */
enum { CHILD_BEFORE_PARENT = 500, ADJUSTMENT_MOST = 1000 };
static const char adjustment_path[] = "/proc/self/oom_score_adj";

static void adjust(int value) {
  FILE *file = fopen(adjustment_path, "we");
  if (file == NULL)
    return; /* no /proc: then the kernel takes whoever is largest */
  fprintf(file, "%d", value < ADJUSTMENT_MOST ? value : ADJUSTMENT_MOST);
  fclose(file);
}

/* Its own adjustment, which is higher from here on. Lowering it again to what it was needs no privilege. */
static int offer_children(void) {
  int own = 0;
  FILE *file = fopen(adjustment_path, "re");
  if (file == NULL || fscanf(file, "%d", &own) != 1)
    own = 0;
  if (file != NULL)
    fclose(file);
  adjust(own + CHILD_BEFORE_PARENT);
  return own;
}

/* ---- the process */

struct child {
  uv_process_t process;
  child_exited exited;
  void *user;
};

static void on_closed(uv_handle_t *handle) {
  free(handle->data);
}

static void on_exit_of(uv_process_t *process, int64_t exit_status, int signal) {
  struct child *child = process->data;
  uv_close((uv_handle_t *)process, on_closed);
  child->exited(child->user, exit_status, signal);
}

static enum status spawn(uv_loop_t *loop, struct child *child, const char *program, char **words, int socket,
                         struct error *error) {
  uv_stdio_container_t stdio[CHILD_SOCKET + 1] = {
      {.flags = UV_IGNORE},
      {.flags = UV_INHERIT_FD, .data.fd = STDOUT_FILENO},
      {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
      {.flags = UV_INHERIT_FD, .data.fd = socket},
  };
  uv_process_options_t options = {
      .file = program,
      .args = words,
      .exit_cb = on_exit_of,
      /* A session of its own: a ^C at the terminal is for the supervisor, which then ends its children in order. */
      .flags = UV_PROCESS_DETACHED,
      .stdio_count = CHILD_SOCKET + 1,
      .stdio = stdio,
  };
  child->process.data = child;
  int own = offer_children();
  closing_settle();
  int rc = uv_spawn(loop, &child->process, &options);
  adjust(own);
  if (rc == 0)
    return STATUS_OK;
  /* The loop has the handle in its list even so. */
  uv_close((uv_handle_t *)&child->process, on_closed);
  return error_set(error, STATUS_SYSTEM, "%.160s cannot be started: %s", program, uv_strerror(rc));
}

static enum status start(uv_loop_t *loop, struct child **out, const char *program, const char *const *mode,
                         const struct config *config, const struct child *prototype, int socket, struct error *error) {
  struct command_line line = {.count = 0};
  struct child *child = malloc(sizeof *child);
  enum status status;
  if (child == NULL || !make_words(&line, program, mode, config)) {
    free(child);
    status = error_set(error, STATUS_NOMEM, "no memory for a child");
  } else {
    *child = *prototype;
    status = spawn(loop, child, program, line.words, socket, error);
    if (status == STATUS_OK)
      *out = child;
  }
  free_words(&line);
  return status;
}

enum status child_start(uv_loop_t *loop, const char *program, const char *const *mode, const struct config *config,
                        child_exited exited, void *user, struct child **out, int *socket, struct error *error) {
  const struct child prototype = {.exited = exited, .user = user};
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
    return error_set(error, STATUS_SYSTEM, "socketpair: %s", strerror(errno));
  enum status status = start(loop, out, program, mode, config, &prototype, pair[1], error);
  close(pair[1]);
  if (status != STATUS_OK)
    close(pair[0]);
  else
    *socket = pair[0];
  return status;
}

void child_kill(struct child *child) {
  if (child != NULL)
    uv_process_kill(&child->process, SIGKILL);
}

int child_pid(const struct child *child) {
  return child->process.pid;
}
