#include "listener.h"

#include "../../log.h"
#include "../context.h"
#include "inherited.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { BACKLOG = 128, ACCEPTS_A_TURN = 16, LOCK_TRIES = 100, LOCK_PAUSE_MS = 10 };

void listener_init(struct listener *listener) {
  *listener = (struct listener){.fd = -1, .lock = -1, .spare = -1};
}

/* ---- an inherited socket */

static enum status check_socket(int fd, struct error *error) {
  int type = 0, listens = 0;
  socklen_t bytes = sizeof type;
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) != 0 || type != SOCK_SEQPACKET ||
      getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) != 0 || !listens)
    return error_set(error, STATUS_BAD_DESCRIPTOR,
                     "systemd's socket must be a listening one (ListenSequentialPacket=)");
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  return STATUS_OK;
}

/* Of a gemmd that this one replaces, with its lock where it had made the socket itself: then it is bound where the
 * options of that one said. */
static void take_predecessors(struct listener *listener, struct inherited *inherited, const char *path) {
  struct sockaddr_un address = {.sun_path = ""};
  socklen_t bytes = sizeof address - 1; /* so that the path ends */
  listener->fd = inherited_take(inherited, LISTENER_SOCKET_NAME);
  listener->lock = inherited_take(inherited, LISTENER_LOCK_NAME);
  if (listener->lock < 0 || getsockname(listener->fd, (struct sockaddr *)&address, &bytes) != 0)
    return;
  snprintf(listener->path, sizeof listener->path, "%s", address.sun_path);
  if (strcmp(listener->path, path) != 0)
    log_warning("the socket stays at %s over an upgrade; %s takes a restart", listener->path, path);
}

static bool is_socket(int fd) {
  struct stat stat;
  return fstat(fd, &stat) == 0 && S_ISSOCK(stat.st_mode);
}

static enum status take_systemd_socket(struct listener *listener, struct inherited *inherited, struct error *error) {
  for (size_t i = 0; i < inherited->count; i++) {
    int fd = inherited->list[i].fd;
    if (fd < 0 || !is_socket(fd))
      continue;
    if (listener->fd >= 0)
      return error_set(error, STATUS_INVALID, "systemd passes several sockets; gemmd takes one");
    inherited->list[i].fd = -1;
    listener->fd = fd;
  }
  return STATUS_OK;
}

static enum status take_inherited(struct listener *listener, struct inherited *inherited, const char *path,
                                  struct error *error) {
  enum status status = STATUS_OK;
  take_predecessors(listener, inherited, path);
  if (listener->fd < 0)
    status = take_systemd_socket(listener, inherited, error);
  return status == STATUS_OK && listener->fd >= 0 ? check_socket(listener->fd, error) : status;
}

/* ---- our own */

enum status listener_check(const char *path, struct error *error) {
  enum { MOST = sizeof((struct sockaddr_un *)0)->sun_path - 1 };
  if (path[0] != '\0' && strlen(path) <= MOST)
    return STATUS_OK;
  return error_set(error, STATUS_INVALID, "socket must be a path of 1..%d bytes, got %zu", MOST, strlen(path));
}

/* A process that a gemmd forked before it was killed has the lock until it executes its program: milliseconds. */
static bool lock_in_time(int fd) {
  const struct timespec pause = {.tv_nsec = LOCK_PAUSE_MS * 1000000L};
  for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; i++) {
    if (errno != EWOULDBLOCK || i == LOCK_TRIES)
      return false;
    nanosleep(&pause, NULL);
  }
  return true;
}

static enum status take_lock(struct listener *listener, const char *path, struct error *error) {
  char lock[300];
  snprintf(lock, sizeof lock, "%s.lock", path);
  listener->lock = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (listener->lock < 0)
    return error_set(error, STATUS_SYSTEM, "%.160s cannot be opened: %s", lock, strerror(errno));
  if (lock_in_time(listener->lock))
    return STATUS_OK;
  if (errno == EWOULDBLOCK)
    return error_set(error, STATUS_EXISTS, "another gemmd serves %.160s", path);
  return error_set(error, STATUS_SYSTEM, "%.160s cannot be locked: %s", lock, strerror(errno));
}

/* A service manager, or a program that is no gemmd, holds no lock. */
static bool is_served(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  memcpy(address.sun_path, path, strlen(path) + 1);
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  bool served = fd >= 0 && (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 || errno == EAGAIN ||
                            errno == EPROTOTYPE);
  if (fd >= 0)
    close(fd);
  return served;
}

/* The lock is ours, so a gemmd that made a socket of this name is gone. */
static enum status remove_stale(const char *path, struct error *error) {
  struct stat stat;
  if (lstat(path, &stat) != 0)
    return errno == ENOENT ? STATUS_OK
                           : error_set(error, STATUS_SYSTEM, "%.160s cannot be looked at: %s", path, strerror(errno));
  if (!S_ISSOCK(stat.st_mode))
    return error_set(error, STATUS_EXISTS, "%.160s is there and no socket", path);
  if (is_served(path))
    return error_set(error, STATUS_EXISTS, "another program, or the service manager, listens at %.160s", path);
  if (unlink(path) != 0)
    return error_set(error, STATUS_SYSTEM, "%.160s cannot be replaced: %s", path, strerror(errno));
  log_info("a socket that an earlier gemmd left at %s is replaced", path);
  return STATUS_OK;
}

static enum status make_socket(struct listener *listener, const char *path, int64_t mode, struct error *error) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  enum status status = listener_check(path, error);
  if (status == STATUS_OK)
    status = take_lock(listener, path, error);
  if (status == STATUS_OK)
    status = remove_stale(path, error);
  if (status != STATUS_OK)
    return status;
  memcpy(address.sun_path, path, strlen(path) + 1);
  listener->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener->fd < 0)
    return error_set(error, STATUS_SYSTEM, "socket: %s", strerror(errno));
  mode_t before = umask((mode_t)(0777 & ~mode)); /* so that it never has other permissions, not for a moment */
  int rc = bind(listener->fd, (struct sockaddr *)&address, sizeof address);
  int reason = errno;
  umask(before);
  if (rc != 0)
    return error_set(error, STATUS_SYSTEM, "%.160s cannot be bound: %s", path, strerror(reason));
  snprintf(listener->path, sizeof listener->path, "%s", path);
  if (listen(listener->fd, BACKLOG) != 0)
    return error_set(error, STATUS_SYSTEM, "listen: %s", strerror(errno));
  return STATUS_OK;
}

/* ---- accepting */

/* Without this, a connection that cannot be accepted would keep the loop spinning. False where none waits: accept(2)
 * looks for a descriptor before it looks for a connection. */
static bool turn_away(struct listener *listener) {
  if (listener->spare >= 0)
    close(listener->spare);
  int client = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);
  if (client >= 0) {
    log_error("no descriptors left: a client is turned away"); /* said before the client sees it */
    close(client);
  }
  listener->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
  return client >= 0;
}

static void on_poll(uv_poll_t *poll, int status, int events) {
  struct supervisor *supervisor = poll->data;
  struct listener *listener = supervisor->listener;
  for (int i = 0; status == 0 && i < ACCEPTS_A_TURN && listener->open; i++) {
    int client = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client >= 0)
      supervisor->hooks->connected(supervisor, client);
    else if (errno == EMFILE || errno == ENFILE ? !turn_away(listener) : errno != EINTR && errno != ECONNABORTED)
      return;
  }
}

static enum status watch(struct supervisor *supervisor, struct error *error) {
  struct listener *listener = supervisor->listener;
  int rc = uv_poll_init(&supervisor->loop, &listener->poll, listener->fd);
  if (rc != 0)
    return error_set(error, STATUS_SYSTEM, "the socket cannot be watched: %s", uv_strerror(rc));
  listener->polled = true;
  listener->poll.data = supervisor;
  listener->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
  uv_poll_start(&listener->poll, UV_READABLE, on_poll);
  return STATUS_OK;
}

enum status listener_open(struct supervisor *supervisor, struct inherited *inherited, struct error *error) {
  struct listener *listener = supervisor->listener;
  const struct config *config = supervisor->config;
  listener->open = true;
  enum status status = take_inherited(listener, inherited, config->socket, error);
  if (status == STATUS_OK && listener->fd < 0)
    status = make_socket(listener, config->socket, config->socket_mode, error);
  if (status == STATUS_OK)
    status = watch(supervisor, error);
  if (status != STATUS_OK)
    listener_close(listener);
  return status;
}

void listener_pause(struct listener *listener) {
  listener->open = false;
  if (listener->polled)
    uv_close((uv_handle_t *)&listener->poll, NULL);
  listener->polled = false;
}

void listener_close(struct listener *listener) {
  if (listener->open)
    listener_pause(listener);
  if (listener->path[0] != '\0')
    unlink(listener->path);
  listener->path[0] = '\0';
  if (listener->fd >= 0)
    close(listener->fd);
  if (listener->spare >= 0)
    close(listener->spare);
  if (listener->lock >= 0)
    close(listener->lock); /* the file stays: to remove it would race with the next daemon's lock */
  listener->fd = listener->spare = listener->lock = -1;
}
