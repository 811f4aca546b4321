#include "notify.h"

#include "../../../proto/wire/rights.h"
#include "../../log.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

enum { PATIENCE_S = 5 };

static const char *socket_path(void) {
  const char *path = getenv("NOTIFY_SOCKET");
  return path != NULL && (*path == '/' || *path == '@') ? path : NULL;
}

bool notify_present(void) {
  return socket_path() != NULL;
}

void notify_nobody(void) {
  unsetenv("NOTIFY_SOCKET");
}

/* Says so once until it works again: there are two messages for each weight that is loaded. */
static void note_silence(const char *why) {
  static bool noted;
  if (why != NULL && !noted)
    log_warning("the service manager cannot be told: %s", why);
  noted = why != NULL;
}

static bool send_record(int socket, const struct sockaddr_un *address, socklen_t size, const char *state, int fd) {
  union rights rights;
  struct iovec part = {.iov_base = (void *)state, .iov_len = strlen(state)};
  struct msghdr header = {.msg_name = (void *)address, .msg_namelen = size, .msg_iov = &part, .msg_iovlen = 1};
  rights_put(&rights, &header, &fd, fd >= 0);
  while (sendmsg(socket, &header, MSG_NOSIGNAL) < 0) {
    if (errno == EINTR)
      continue;
    note_silence(strerror(errno));
    return false;
  }
  note_silence(NULL);
  return true;
}

bool notify_send_fd(const char *state, int fd) {
  const char *path = socket_path();
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (path == NULL)
    return false;
  size_t length = strlen(path);
  if (length >= sizeof address.sun_path) {
    note_silence("NOTIFY_SOCKET is longer than a socket's path may be");
    return false;
  }
  memcpy(address.sun_path, path, length);
  if (*path == '@') /* an abstract name */
    address.sun_path[0] = '\0';
  int to = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (to < 0) {
    note_silence(strerror(errno));
    return false;
  }
  /* A service manager that does not read must not keep the clients waiting for good. */
  const struct timeval patience = {.tv_sec = PATIENCE_S};
  setsockopt(to, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  bool sent = send_record(to, &address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length), state, fd);
  close(to);
  return sent;
}

void notify_send(const char *state) {
  (void)notify_send_fd(state, -1);
}

uint64_t notify_watchdog_ms(void) {
  const char *pid = getenv("WATCHDOG_PID"), *usec = getenv("WATCHDOG_USEC");
  if (usec == NULL || (pid != NULL && strtol(pid, NULL, 10) != (long)getpid()))
    return 0;
  return strtoull(usec, NULL, 10) / 1000;
}
