#include "notify.h"

#include "../log.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void notify_send(const char *state) {
  const char *path = getenv("NOTIFY_SOCKET");
  if (path == NULL || (*path != '/' && *path != '@'))
    return;
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  size_t length = strlen(path);
  if (length >= sizeof address.sun_path) {
    log_warning("NOTIFY_SOCKET is longer than a socket's path may be");
    return;
  }
  memcpy(address.sun_path, path, length);
  if (*path == '@') /* an abstract name */
    address.sun_path[0] = '\0';
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return;
  socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
  if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address, size) < 0)
    log_warning("the service manager cannot be told: %s", strerror(errno));
  close(fd);
}
