#include "transport.h"

#include "../proto/wire/rights.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static void close_plainly(int fd, void *payer) {
  close(fd);
}

static void (*close_received)(int fd, void *payer) = close_plainly;

void transport_close_by(void (*close_fd)(int fd, void *payer)) {
  close_received = close_fd;
}

enum status transport_send(int socket, const void *bytes, size_t length, const int *fds, size_t fd_count,
                           struct error *error) {
  if (length == 0 || length > LIMIT_MESSAGE_BYTES)
    return error_field(error, STATUS_TOO_LARGE, FIELD_BYTES, (int64_t)length, 1, LIMIT_MESSAGE_BYTES);
  if (fd_count > LIMIT_MESSAGE_FDS)
    return error_set(error, STATUS_TOO_LARGE, "a message carries at most %u descriptors, got %zu", LIMIT_MESSAGE_FDS,
                     fd_count);
  struct iovec part = {.iov_base = (void *)bytes, .iov_len = length};
  struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
  union rights rights;
  rights_put(&rights, &header, fds, fd_count);
  for (;;) {
    if (sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
      return STATUS_OK;
    switch (errno) {
    case EINTR:
      continue;
    case EAGAIN:
      return error_set(error, STATUS_BUSY, "the socket takes nothing at the moment");
    case EPIPE:
    case ECONNRESET:
    case ENOTCONN:
      return error_set(error, STATUS_DISCONNECTED, "the peer has closed the connection");
    default:
      return error_set(error, STATUS_SYSTEM, "sendmsg: %s", strerror(errno));
    }
  }
}

enum status transport_receive(int socket, struct packet *packet, struct error *error) {
  packet->length = 0;
  packet->fd_count = 0;
  struct iovec part = {.iov_base = packet->bytes, .iov_len = sizeof packet->bytes};
  struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
  union rights rights;
  rights_expect(&rights, &header);
  ssize_t length;
  do {
    length = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (length < 0 && errno == EINTR);
  if (length < 0) {
    if (errno == EAGAIN)
      return error_set(error, STATUS_BUSY, "no message waits");
    if (errno == ECONNRESET || errno == EPIPE || errno == ENOTCONN)
      return error_set(error, STATUS_DISCONNECTED, "the peer has closed the connection");
    return error_set(error, STATUS_SYSTEM, "recvmsg: %s", strerror(errno));
  }
  packet->fd_count = rights_take(&header, packet->fds);
  packet->length = (size_t)length;
  if (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
    packet_close(packet);
    return error_set(error, STATUS_PROTOCOL, "a message may have %u bytes and %u descriptors; more came",
                     LIMIT_MESSAGE_BYTES, LIMIT_MESSAGE_FDS);
  }
  if (length == 0) { /* the end; an empty record looks the same and means as little */
    packet_close(packet);
    return error_set(error, STATUS_DISCONNECTED, "the peer has closed the connection");
  }
  return STATUS_OK;
}

int packet_take_fd(struct packet *packet, size_t index) {
  if (index >= packet->fd_count)
    return -1;
  int fd = packet->fds[index];
  packet->fds[index] = -1;
  return fd;
}

void packet_close(struct packet *packet) {
  for (size_t i = 0; i < packet->fd_count; i++)
    if (packet->fds[i] >= 0)
      close_received(packet->fds[i], packet->payer);
  packet->fd_count = 0;
}
