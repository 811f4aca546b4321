/* The loader as a process of its own, as the supervisor starts it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/loader/loader.h"
#include "daemon/memfd.h"
#include "daemon/transport.h"
#include "tests/support/worker/loading.h"

static pid_t start_loader(int *control) {
  int pair[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    struct config config;
    config_defaults(&config);
    strcpy(config.log_level, "error");
    close(pair[0]);
    _exit(loader_run(&config, pair[1]));
  }
  close(pair[1]);
  *control = pair[0];
  return pid;
}

/* Of all processes the one that the kernel ends first where memory ends. */
static void expect_first_to_go(pid_t pid) {
  char path[64], score[16] = "";
  snprintf(path, sizeof path, "/proc/%d/oom_score_adj", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  assert_true(fd >= 0);
  assert_true(read(fd, score, sizeof score - 1) > 0);
  close(fd);
  assert_string_equal(score, "1000\n");
}

static void expect_exit(pid_t pid, int code) {
  int status = 0;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), code);
}

static void send_load(int control, uint32_t command, const struct message_weight_load *request, int fd) {
  static uint8_t bytes[LIMIT_MESSAGE_BYTES];
  struct message_head head = {.kind = MESSAGE_REQUEST, .id = 42, .code = command};
  size_t length = 0;
  struct error error;
  assert_int_equal(message_encode(&head, &message_weight_load_type, request, bytes, sizeof bytes, &length, &error),
                   STATUS_OK);
  assert_int_equal(transport_send(control, bytes, length, &fd, fd >= 0 ? 1 : 0, &error), STATUS_OK);
}

static void receive(int control, struct packet *packet, struct message_head *head, struct message_body *body) {
  struct pollfd ready = {.fd = control, .events = POLLIN};
  struct error error;
  assert_int_equal(poll(&ready, 1, 60000), 1);
  assert_int_equal(transport_receive(control, packet, &error), STATUS_OK);
  assert_int_equal(message_decode_head(packet->bytes, packet->length, head, body, &error), STATUS_OK);
}

static void test_process_loads(void **state) {
  float *values = loading_values(300 * 1000);
  int fd = loading_f32(values, 300, 1000), control, events = 0;
  struct message_weight_load request = loading_request(GEMM_FORMAT_INT2, GEMM_SCALE_GROUP);
  struct loaded expected = loading_run(fd, &request, 1);
  pid_t pid = start_loader(&control);
  request.progress = true;
  send_load(control, COMMAND_load, &request, fd);
  struct packet *packet = malloc(sizeof *packet);
  struct message_head head;
  struct message_body body;
  struct message_weight_progress progress = {0};
  struct error error;
  assert_non_null(packet);
  for (receive(control, packet, &head, &body); head.kind == MESSAGE_EVENT; receive(control, packet, &head, &body)) {
    assert_int_equal(head.code, EVENT_weight_progress);
    uint64_t before = progress.done;
    assert_int_equal(message_decode_body(body, &message_weight_progress_type, &progress, &error), STATUS_OK);
    assert_int_equal(progress.request, 42);
    assert_true(progress.done > before && progress.done <= progress.total);
    events++;
  }
  assert_true(events >= 1);
  assert_int_equal(progress.done, progress.total);
  assert_int_equal(head.kind, MESSAGE_REPLY);
  assert_int_equal(head.id, 42);
  assert_int_equal(head.code, STATUS_OK);
  struct message_load_done done;
  assert_int_equal(message_decode_body(body, &message_load_done_type, &done, &error), STATUS_OK);
  assert_memory_equal(done.hash, expected.done.hash, 32);
  assert_int_equal(done.bytes, expected.done.bytes);
  int memfd = packet_take_fd(packet, 0);
  assert_int_equal(memfd_check(memfd, done.bytes, true, &error), STATUS_OK);
  uint8_t *bytes = memfd_map(memfd, done.bytes, false, &error);
  assert_non_null(bytes);
  assert_memory_equal(bytes, expected.bytes, done.bytes);
  munmap(bytes, done.bytes);
  close(memfd);
  expect_first_to_go(pid);
  close(control);
  expect_exit(pid, 0);
  free(packet);
  loading_free(&expected);
  close(fd);
  free(values);
}

static void expect_failure(uint32_t command, const struct message_weight_load *request, int fd, enum status status,
                           const char *reason) {
  int control;
  pid_t pid = start_loader(&control);
  send_load(control, command, request, fd);
  struct packet *packet = malloc(sizeof *packet);
  struct message_head head;
  struct message_body body;
  struct error error;
  assert_non_null(packet);
  receive(control, packet, &head, &body);
  assert_int_equal(head.kind, MESSAGE_REPLY);
  assert_int_equal(head.id, 42);
  assert_int_equal(head.code, status);
  assert_int_equal(packet->fd_count, 0);
  message_decode_failure(head.code, body, &error);
  if (!strstr(error.text, reason))
    fail_msg("'%s' does not say '%s'", error.text, reason);
  packet_close(packet);
  free(packet);
  close(control);
  expect_exit(pid, 0);
}

static void test_process_refuses(void **state) {
  const float values[] = {1};
  int fd = loading_f32(values, 1, 1);
  struct message_weight_load request = loading_request(GEMM_FORMAT_INT8, GEMM_SCALE_ROW);
  expect_failure(COMMAND_weight_load, &request, fd, STATUS_PROTOCOL, "takes the request load");
  expect_failure(COMMAND_load, &request, -1, STATUS_PROTOCOL, "brings 1 descriptor, got 0");
  strcpy(request.tensor, "none");
  expect_failure(COMMAND_load, &request, fd, STATUS_NOT_FOUND, "no tensor 'none'");
  close(fd);
}

static void test_process_ends_with_its_socket(void **state) {
  int control;
  pid_t pid = start_loader(&control);
  close(control);
  expect_exit(pid, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_process_loads),
      cmocka_unit_test(test_process_refuses),
      cmocka_unit_test(test_process_ends_with_its_socket),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
