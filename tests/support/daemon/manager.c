#include "manager.h"
#include "proto/clock.h"

#include "daemon/supervisor/weights/catalog.h"
#include "tests/support/system/nap.h"

#include <blake2.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { FIRST_FD = 3, PARKED_AT = 200, PATIENCE_S = 60, NAME_BYTES = 64, HASH_BYTES = 32, UNKNOWN_LAYOUT = 0x7fffff00 };

struct parked {
  int fd;
  char name[NAME_BYTES];
};

struct scene {
  const struct daemon *daemon;
  struct manager *shared;
  int listener, notify;
  struct parked parked[MANAGER_FDS];
  unsigned count;
};

static void check(bool good, const char *what) {
  if (good)
    return;
  fprintf(stderr, "manager: %s: %s\n", what, strerror(errno));
  _exit(1);
}

static int bound_socket(const char *path, int type) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  unlink(path);
  int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
  check(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0, path);
  return fd;
}

/* ---- gemmd's process */

/* Parked descriptors have high numbers, so that none is overwritten on the way to 3, 4, ... */
static void pass_descriptors(const struct scene *scene) {
  char names[MANAGER_FDS * NAME_BYTES + 32] = "gemmd.socket", number[16];
  check(dup2(scene->listener, FIRST_FD) == FIRST_FD, "dup2");
  for (unsigned i = 0; i < scene->count; i++) {
    check(dup2(scene->parked[i].fd, FIRST_FD + 1 + (int)i) >= 0, "dup2");
    snprintf(names + strlen(names), sizeof names - strlen(names), ":%s", scene->parked[i].name);
  }
  snprintf(number, sizeof number, "%u", 1 + scene->count);
  setenv("LISTEN_FDS", number, 1);
  setenv("LISTEN_FDNAMES", names, 1);
  snprintf(number, sizeof number, "%d", (int)getpid());
  setenv("LISTEN_PID", number, 1);
}

static void lose_slabs(struct scene *scene, bool all) {
  bool done = false;
  for (unsigned i = scene->count; i-- > 0 && !done;) {
    if (strncmp(scene->parked[i].name, "slab-", 5) != 0)
      continue;
    close(scene->parked[i].fd);
    scene->parked[i] = scene->parked[--scene->count];
    done = !all;
  }
}

/* Parts are found by their rows; the hash behind all is made anew. */
static void age_parts(uint8_t *bytes, size_t length, int64_t rows) {
  unsigned found = 0;
  struct catalog_part part;
  for (size_t at = 0; at + sizeof part + HASH_BYTES <= length; at += sizeof(uint64_t)) {
    memcpy(&part, bytes + at, sizeof part);
    if (part.n_begin != 0 || part.n_count != rows || part.slab == 0 || part.bytes < (uint64_t)rows)
      continue;
    part.layout = UNKNOWN_LAYOUT;
    memcpy(bytes + at, &part, sizeof part);
    found++;
  }
  check(found > 0, "no part of the catalog has so many rows");
  blake2b(bytes + length - HASH_BYTES, bytes, NULL, HASH_BYTES, length - HASH_BYTES, 0);
}

/* A copy takes its place, for it is sealed. */
static void age_catalog(struct parked *parked, int64_t rows) {
  static uint8_t bytes[1 << 20];
  ssize_t length = pread(parked->fd, bytes, sizeof bytes, 0);
  check(length > HASH_BYTES && length < (ssize_t)sizeof bytes, "reading the catalog");
  age_parts(bytes, (size_t)length, rows);
  int made = memfd_create("aged", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  check(made >= 0 && write(made, bytes, (size_t)length) == length &&
            fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0 &&
            dup3(made, parked->fd, O_CLOEXEC) >= 0,
        "writing the catalog");
  close(made);
}

static void make_mistakes(struct scene *scene) {
  unsigned mistakes = atomic_load(&scene->shared->mistakes);
  int64_t rows = atomic_load(&scene->shared->aged_rows);
  if (mistakes & (MANAGER_LOSES_SLABS | MANAGER_LOSES_LAST_SLAB))
    lose_slabs(scene, mistakes & MANAGER_LOSES_SLABS);
  for (unsigned i = 0; rows != 0 && i < scene->count; i++)
    if (strncmp(scene->parked[i].name, "catalog-", 8) == 0)
      age_catalog(&scene->parked[i], rows);
}

static void launch(struct scene *scene) {
  make_mistakes(scene);
  const char *build = getenv("GEMMD_BUILD");
  char program[512];
  snprintf(program, sizeof program, "%s/gemmd", build != NULL ? build : "build");
  pid_t pid = fork();
  check(pid >= 0, "fork");
  if (pid > 0) {
    atomic_store(&scene->shared->gemmd, pid);
    return;
  }
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  setenv("NOTIFY_SOCKET", daemon_path(scene->daemon, "notify"), 1);
  int log = open(daemon_path(scene->daemon, "log"), O_WRONLY | O_CREAT | O_APPEND, 0600);
  check(log >= 0 && dup2(log, 2) >= 0, "log");
  pass_descriptors(scene);
  execl(program, "gemmd", "--config", daemon_path(scene->daemon, "gemmd.conf"), (char *)NULL);
  _exit(127);
}

/* ---- what gemmd says */

static void park(struct scene *scene, const char *name, int fd) {
  check(scene->count < MANAGER_FDS && fd >= 0, name);
  struct parked *parked = &scene->parked[scene->count++];
  parked->fd = fcntl(fd, F_DUPFD_CLOEXEC, PARKED_AT);
  close(fd);
  check(parked->fd >= 0, "F_DUPFD");
  snprintf(parked->name, sizeof parked->name, "%s", name);
}

static unsigned catalogs(const struct scene *scene) {
  unsigned count = 0;
  for (unsigned i = 0; i < scene->count; i++)
    count += strncmp(scene->parked[i].name, "catalog-", 8) == 0;
  return count;
}

/* A gemmd that dies between any two messages finds a catalog. */
static void unpark(struct scene *scene, const char *name) {
  check(strncmp(name, "catalog-", 8) != 0 || catalogs(scene) > 1, "the only catalog is taken back");
  for (unsigned i = scene->count; i-- > 0;) {
    if (strcmp(scene->parked[i].name, name) != 0)
      continue;
    close(scene->parked[i].fd);
    scene->parked[i] = scene->parked[--scene->count];
  }
}

static void listen_once(struct scene *scene) {
  char text[512], name[NAME_BYTES] = "";
  union {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
  } rights;
  struct iovec part = {.iov_base = text, .iov_len = sizeof text - 1};
  struct msghdr header = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = rights.bytes, .msg_controllen = sizeof rights.bytes};
  ssize_t length = recvmsg(scene->notify, &header, MSG_CMSG_CLOEXEC);
  check(length > 0, "notify");
  text[length] = '\0';
  int fd = -1;
  struct cmsghdr *control = CMSG_FIRSTHDR(&header);
  if (control != NULL && control->cmsg_type == SCM_RIGHTS)
    memcpy(&fd, CMSG_DATA(control), sizeof fd);
  const char *named = strstr(text, "FDNAME=");
  if (named != NULL)
    sscanf(named, "FDNAME=%63s", name);
  if (strncmp(text, "FDSTORE=1", 9) == 0)
    check(strstr(text, "FDPOLL=0") != NULL, "a descriptor would go when it polls as if it had hung up");
  if (strncmp(text, "FDSTORE=1", 9) == 0)
    park(scene, name, fd);
  else if (strncmp(text, "FDSTOREREMOVE=1", 15) == 0 && !(atomic_load(&scene->shared->mistakes) & MANAGER_KEEPS))
    unpark(scene, name);
  else if (strncmp(text, "READY=1", 7) == 0)
    atomic_fetch_add(&scene->shared->starts, 1);
  atomic_store(&scene->shared->stored, scene->count);
}

/* Until gemmd exits by itself; its status. */
static int manage(struct scene *scene) {
  for (;;) {
    launch(scene);
    struct pollfd fds[] = {{.fd = scene->notify, .events = POLLIN},
                           {.fd = pidfd_open(atomic_load(&scene->shared->gemmd), 0), .events = POLLIN}};
    check(fds[1].fd >= 0, "pidfd_open");
    do { /* what it said before it died counts */
      check(poll(fds, 2, -1) > 0 || errno == EINTR, "poll");
      if (fds[0].revents & POLLIN)
        listen_once(scene);
    } while ((fds[0].revents & POLLIN) || !(fds[1].revents & POLLIN));
    int status;
    close(fds[1].fd);
    waitpid(atomic_load(&scene->shared->gemmd), &status, 0);
    if (WIFEXITED(status))
      return WEXITSTATUS(status);
  }
}

/* ---- for the test */

struct manager *manager_start(struct daemon *daemon) {
  struct manager *manager = clients_share(sizeof *manager);
  fflush(NULL);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    struct scene scene = {.daemon = daemon,
                          .shared = manager,
                          .listener = bound_socket(daemon->socket, SOCK_SEQPACKET),
                          .notify = bound_socket(daemon_path(daemon, "notify"), SOCK_DGRAM)};
    scene.listener = fcntl(scene.listener, F_DUPFD_CLOEXEC, PARKED_AT);
    check(listen(scene.listener, 128) == 0, "listen");
    _exit(manage(&scene));
  }
  manager->pid = pid;
  manager_await(manager, 1);
  return manager;
}

void manager_await(const struct manager *manager, unsigned starts) {
  uint64_t end_ns = clock_ns() + PATIENCE_S * UINT64_C(1000000000);
  while (atomic_load(&manager->starts) < starts) {
    nap_shortly();
    if (clock_ns() > end_ns)
      fail_msg("gemmd did not become ready %u times", starts);
    if (waitpid(manager->pid, NULL, WNOHANG) != 0)
      fail_msg("gemmd has ended");
  }
}

void manager_stop(struct manager *manager) {
  int status;
  assert_int_equal(kill(atomic_load(&manager->gemmd), SIGTERM), 0);
  assert_int_equal(waitpid(manager->pid, &status, 0), manager->pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}
