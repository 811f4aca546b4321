#include "daemon.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATIENCE_MS = 60000 }; /* until a test gives up; nothing takes so long by itself */

static void demand(bool good, const char *what) {
  if (!good)
    fail_msg("%s: %s", what, strerror(errno));
}

const char *daemon_path(const struct daemon *daemon, const char *name) {
  static char paths[8][352];
  static unsigned next;
  char *path = paths[next++ % 8];
  snprintf(path, sizeof paths[0], "%s/%s", daemon->folder, name);
  return path;
}

bool daemon_on_cuda(void) {
  const char *backend = getenv("GEMMD_TEST_BACKEND");
  return backend != NULL && strcmp(backend, "cuda") == 0;
}

void daemon_make(struct daemon *daemon, const char *options) {
  const char *backend = getenv("GEMMD_TEST_BACKEND");
  *daemon = (struct daemon){.folder = "/tmp/gemmd-test-XXXXXX"};
  demand(mkdtemp(daemon->folder) != NULL, "mkdtemp");
  snprintf(daemon->socket, sizeof daemon->socket, "%s/socket", daemon->folder);
  FILE *file = fopen(daemon_path(daemon, "gemmd.conf"), "w");
  demand(file != NULL, "gemmd.conf");
  fprintf(file, "socket = %s\nbackend = %s\ndevices = 1\nlog_level = debug\nworker_restarts_max = 100\n%s",
          daemon->socket, backend != NULL ? backend : "cpu", options);
  demand(fclose(file) == 0, "gemmd.conf");
}

/* Runs gemmd; its log is appended to. It ends with this test at the latest. */
static pid_t launch(const struct daemon *daemon) {
  const char *build = getenv("GEMMD_BUILD");
  char program[512];
  pid_t parent = getpid();
  snprintf(program, sizeof program, "%s/gemmd", build != NULL ? build : "build");
  demand(access(program, X_OK) == 0, program);
  fflush(NULL);
  pid_t pid = fork();
  demand(pid >= 0, "fork");
  if (pid > 0)
    return pid;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent)
    _exit(127);
  setenv("NOTIFY_SOCKET", daemon_path(daemon, "notify"), 1);
  int log = open(daemon_path(daemon, "log"), O_WRONLY | O_CREAT | O_APPEND, 0600);
  int nothing = open("/dev/null", O_RDWR);
  if (log < 0 || nothing < 0 || dup2(nothing, 0) < 0 || dup2(nothing, 1) < 0 || dup2(log, 2) < 0)
    _exit(127);
  execl(program, "gemmd", "--config", daemon_path(daemon, "gemmd.conf"), (char *)NULL);
  _exit(127);
}

/* Exit status, or -signal. */
static int reap(pid_t pid) {
  int status;
  int fd = pidfd_open(pid, 0);
  demand(fd >= 0, "pidfd_open");
  struct pollfd ended = {.fd = fd, .events = POLLIN};
  int ready = poll(&ended, 1, PATIENCE_MS);
  close(fd);
  if (ready == 0) {
    kill(pid, SIGABRT);
    waitpid(pid, NULL, 0);
    fail_msg("process %d did not end", (int)pid);
  }
  demand(waitpid(pid, &status, 0) == pid, "waitpid");
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void print_log(const struct daemon *daemon) {
  char line[1024];
  FILE *file = fopen(daemon_path(daemon, "log"), "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    print_error("gemmd: %s", line);
  if (file != NULL)
    fclose(file);
}

/* What gemmd tells a service manager tells us as well: nobody need ask again and again whether it answers. */
static int notify_open(const struct daemon *daemon) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s/notify", daemon->folder);
  unlink(address.sun_path);
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  demand(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0, "notify socket");
  return fd;
}

static bool wait_ready(int notify, pid_t pid) {
  char text[512];
  struct pollfd fds[] = {{.fd = notify, .events = POLLIN}, {.fd = pidfd_open(pid, 0), .events = POLLIN}};
  bool ready = false;
  demand(fds[1].fd >= 0, "pidfd_open");
  while (!ready && poll(fds, 2, PATIENCE_MS) > 0 && (fds[0].revents & POLLIN)) {
    ssize_t length = recv(notify, text, sizeof text - 1, 0);
    text[length > 0 ? length : 0] = '\0';
    ready = strncmp(text, "READY=1", 7) == 0;
  }
  close(fds[1].fd);
  return ready;
}

void daemon_start(struct daemon *daemon) {
  int notify = notify_open(daemon);
  daemon->pid = launch(daemon);
  bool ready = wait_ready(notify, daemon->pid);
  close(notify);
  if (ready)
    return;
  kill(daemon->pid, SIGKILL);
  reap(daemon->pid);
  print_log(daemon);
  fail_msg("gemmd did not start");
}

int daemon_fail_to_start(const struct daemon *daemon) {
  return reap(launch(daemon));
}

void daemon_stop(struct daemon *daemon) {
  pid_t pid = daemon->pid;
  daemon->pid = 0;
  demand(kill(pid, SIGTERM) == 0, "kill");
  int status = reap(pid);
  if (status != 0) {
    print_log(daemon);
    fail_msg("gemmd ended with %d", status);
  }
}

/* Descriptors of a process' children; returns how many. The kernel lists them: to look through all of /proc would wait
 * for processes that have nothing to do with the test. */
static int children_of(pid_t pid, int *fds, int most) {
  char path[64];
  int count = 0, child;
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
  FILE *file = fopen(path, "r");
  demand(file != NULL, path);
  while (count < most && fscanf(file, "%d", &child) == 1)
    if ((fds[count] = pidfd_open(child, 0)) >= 0)
      count++;
  fclose(file);
  return count;
}

void daemon_kill(struct daemon *daemon) {
  int fds[64];
  int count = children_of(daemon->pid, fds, 64);
  assert_true(count > 0);
  pid_t pid = daemon->pid;
  daemon->pid = 0;
  demand(kill(pid, SIGKILL) == 0, "kill");
  assert_int_equal(reap(pid), -SIGKILL);
  for (int i = 0; i < count; i++) {
    struct pollfd ended = {.fd = fds[i], .events = POLLIN};
    if (poll(&ended, 1, PATIENCE_MS) != 1)
      fail_msg("a worker outlives its supervisor");
    close(fds[i]);
  }
}

int daemon_log_count(const struct daemon *daemon, const char *text) {
  char *line = NULL;
  size_t room = 0;
  int count = 0;
  FILE *file = fopen(daemon_path(daemon, "log"), "r");
  while (file != NULL && getline(&line, &room, file) > 0)
    count += strstr(line, text) != NULL;
  free(line);
  if (file != NULL)
    fclose(file);
  return count;
}

void daemon_upgrade(const struct daemon *daemon) {
  const char *build = getenv("GEMMD_BUILD");
  char command[640];
  snprintf(command, sizeof command, "%s/gemmd --upgrade --socket %s", build != NULL ? build : "build", daemon->socket);
  demand(system(command) == 0, command);
}

void daemon_remove(struct daemon *daemon) {
  static const char *const reports[] = {"Sanitizer", "runtime error:", "does not close", "core dumped"};
  for (size_t i = 0; i < sizeof reports / sizeof reports[0]; i++)
    if (daemon_log_count(daemon, reports[i]) > 0) {
      print_log(daemon);
      fail_msg("the log of gemmd holds a report: %s", reports[i]);
    }
  DIR *folder = opendir(daemon->folder);
  demand(folder != NULL, daemon->folder);
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
      unlink(daemon_path(daemon, entry->d_name));
  closedir(folder);
  demand(rmdir(daemon->folder) == 0, daemon->folder);
}

void daemon_end(struct daemon *daemon) {
  daemon_stop(daemon);
  daemon_remove(daemon);
}

/* ---- client processes */

void *clients_share(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  demand(memory != MAP_FAILED, "mmap");
  return memory;
}

void clients_start(struct clients *clients, int count, int (*run)(int index, void *user), void *user) {
  assert_in_range(count, 1, CLIENTS_MOST);
  *clients = (struct clients){.count = count};
  fflush(NULL);
  for (int i = 0; i < count; i++) {
    pid_t parent = getpid();
    clients->pids[i] = fork();
    demand(clients->pids[i] >= 0, "fork");
    if (clients->pids[i] == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      exit(getppid() == parent ? run(i, user) : 127);
    }
  }
}

void clients_wait(struct clients *clients) {
  int failed = 0;
  for (int i = 0; i < clients->count; i++) {
    int status = reap(clients->pids[i]);
    if (status != 0)
      print_error("client %d ended with %d\n", i, status);
    failed += status != 0;
  }
  assert_int_equal(failed, 0);
}

void clients_run(int count, int (*run)(int index, void *user), void *user) {
  struct clients clients;
  clients_start(&clients, count, run, user);
  clients_wait(&clients);
}
