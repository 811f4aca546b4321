#include "daemon/transport.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static int ends[2];
static struct packet packet;
static struct error failure;

static int open_pair(void **state) {
  memset(&failure, 0, sizeof failure);
  return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
}

static int close_pair(void **state) {
  packet_close(&packet);
  close(ends[0]);
  close(ends[1]);
  return 0;
}

static int open_descriptors(void) {
  int count = 0;
  DIR *directory = opendir("/proc/self/fd");
  assert_non_null(directory);
  while (readdir(directory) != NULL)
    count++;
  closedir(directory);
  return count;
}

static void records_arrive_whole_and_in_order(void **state) {
  static uint8_t large[LIMIT_MESSAGE_BYTES];
  for (size_t i = 0; i < sizeof large; i++)
    large[i] = (uint8_t)(i * 7);
  assert_int_equal(transport_send(ends[0], "a", 1, NULL, 0, &failure), STATUS_OK);
  assert_int_equal(transport_send(ends[0], large, sizeof large, NULL, 0, &failure), STATUS_OK);
  assert_int_equal(transport_receive(ends[1], &packet, &failure), STATUS_OK);
  assert_int_equal(packet.length, 1);
  assert_int_equal(packet.bytes[0], 'a');
  assert_int_equal(transport_receive(ends[1], &packet, &failure), STATUS_OK);
  assert_int_equal(packet.length, sizeof large);
  assert_memory_equal(packet.bytes, large, sizeof large);
  assert_int_equal(transport_receive(ends[1], &packet, &failure), STATUS_BUSY);
}

static void descriptors_travel(void **state) {
  int fds[LIMIT_MESSAGE_FDS];
  struct stat sent, got;
  for (size_t i = 0; i < LIMIT_MESSAGE_FDS; i++)
    fds[i] = i == 0 ? ends[0] : STDERR_FILENO;
  assert_int_equal(transport_send(ends[0], "x", 1, fds, LIMIT_MESSAGE_FDS, &failure), STATUS_OK);
  assert_int_equal(transport_receive(ends[1], &packet, &failure), STATUS_OK);
  assert_int_equal(packet.fd_count, LIMIT_MESSAGE_FDS);
  int fd = packet_take_fd(&packet, 0);
  assert_int_equal(fstat(ends[0], &sent), 0);
  assert_int_equal(fstat(fd, &got), 0);
  assert_int_equal(sent.st_ino, got.st_ino);
  assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  assert_int_equal(packet_take_fd(&packet, 0), -1);
  assert_int_equal(packet_take_fd(&packet, LIMIT_MESSAGE_FDS), -1);
  close(fd);
}

static void what_is_not_taken_is_closed(void **state) {
  int fds[] = {STDERR_FILENO, STDERR_FILENO, STDERR_FILENO};
  int before = open_descriptors();
  assert_int_equal(transport_send(ends[0], "x", 1, fds, 3, &failure), STATUS_OK);
  assert_int_equal(transport_receive(ends[1], &packet, &failure), STATUS_OK);
  assert_int_equal(open_descriptors(), before + 3);
  int fd = packet_take_fd(&packet, 1);
  packet_close(&packet);
  assert_int_equal(open_descriptors(), before + 1);
  assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  close(fd);
}

static void too_many_bytes_or_descriptors_are_not_sent(void **state) {
  static uint8_t large[LIMIT_MESSAGE_BYTES + 1];
  int fds[LIMIT_MESSAGE_FDS + 1] = {0};
  assert_int_equal(transport_send(ends[0], large, sizeof large, NULL, 0, &failure), STATUS_TOO_LARGE);
  assert_int_equal(failure.value, LIMIT_MESSAGE_BYTES + 1);
  assert_int_equal(transport_send(ends[0], large, 0, NULL, 0, &failure), STATUS_TOO_LARGE);
  assert_int_equal(transport_send(ends[0], "x", 1, fds, LIMIT_MESSAGE_FDS + 1, &failure), STATUS_TOO_LARGE);
  assert_int_equal(transport_receive(ends[1], &packet, &failure), STATUS_BUSY);
}

/* Sends as no well-behaved peer would. */
static void send_raw(const void *bytes, size_t length, size_t fd_count) {
  struct iovec part = {.iov_base = (void *)bytes, .iov_len = length};
  union {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(64 * sizeof(int))];
  } control = {.bytes = {0}};
  struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
  if (fd_count > 0) {
    header.msg_control = control.bytes;
    header.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
    struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
    for (size_t i = 0; i < fd_count; i++)
      memcpy(CMSG_DATA(rights) + i * sizeof(int), &(int){STDERR_FILENO}, sizeof(int));
  }
  assert_int_equal(sendmsg(ends[0], &header, MSG_NOSIGNAL), length);
}

static void a_truncated_record_closes_what_it_brought(void **state) {
  static uint8_t large[LIMIT_MESSAGE_BYTES + 1];
  int before = open_descriptors();
  send_raw(large, sizeof large, 3);
  assert_int_equal(transport_receive(ends[1], &packet, &failure), STATUS_PROTOCOL);
  assert_int_equal(packet.fd_count, 0);
  assert_int_equal(open_descriptors(), before);
}

static void more_descriptors_than_allowed_are_closed(void **state) {
  int before = open_descriptors();
  send_raw("x", 1, LIMIT_MESSAGE_FDS + 1);
  assert_int_equal(transport_receive(ends[1], &packet, &failure), STATUS_PROTOCOL);
  assert_int_equal(packet.fd_count, 0);
  send_raw("x", 1, 64);
  assert_int_equal(transport_receive(ends[1], &packet, &failure), STATUS_PROTOCOL);
  assert_int_equal(open_descriptors(), before);
  send_raw("y", 1, LIMIT_MESSAGE_FDS); /* the stream of records goes on */
  assert_int_equal(transport_receive(ends[1], &packet, &failure), STATUS_OK);
  assert_int_equal(packet.fd_count, LIMIT_MESSAGE_FDS);
}

static void a_full_socket_is_busy_and_loses_nothing(void **state) {
  static uint8_t bytes[4096];
  unsigned sent = 0;
  for (;; sent++) {
    memcpy(bytes, &sent, sizeof sent);
    if (transport_send(ends[0], bytes, sizeof bytes, NULL, 0, &failure) != STATUS_OK)
      break;
  }
  assert_int_equal(failure.status, STATUS_BUSY);
  assert_true(sent > 0);
  for (unsigned i = 0; i < sent; i++) {
    unsigned got;
    assert_int_equal(transport_receive(ends[1], &packet, &failure), STATUS_OK);
    memcpy(&got, packet.bytes, sizeof got);
    assert_int_equal(got, i);
  }
  assert_int_equal(transport_receive(ends[1], &packet, &failure), STATUS_BUSY);
}

static void a_peer_that_is_gone_is_told_apart(void **state) {
  assert_int_equal(transport_send(ends[0], "last", 4, NULL, 0, &failure), STATUS_OK);
  assert_int_equal(shutdown(ends[0], SHUT_RDWR), 0);
  assert_int_equal(transport_receive(ends[1], &packet, &failure), STATUS_OK); /* what was sent before counts */
  assert_int_equal(packet.length, 4);
  assert_int_equal(transport_receive(ends[1], &packet, &failure), STATUS_DISCONNECTED);
  assert_int_equal(transport_send(ends[1], "x", 1, NULL, 0, &failure), STATUS_DISCONNECTED);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(records_arrive_whole_and_in_order, open_pair, close_pair),
      cmocka_unit_test_setup_teardown(descriptors_travel, open_pair, close_pair),
      cmocka_unit_test_setup_teardown(what_is_not_taken_is_closed, open_pair, close_pair),
      cmocka_unit_test_setup_teardown(too_many_bytes_or_descriptors_are_not_sent, open_pair, close_pair),
      cmocka_unit_test_setup_teardown(a_truncated_record_closes_what_it_brought, open_pair, close_pair),
      cmocka_unit_test_setup_teardown(more_descriptors_than_allowed_are_closed, open_pair, close_pair),
      cmocka_unit_test_setup_teardown(a_full_socket_is_busy_and_loses_nothing, open_pair, close_pair),
      cmocka_unit_test_setup_teardown(a_peer_that_is_gone_is_told_apart, open_pair, close_pair),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
