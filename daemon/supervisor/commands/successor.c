#include "successor.h"

#include "../../log.h"
#include "../context.h"
#include "../net/closing.h"
#include "../session/session.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATIENCE_MS = 10000 };

struct asking {
  struct session *session; /* waits */
  uint32_t id;
  uv_process_t process;
  uv_timer_t timer;
  unsigned open; /* of both */
};

static void on_closed(uv_handle_t *handle) {
  struct asking *asking = handle->data;
  if (--asking->open == 0)
    free(asking);
}

static void on_timer(uv_timer_t *timer) {
  struct asking *asking = timer->data;
  uv_process_kill(&asking->process, SIGKILL);
}

static void on_exit_of(uv_process_t *process, int64_t exit_status, int signal) {
  struct asking *asking = process->data;
  struct session *session = asking->session;
  struct supervisor *supervisor = session->supervisor;
  struct message_empty reply = {.reserved = 0};
  struct error error;
  uv_close((uv_handle_t *)&asking->timer, on_closed);
  uv_close((uv_handle_t *)&asking->process, on_closed);
  if (signal == 0 && exit_status == 0) {
    session_reply(session, asking->id, &message_empty_type, &reply, NULL, 0);
    if (!supervisor->stopping)
      supervisor->hooks->upgrade(supervisor);
  } else {
    if (signal != 0)
      (void)error_set(&error, STATUS_SYSTEM, "%.160s with --check was ended by signal %d (%s)", supervisor->program,
                      signal, strsignal(signal));
    else
      (void)error_set(
          &error, STATUS_SYSTEM,
          "%.160s would not start with its options: with --check it ends with status %lld, and the log says "
          "why",
          supervisor->program, (long long)exit_status);
    session_fail(session, asking->id, &error);
  }
  session_continue(session);
}

/* The arguments that there are, and one more. The caller frees the array alone. */
static char **make_words(char *const *arguments) {
  static char check[] = "--check";
  size_t count = 0;
  while (arguments[count] != NULL)
    count++;
  char **words = malloc((count + 2) * sizeof *words);
  if (words == NULL)
    return NULL;
  memcpy(words, arguments, count * sizeof *words);
  words[count] = check;
  words[count + 1] = NULL;
  return words;
}

static int start(struct asking *asking, uv_loop_t *loop, const char *program, char **words) {
  uv_stdio_container_t stdio[] = {{.flags = UV_IGNORE},
                                  {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
                                  {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO}};
  const uv_process_options_t options = {
      .file = program, .args = words, .exit_cb = on_exit_of, .stdio_count = 3, .stdio = stdio};
  asking->process.data = asking->timer.data = asking;
  asking->open = 2;
  uv_timer_init(loop, &asking->timer);
  closing_settle();
  int failure = uv_spawn(loop, &asking->process, &options);
  if (failure == 0) {
    uv_timer_start(&asking->timer, on_timer, PATIENCE_MS, 0);
    return 0;
  }
  uv_close((uv_handle_t *)&asking->timer, on_closed);
  uv_close((uv_handle_t *)&asking->process, on_closed); /* the loop has it in its list even so */
  return failure;
}

enum status successor_ask(struct session *session, uint32_t id, struct error *error) {
  struct supervisor *supervisor = session->supervisor;
  if (supervisor->embedded || supervisor->arguments == NULL)
    return error_set(error, STATUS_UNSUPPORTED, "a gemmd that serves one program is not replaced");
  struct asking *asking = calloc(1, sizeof *asking);
  char **words = make_words(supervisor->arguments);
  if (asking == NULL || words == NULL) {
    free(asking);
    free(words);
    return error_set(error, STATUS_NOMEM, "no memory to ask the next program");
  }
  asking->session = session;
  asking->id = id;
  int failure = start(asking, &supervisor->loop, supervisor->program, words);
  free(words);
  if (failure != 0)
    return error_set(error, STATUS_SYSTEM, "%.160s cannot be executed: %s", supervisor->program, uv_strerror(failure));
  log_info("upgrade: %s is asked whether it starts", supervisor->program);
  session_wait(session);
  return STATUS_OK;
}
