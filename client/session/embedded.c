#include "embedded.h"
#include "clock.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
  CHILD_SOCKET = 3,     /* where gemmd --embedded expects it */
  REAP_LIMIT_MS = 5000, /* for an orderly end */
};

/* "gemmd" in the folder of `file`, where there is one to run. */
static bool beside(const char *file, char *out, size_t bytes) {
  const char *slash = strrchr(file, '/');
  int length = slash != NULL ? snprintf(out, bytes, "%.*s/gemmd", (int)(slash - file), file) : -1;
  return length > 0 && (size_t)length < bytes && access(out, X_OK) == 0;
}

/* $GEMMD_BINARY, else beside this program or this library, else as PATH finds it. */
static void find_daemon(char *out, size_t bytes) {
  static const char here = 0; /* in this library, or in the program that it is linked into */
  char program[PATH_MAX];
  const char *chosen = secure_getenv("GEMMD_BINARY");
  if (chosen != NULL && chosen[0] != '\0') {
    snprintf(out, bytes, "%s", chosen);
    return;
  }
  ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  program[length > 0 ? length : 0] = '\0';
  Dl_info library;
  if (beside(program, out, bytes) || (dladdr(&here, &library) != 0 && beside(library.dli_fname, out, bytes)))
    return;
  snprintf(out, bytes, "gemmd");
}

/* The child gets the socket, this process' stderr for its log, and nothing else. A process group of its own keeps the
 * terminal's signals from it: it ends with its socket. */
static int spawn_setup(posix_spawn_file_actions_t *files, posix_spawnattr_t *attributes, int socket) {
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  int error = posix_spawn_file_actions_adddup2(files, socket, CHILD_SOCKET);
  if (error == 0)
    error = posix_spawn_file_actions_addopen(files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (error == 0)
    error = posix_spawn_file_actions_addopen(files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  if (error == 0)
    error = posix_spawn_file_actions_addclosefrom_np(files, CHILD_SOCKET + 1);
  if (error == 0)
    error = posix_spawnattr_setsigmask(attributes, &none);
  if (error == 0)
    error = posix_spawnattr_setsigdefault(attributes, &all);
  if (error == 0)
    error =
        posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  return error;
}

static int spawn_daemon(const char *program, const char *config, int socket, pid_t *daemon) {
  char *arguments[] = {"gemmd", "--embedded", config[0] ? "--config" : NULL, (char *)config, NULL};
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  int error = posix_spawn_file_actions_init(&files);
  if (error != 0)
    return error;
  error = posix_spawnattr_init(&attributes);
  if (error == 0) {
    error = spawn_setup(&files, &attributes, socket);
    if (error == 0)
      error = posix_spawnp(daemon, program, &files, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_destroy(&files);
  return error;
}

enum status embedded_start(const char *config, int *socket, pid_t *daemon, struct error *error) {
  char program[PATH_MAX];
  int ends[2];
  find_daemon(program, sizeof program);
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return error_set(error, STATUS_SYSTEM, "socketpair: %s", strerror(errno));
  int failure = spawn_daemon(program, config, ends[1], daemon);
  close(ends[1]);
  if (failure != 0) {
    close(ends[0]);
    return error_set(error, STATUS_SYSTEM, "cannot start %.160s: %s", program, strerror(failure));
  }
  *socket = ends[0];
  return STATUS_OK;
}

int embedded_reap(pid_t daemon) {
  const struct timespec pause = {.tv_nsec = CLOCK_NS_PER_MS};
  int64_t deadline = clock_deadline(REAP_LIMIT_MS * CLOCK_NS_PER_MS);
  int status;
  for (;;) {
    pid_t ended = waitpid(daemon, &status, WNOHANG);
    if (ended == daemon)
      return status;
    if (ended < 0 && errno != EINTR)
      return -1;
    if (clock_now() >= deadline)
      break;
    nanosleep(&pause, NULL);
  }
  kill(daemon, SIGKILL);
  while (waitpid(daemon, &status, 0) < 0)
    if (errno != EINTR)
      return -1;
  return status;
}
