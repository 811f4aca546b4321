#include "transport.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

union control {
  struct cmsghdr align;
  char bytes[CMSG_SPACE(LIMIT_MESSAGE_FDS * sizeof(int))];
};

enum status transport_send(int socket, const void *bytes, size_t length, const int *fds, size_t fd_count,
                           struct error *error) {
  if (length == 0 || length > LIMIT_MESSAGE_BYTES)
    return error_field(error, STATUS_TOO_LARGE, FIELD_BYTES, (int64_t)length, 1, LIMIT_MESSAGE_BYTES);
  if (fd_count > LIMIT_MESSAGE_FDS)
    return error_set(error, STATUS_TOO_LARGE, "a message carries at most %u descriptors, got %zu", LIMIT_MESSAGE_FDS,
                     fd_count);
  struct iovec part = {.iov_base = (void *)bytes, .iov_len = length};
  struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
  union control control;
  if (fd_count > 0) {
    memset(&control, 0, sizeof control);
    header.msg_control = control.bytes;
    header.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
    struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
    memcpy(CMSG_DATA(rights), fds, fd_count * sizeof(int));
  }
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

static void take_rights(struct msghdr *header, struct packet *packet) {
  for (struct cmsghdr *part = CMSG_FIRSTHDR(header); part != NULL; part = CMSG_NXTHDR(header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
      continue;
    size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
      int fd;
      memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      if (packet->fd_count < LIMIT_MESSAGE_FDS)
        packet->fds[packet->fd_count++] = fd;
      else
        close(fd);
    }
  }
}

enum status transport_receive(int socket, struct packet *packet, struct error *error) {
  packet->length = 0;
  packet->fd_count = 0;
  struct iovec part = {.iov_base = packet->bytes, .iov_len = sizeof packet->bytes};
  union control control;
  struct msghdr header = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
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
  take_rights(&header, packet);
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
      close(packet->fds[i]);
  packet->fd_count = 0;
}
