#include "transport.h"

#include "../../proto/wire/rights.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

void packet_close(struct packet *packet) {
  for (size_t i = 0; i < packet->fd_count; i++)
    close(packet->fds[i]);
  packet->fd_count = 0;
}

enum status packet_receive(struct gemmd_session *session, struct packet *packet) {
  union rights rights;
  struct iovec part = {.iov_base = session->packet, .iov_len = sizeof session->packet};
  struct msghdr header;
  ssize_t length;
  packet->fd_count = 0;
  /* ECONNRESET says once that the daemon left something unread when it closed; what it had sent may still be read. */
  do {
    header = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1};
    rights_expect(&rights, &header);
    length = recvmsg(session->socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (length < 0 && (errno == EINTR || errno == ECONNRESET));
  if (length < 0) {
    if (errno == EAGAIN)
      return STATUS_BUSY;
    return session_end(session, STATUS_SYSTEM, "recvmsg: %s", strerror(errno));
  }
  packet->fd_count = rights_take(&header, packet->fds);
  packet->length = (size_t)length;
  packet->cut = (header.msg_flags & MSG_CTRUNC) != 0;
  if (header.msg_flags & MSG_TRUNC) {
    packet_close(packet);
    return session_end(session, STATUS_PROTOCOL, "a message came with more bytes or descriptors than can be taken");
  }
  if (length == 0) {
    packet_close(packet);
    return session_end(session, STATUS_DISCONNECTED, "the daemon has closed the connection");
  }
  return STATUS_OK;
}

enum status packet_send(struct gemmd_session *session, size_t length, const int *fds, size_t fd_count,
                        int64_t deadline) {
  union rights rights;
  struct iovec part = {.iov_base = session->packet, .iov_len = length};
  struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
  rights_put(&rights, &header, fds, fd_count);
  while (sendmsg(session->socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    struct pollfd writable = {.fd = session->socket, .events = POLLOUT};
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
      return STATUS_OK;
    if (errno == EBADF)
      return error_set(&session->error, STATUS_BAD_DESCRIPTOR, "descriptor %d is not open", fd_count > 0 ? fds[0] : -1);
    if (errno != EINTR && errno != EAGAIN)
      return error_set(&session->error, STATUS_SYSTEM, "sendmsg: %s", strerror(errno));
    if (errno == EAGAIN && clock_poll(&writable, 1, deadline) == 0)
      return error_set(&session->error, STATUS_TIMEOUT, "the daemon takes no messages");
  }
  return STATUS_OK;
}
