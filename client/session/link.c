#include "link.h"
#include "exchange.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

enum status link_connect(struct gemmd_session *session) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  const char *path = session->path;
  memcpy(address.sun_path, path, strlen(path));
  session->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (session->socket < 0)
    return error_set(&session->error, STATUS_SYSTEM, "socket: %s", strerror(errno));
  /* Bounds the wait for a place in the daemon's queue. */
  struct timeval limit = {.tv_sec = (time_t)(session->timeout_ns / 1000000000),
                          .tv_usec = (suseconds_t)(session->timeout_ns % 1000000000 / 1000)};
  setsockopt(session->socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  while (connect(session->socket, (struct sockaddr *)&address, sizeof address) != 0) {
    if (errno == EINTR)
      continue;
    enum status status = errno == EAGAIN                            ? STATUS_TIMEOUT
                         : errno == EACCES || errno == EPERM        ? STATUS_PERMISSION
                         : errno == ENOENT || errno == ECONNREFUSED ? STATUS_DISCONNECTED
                                                                    : STATUS_SYSTEM;
    return error_set(&session->error, status, "cannot connect to %s: %s", path, strerror(errno));
  }
  return STATUS_OK;
}

enum status link_hello(struct gemmd_session *session, struct message_hello_reply *reply) {
  struct message_hello_request request = {.version_min = PROTOCOL_VERSION_MIN, .version_max = PROTOCOL_VERSION_MAX};
  memcpy(request.client, session->name, sizeof request.client);
  struct call call = {.command = COMMAND_hello, .request = &request, .reply = reply, .fd = -1};
  enum status status = exchange_call(session, &call);
  if (status != STATUS_OK)
    return status;
  if (reply->version < PROTOCOL_VERSION_MIN || reply->version > PROTOCOL_VERSION_MAX)
    return error_set(&session->error, STATUS_VERSION, "the daemon speaks version %u, this library %u to %u",
                     reply->version, PROTOCOL_VERSION_MIN, PROTOCOL_VERSION_MAX);
  return STATUS_OK;
}

enum status link_watch(struct gemmd_session *session) {
  struct epoll_event control = {.events = EPOLLIN}, wakeup = {.events = EPOLLIN};
  if (session->epoll < 0)
    session->epoll = epoll_create1(EPOLL_CLOEXEC);
  if (session->epoll < 0 || epoll_ctl(session->epoll, EPOLL_CTL_ADD, session->socket, &control) != 0 ||
      epoll_ctl(session->epoll, EPOLL_CTL_ADD, session->wakeup, &wakeup) != 0)
    return error_set(&session->error, STATUS_SYSTEM, "epoll: %s", strerror(errno));
  return STATUS_OK;
}
