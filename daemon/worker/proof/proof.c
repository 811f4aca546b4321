#include "proof.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Memory with the questions, to be read from its beginning; -1 with *error. */
static int write_questions(const struct proof_task *task, struct error *error) {
  char text[VARIANT_TEXT_BYTES];
  int fd = memfd_create("proof", MFD_CLOEXEC);
  bool written = fd >= 0 && dprintf(fd, "%s\n%u\n", variant_problem_text(task->problem, text), task->share) > 0;
  for (int i = 0; i < task->count && written; i++)
    written = dprintf(fd, "%s\n", variant_text(&task->list[i], text)) > 0;
  if (written && lseek(fd, 0, SEEK_SET) == 0)
    return fd;
  (void)error_set(error, STATUS_SYSTEM, "no memory for what a new kernel is asked: %s", strerror(errno));
  if (fd >= 0)
    close(fd);
  return -1;
}

/* Signals are blocked in the thread that starts it. */
static int spawn(pid_t *pid, char *const *command, int in, int out) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  sigset_t none;
  sigemptyset(&none);
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  int failure = posix_spawn(pid, command[0], &files, &attributes, command, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return failure;
}

enum status proof_start(struct proof *proof, char *const *command, const struct proof_task *task, struct error *error) {
  int pipes[2], questions = write_questions(task, error);
  if (questions < 0)
    return error->status;
  if (pipe2(pipes, O_CLOEXEC) != 0) {
    close(questions);
    return error_set(error, STATUS_SYSTEM, "pipe: %s", strerror(errno));
  }
  *proof = (struct proof){.from = pipes[0]};
  (void)fcntl(proof->from, F_SETFL, O_NONBLOCK);
  int failure = spawn(&proof->pid, command, questions, pipes[1]);
  close(questions);
  close(pipes[1]);
  if (failure == 0)
    return STATUS_OK;
  close(pipes[0]);
  proof->pid = 0;
  return error_set(error, STATUS_SYSTEM, "%.160s cannot be started: %s", command[0], strerror(failure));
}

/* True when a whole line is there, without its end. */
static bool read_line(struct proof *proof) {
  while (!proof->over && proof->length < sizeof proof->line - 1) {
    ssize_t got = read(proof->from, proof->line + proof->length, 1);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
      return false;
    if (got <= 0) {
      proof->over = true;
      return false;
    }
    if (proof->line[proof->length] == '\n') {
      proof->line[proof->length] = '\0';
      proof->length = 0;
      return true;
    }
    proof->length++;
  }
  proof->over = true;
  return false;
}

static bool says(const char *line, const char *word, char why[PROOF_WHY_BYTES]) {
  size_t length = strlen(word);
  if (strncmp(line, word, length) != 0 || (line[length] != ' ' && line[length] != '\0'))
    return false;
  snprintf(why, PROOF_WHY_BYTES, "%.150s", line[length] == ' ' ? line + length + 1 : "");
  return true;
}

enum proof_word proof_next(struct proof *proof, char why[PROOF_WHY_BYTES]) {
  if (proof->pid == 0)
    return PROOF_END;
  if (read_line(proof) && !proof->ending) {
    if (says(proof->line, "right", why))
      return PROOF_RIGHT;
    if (says(proof->line, "wrong", why))
      return PROOF_WRONG;
    if (says(proof->line, "refused", why))
      return PROOF_REFUSED;
    if (says(proof->line, "cannot", why))
      return PROOF_CANNOT;
    proof_stop(proof);
  }
  int status = 0;
  if ((!proof->over && !proof->ending) || waitpid(proof->pid, &status, WNOHANG) != proof->pid)
    return PROOF_NOTHING;
  if (WIFSIGNALED(status))
    snprintf(why, PROOF_WHY_BYTES, "it took its process along: signal %d", WTERMSIG(status));
  else
    snprintf(why, PROOF_WHY_BYTES, "it took its process along: exit status %d", WEXITSTATUS(status));
  close(proof->from);
  proof->pid = 0;
  return PROOF_END;
}

void proof_stop(struct proof *proof) {
  if (proof->pid == 0 || proof->ending)
    return;
  (void)kill(proof->pid, SIGKILL);
  proof->ending = true;
}

void proof_close(struct proof *proof) {
  if (proof->pid == 0)
    return;
  proof_stop(proof);
  (void)waitpid(proof->pid, NULL, 0);
  close(proof->from);
  proof->pid = 0;
}
