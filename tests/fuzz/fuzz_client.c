/* A daemon that answers what it likes: the bytes are records of a control socket, each behind its length, that the
 * library reads as answers to its calls. Descriptors come along where the first byte of a record says so. */
#include "client/session.h"
#include "proto/rights.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void send_record(int socket, const uint8_t *bytes, size_t length, unsigned fd_count) {
  int fds[2] = {memfd_create("fuzz", MFD_ALLOW_SEALING), memfd_create("fuzz", 0)};
  struct iovec part = {.iov_base = (void *)bytes, .iov_len = length};
  struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
  union rights rights;
  rights_put(&rights, &header, fds, fd_count % 3);
  (void)!sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
  close(fds[0]);
  close(fds[1]);
}

static bool each(void *user, const gemmd_weight_info *info) {
  (void)user;
  return info->n > 0;
}

static bool each_shape(void *user, const gemmd_tune_shape *shape) {
  (void)user;
  return shape->calls > 0;
}

static void play_tuning(gemmd_session *session) {
  static gemmd_tune_report report;
  const gemmd_tune_request request = {.weight = "w", .m = 1, .x_type = GEMMD_F16, .y_type = GEMMD_F16};
  uint32_t count;
  char *text = NULL;
  (void)gemmd_tune_list(session, 0, each_shape, NULL);
  (void)gemmd_tune(session, &request, &report);
  (void)gemmd_tune_forget(session, 0, "*", &count);
  (void)gemmd_tune_pin(session, "*", NULL, &count);
  if (gemmd_metrics(session, &text) == GEMMD_OK)
    free(text);
}

static void play(gemmd_session *session) {
  static struct message_hello_reply hello;
  static gemmd_daemon_info info;
  gemmd_weight_info weight_info;
  gemmd_weight *weight;
  if (session_hello(session, &hello) != STATUS_OK && session->ended)
    return;
  (void)gemmd_ping(session, NULL);
  (void)gemmd_daemon_status(session, &info);
  (void)gemmd_weight_stat(session, "w", &weight_info);
  (void)gemmd_weight_list(session, NULL, each, NULL);
  if (gemmd_weight_open(session, "w", &weight) == GEMMD_OK)
    gemmd_weight_close(weight);
  (void)gemmd_weight_unload(session, "w", NULL);
  play_tuning(session);
  control_look(session);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
    return 0;
  gemmd_session *session = calloc(1, sizeof *session);
  if (session == NULL)
    return 0;
  session->socket = pair[0];
  session->wakeup = session->epoll = session->memfd = -1;
  session->devices = 2;
  for (size_t at = 0; at + 3 < size;) {
    size_t length = ((size_t)data[at + 1] << 8 | data[at + 2]) % 4096 + 1;
    if (length > size - at - 3)
      length = size - at - 3;
    send_record(pair[1], data + at + 3, length, data[at]);
    at += 3 + length;
  }
  shutdown(pair[1], SHUT_WR); /* a missing answer is the end, and not a wait */
  play(session);
  gemmd_disconnect(session);
  close(pair[1]);
  return 0;
}
