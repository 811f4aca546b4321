#include "raw.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATIENCE_MS = 60000, ARENA_BYTES = 1 << 20 };

int raw_connect(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  assert_true(fd >= 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
  return fd;
}

void raw_send(int socket, const void *bytes, size_t length, const int *fds, size_t fd_count) {
  union {
    char bytes[CMSG_SPACE(32 * sizeof(int))];
    struct cmsghdr align;
  } control = {.bytes = {0}};
  struct iovec data = {.iov_base = (void *)bytes, .iov_len = length};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
  if (fd_count > 0) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(fd_count * sizeof(int))};
    memcpy(CMSG_DATA(header), fds, fd_count * sizeof(int));
  }
  assert_int_equal(sendmsg(socket, &message, MSG_NOSIGNAL), (ssize_t)length);
}

static void take_descriptors(struct msghdr *message, struct raw_reply *reply) {
  reply->fd_count = 0;
  for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL; header = CMSG_NXTHDR(message, header)) {
    assert_int_equal(header->cmsg_type, SCM_RIGHTS);
    reply->fd_count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    assert_true(reply->fd_count <= LIMIT_MESSAGE_FDS);
    memcpy(reply->fds, CMSG_DATA(header), reply->fd_count * sizeof(int));
  }
}

/* Bytes of the next record; 0 at the end. */
static size_t receive(int socket, uint8_t *bytes, size_t room, struct raw_reply *reply) {
  union {
    char bytes[CMSG_SPACE(LIMIT_MESSAGE_FDS * sizeof(int))];
    struct cmsghdr align;
  } control;
  struct iovec data = {.iov_base = bytes, .iov_len = room};
  struct msghdr message = {
      .msg_iov = &data, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control};
  struct pollfd ready = {.fd = socket, .events = POLLIN};
  assert_int_equal(poll(&ready, 1, PATIENCE_MS), 1);
  ssize_t length = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (length <= 0) {
    assert_true(length == 0 || errno == ECONNRESET);
    return 0;
  }
  assert_int_equal(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC), 0);
  take_descriptors(&message, reply);
  return (size_t)length;
}

bool raw_receive(int socket, uint32_t id, const struct message_type *type, void *out, struct raw_reply *reply) {
  static uint8_t bytes[LIMIT_MESSAGE_BYTES];
  struct message_head head;
  struct message_body body;
  struct error error;
  size_t length = receive(socket, bytes, sizeof bytes, reply);
  if (length == 0)
    return false;
  assert_int_equal(message_decode_head(bytes, length, &head, &body, &error), STATUS_OK);
  assert_int_equal(head.kind, MESSAGE_REPLY);
  assert_int_equal(head.id, id);
  reply->status = (enum status)head.code;
  if (head.code != STATUS_OK)
    message_decode_failure(head.code, body, &reply->error);
  else if (out != NULL)
    assert_int_equal(message_decode_body(body, type, out, &error), STATUS_OK);
  return true;
}

bool raw_ask(int socket, enum command command, const void *body, const int *fds, size_t fd_count, void *out,
             struct raw_reply *reply) {
  static uint8_t bytes[LIMIT_MESSAGE_BYTES];
  static uint32_t last_id;
  const struct command_info *info = command_find(command);
  struct message_head head = {.kind = MESSAGE_REQUEST, .id = ++last_id, .code = command};
  struct error error;
  size_t length;
  assert_int_equal(message_encode(&head, info->request, body, bytes, sizeof bytes, &length, &error), STATUS_OK);
  raw_send(socket, bytes, length, fds, fd_count);
  return raw_receive(socket, head.id, info->reply, out, reply);
}

void raw_expect_end(int socket) {
  static uint8_t bytes[LIMIT_MESSAGE_BYTES];
  struct raw_reply reply;
  for (int replies = 0; receive(socket, bytes, sizeof bytes, &reply) > 0; replies++)
    assert_int_equal(replies, 0);
  close(socket);
}

/* ---- sessions */

static void ask_ok(int socket, enum command command, const void *body, void *out, struct raw_reply *reply) {
  assert_true(raw_ask(socket, command, body, NULL, 0, out, reply));
  if (reply->status != STATUS_OK)
    fail_msg("%s: %s", command_find(command)->name, reply->error.text);
}

void raw_open(struct raw_session *session, const char *path, uint32_t entries, const char *weight) {
  struct raw_reply reply;
  struct message_hello_request hello = {.version_min = 1, .version_max = 1, .client = "raw"};
  struct message_arena_request arena = {.bytes = ARENA_BYTES, .entries = entries};
  struct message_arena_reply made;
  struct message_weight_name name;
  struct message_weight_info info;
  *session = (struct raw_session){.socket = raw_connect(path)};
  ask_ok(session->socket, COMMAND_hello, &hello, NULL, &reply);
  ask_ok(session->socket, COMMAND_arena_create, &arena, &made, &reply);
  assert_int_equal(reply.fd_count, 2);
  session->wakeup = reply.fds[1];
  session->bytes = made.bytes;
  session->arena = mmap(NULL, made.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, reply.fds[0], 0);
  assert_true(session->arena != MAP_FAILED);
  close(reply.fds[0]);
  session->tensor_offset = ((const struct ring_header *)session->arena)->tensor_offset;
  snprintf(name.name, sizeof name.name, "%s", weight);
  ask_ok(session->socket, COMMAND_weight_open, &name, &info, &reply);
  assert_int_equal(info.parts_count, 1);
  session->handle = info.parts[0].handle;
  struct message_queue_open queue = {.device = info.parts[0].device};
  ask_ok(session->socket, COMMAND_queue_open, &queue, NULL, &reply);
  assert_int_equal(reply.fd_count, 1);
  session->doorbell = reply.fds[0];
  ring_client_init(&session->ring, session->arena, made.entries, queue.device);
}

void raw_close(struct raw_session *session) {
  munmap(session->arena, session->bytes);
  close(session->doorbell);
  close(session->wakeup);
  close(session->socket);
}

void raw_ring(struct raw_session *session) {
  uint64_t one = 1;
  assert_int_equal(write(session->doorbell, &one, sizeof one), sizeof one);
}

void raw_submit(struct raw_session *session, const struct ring_submission *submission, struct ring_completion *out) {
  struct pollfd woken = {.fd = session->wakeup, .events = POLLIN};
  bool wake;
  assert_true(ring_client_submit(&session->ring, submission, &wake));
  if (wake)
    raw_ring(session);
  while (!ring_client_take(&session->ring, out)) {
    uint64_t count;
    if (!ring_client_sleep(&session->ring))
      continue;
    assert_int_equal(poll(&woken, 1, PATIENCE_MS), 1);
    assert_int_equal(read(session->wakeup, &count, sizeof count), sizeof count);
    ring_client_awake(&session->ring);
  }
}
