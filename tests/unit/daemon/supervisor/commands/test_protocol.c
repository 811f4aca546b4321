/* What a client may send, and what it is told: every refusal names its reason, and only nonsense ends a session. */
#include "daemon/memfd.h"
#include "proto/shm/ring.h"
#include "tests/support/messages/peer.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static pid_t supervisor;
static int peer;
static struct error failure;
static struct peer_reply reply;
static const struct message_empty nothing;

static int start(void **state) {
  static struct config config;
  peer_config(&config);
  config.arena_bytes_max = 1 << 20;
  supervisor = peer_start_embedded(&config, &peer);
  return 0;
}

/* The daemon ends with the client, in order, and nothing is left over. */
static int stop(void **state) {
  close(peer);
  return peer_wait(supervisor);
}

/* ---- states and versions */

static void hello_comes_first_and_once(void **state) {
  struct message_ping ping = {.payload = 1};
  struct message_hello_request hello = {.version_min = 1, .version_max = 9, .client = "test"};
  assert_int_equal(peer_ask(peer, COMMAND_ping, &ping, NULL, 0, NULL, &failure), STATUS_WRONG_STATE);
  assert_non_null(strstr(failure.text, "hello comes first"));
  assert_int_equal(peer_ask(peer, COMMAND_hello, &hello, NULL, 0, NULL, &failure), STATUS_OK);
  assert_int_equal(peer_ask(peer, COMMAND_hello, &hello, NULL, 0, NULL, &failure), STATUS_WRONG_STATE);
  peer_expect_alive(peer);
}

static void hello_agrees_on_a_version_or_says_which_there_are(void **state) {
  struct message_hello_request hello = {.version_min = 2, .version_max = 3, .client = "test"};
  struct message_hello_reply answer;
  assert_int_equal(peer_ask(peer, COMMAND_hello, &hello, NULL, 0, NULL, &failure), STATUS_VERSION);
  assert_non_null(strstr(failure.text, "2..3"));
  hello.version_min = 3;
  hello.version_max = 1;
  assert_int_equal(peer_ask(peer, COMMAND_hello, &hello, NULL, 0, NULL, &failure), STATUS_VERSION);
  hello.version_min = 0;
  hello.version_max = UINT32_MAX;
  assert_int_equal(peer_ask(peer, COMMAND_hello, &hello, NULL, 0, &answer, &failure), STATUS_OK);
  assert_int_equal(answer.version, 1);
  assert_int_equal(answer.devices, 1);
  assert_string_equal(answer.backend, "cpu");
  assert_int_equal(answer.arena_bytes_max, 1 << 20);
  assert_int_equal(answer.entries_max, LIMIT_RING_ENTRIES);
  assert_int_not_equal(answer.session, 0);
}

static void requests_behind_hello_wait_for_it(void **state) {
  struct message_hello_request hello = {.version_min = 1, .version_max = 1, .client = "test"};
  struct message_ping ping = {.payload = 5}, pong;
  struct message_hello_reply answer;
  peer_send(peer, 1, COMMAND_hello, &message_hello_request_type, &hello, NULL, 0);
  peer_send(peer, 2, COMMAND_ping, &message_ping_type, &ping, NULL, 0);
  peer_receive(peer, 1, &message_hello_reply_type, &answer, &reply);
  assert_int_equal(reply.status, STATUS_OK);
  peer_receive(peer, 2, &message_ping_type, &pong, &reply);
  assert_int_equal(reply.status, STATUS_OK);
  assert_int_equal(pong.payload, 5);
}

static void an_arena_comes_before_what_needs_it(void **state) {
  struct message_weight_name name = {.name = "w"};
  struct message_queue_open queue = {.device = 0};
  peer_hello(peer);
  assert_int_equal(peer_ask(peer, COMMAND_weight_open, &name, NULL, 0, NULL, &failure), STATUS_WRONG_STATE);
  assert_non_null(strstr(failure.text, "an arena comes first"));
  assert_int_equal(peer_ask(peer, COMMAND_queue_open, &queue, NULL, 0, NULL, &failure), STATUS_WRONG_STATE);
  peer_arena(peer, 4);
  assert_int_equal(peer_ask(peer, COMMAND_weight_open, &name, NULL, 0, NULL, &failure), STATUS_NOT_FOUND);
}

/* ---- generic refusals */

static void commands_that_are_not_for_clients_are_refused(void **state) {
  struct message_slab_free slab = {.slab = 1};
  peer_hello(peer);
  assert_int_equal(peer_ask(peer, COMMAND_slab_free, &slab, NULL, 0, NULL, &failure), STATUS_PERMISSION);
  assert_non_null(strstr(failure.text, "slab_free"));
  assert_int_equal(peer_ask(peer, COMMAND_worker_stats, &nothing, NULL, 0, NULL, &failure), STATUS_PERMISSION);
  peer_send(peer, 9, 4711, &message_empty_type, &nothing, NULL, 0);
  peer_receive(peer, 9, NULL, NULL, &reply);
  assert_int_equal(reply.status, STATUS_UNSUPPORTED);
  assert_non_null(strstr(reply.error.text, "4711"));
  peer_expect_alive(peer);
}

static void the_number_of_descriptors_is_checked(void **state) {
  struct message_weight_load load = peer_load("w");
  struct message_ping ping = {.payload = 1};
  int fds[] = {STDERR_FILENO, STDERR_FILENO};
  peer_hello(peer);
  assert_int_equal(peer_ask(peer, COMMAND_weight_load, &load, NULL, 0, NULL, &failure), STATUS_BAD_DESCRIPTOR);
  assert_int_equal(peer_ask(peer, COMMAND_weight_load, &load, fds, 2, NULL, &failure), STATUS_BAD_DESCRIPTOR);
  assert_int_equal(peer_ask(peer, COMMAND_ping, &ping, fds, 1, NULL, &failure), STATUS_BAD_DESCRIPTOR);
  peer_expect_alive(peer);
}

static void a_body_that_does_not_fit_ends_the_session_with_a_reason(void **state) {
  peer_hello(peer);
  peer_send(peer, 0, COMMAND_ping, &message_empty_type, &nothing, NULL, 0); /* payload is missing; 0 is an id, too */
  peer_receive(peer, 0, NULL, NULL, &reply);
  assert_int_equal(reply.status, STATUS_PROTOCOL);
  assert_non_null(strstr(reply.error.text, "payload"));
  peer_expect_end(peer);
}

static void garbage_ends_the_session(void **state) {
  static const uint8_t garbage[] = {0xc1, 0xff, 0x00, 0x93};
  peer_hello(peer);
  assert_int_equal(send(peer, garbage, sizeof garbage, MSG_NOSIGNAL), sizeof garbage);
  peer_expect_end(peer);
}

static void an_event_from_a_client_ends_the_session(void **state) {
  static uint8_t bytes[LIMIT_MESSAGE_BYTES];
  struct message_head head = {.kind = MESSAGE_EVENT, .id = 0, .code = EVENT_session_broken};
  struct message_session_broken body = {.session = 1, .text = "x"};
  size_t length;
  assert_int_equal(message_encode(&head, &message_session_broken_type, &body, bytes, sizeof bytes, &length, &failure),
                   STATUS_OK);
  assert_int_equal(send(peer, bytes, length, MSG_NOSIGNAL), length);
  peer_expect_end(peer);
}

static void a_record_that_is_too_long_ends_the_session(void **state) {
  static uint8_t bytes[LIMIT_MESSAGE_BYTES + 1];
  assert_int_equal(send(peer, bytes, sizeof bytes, MSG_NOSIGNAL), sizeof bytes);
  peer_expect_end(peer);
}

static void a_client_that_does_not_read_is_cut_off(void **state) {
  static uint8_t bytes[LIMIT_MESSAGE_BYTES];
  struct message_head head = {.kind = MESSAGE_REQUEST, .id = 1, .code = COMMAND_status};
  size_t length;
  enum status status;
  peer_hello(peer);
  assert_int_equal(message_encode(&head, &message_empty_type, &nothing, bytes, sizeof bytes, &length, &failure),
                   STATUS_OK);
  do {
    struct pollfd poller = {.fd = peer, .events = POLLOUT};
    assert_int_equal(poll(&poller, 1, 60000), 1);
    status = transport_send(peer, bytes, length, NULL, 0, &failure);
  } while (status == STATUS_OK || status == STATUS_BUSY);
  assert_int_equal(status, STATUS_DISCONNECTED);
}

/* ---- the arena */

static enum status ask_arena(uint64_t bytes, uint32_t entries) {
  struct message_arena_request request = {.bytes = bytes, .entries = entries};
  return peer_ask(peer, COMMAND_arena_create, &request, NULL, 0, NULL, &failure);
}

static void an_arena_has_its_bounds(void **state) {
  peer_hello(peer);
  assert_int_equal(ask_arena(0, 4), STATUS_INVALID);
  assert_int_equal(failure.field, FIELD_BYTES);
  assert_int_equal(ask_arena((1 << 20) + 1, 4), STATUS_TOO_LARGE);
  assert_int_equal(failure.high, 1 << 20);
  assert_int_equal(ask_arena(UINT64_MAX, 4), STATUS_TOO_LARGE);
  assert_int_equal(ask_arena(4096, 0), STATUS_INVALID);
  assert_int_equal(ask_arena(4096, 3), STATUS_INVALID);
  assert_int_equal(failure.field, FIELD_ENTRIES);
  assert_string_equal(failure.text, "entries must be a power of two of 1..256, got 3");
  assert_int_equal(ask_arena(4096, 2 * LIMIT_RING_ENTRIES), STATUS_INVALID);
  assert_int_equal(ask_arena(1 << 20, LIMIT_RING_ENTRIES), STATUS_OK);
  assert_int_equal(ask_arena(4096, 4), STATUS_WRONG_STATE);
}

static void an_arena_is_sealed_and_its_rings_are_ready(void **state) {
  struct message_arena_request request = {.bytes = 1, .entries = 4};
  struct message_arena_reply arena;
  struct message_queue_open queue = {.device = 0};
  peer_hello(peer);
  peer_send(peer, 3, COMMAND_arena_create, &message_arena_request_type, &request, NULL, 0);
  peer_receive(peer, 3, &message_arena_reply_type, &arena, &reply);
  assert_int_equal(reply.status, STATUS_OK);
  assert_int_equal(reply.packet.fd_count, 2);
  assert_int_equal(memfd_check(reply.packet.fds[0], arena.bytes, false, &failure), STATUS_OK);
  struct ring_header *header = memfd_map(reply.packet.fds[0], arena.bytes, true, &failure);
  assert_non_null(header);
  assert_int_equal(ring_header_check(header, arena.bytes, &failure), STATUS_OK);
  assert_int_equal(header->devices, 1);
  assert_true(arena.bytes - header->tensor_offset >= 1);
  struct ring_client ring;
  ring_client_init(&ring, header, 4, 0);
  assert_int_equal(ring_client_worker_state(&ring), RING_WORKER_READY);
  assert_false(ring_client_replaced(&ring));
  munmap(header, arena.bytes);
  packet_close(&reply.packet);
  peer_send(peer, 4, COMMAND_queue_open, &message_queue_open_type, &queue, NULL, 0);
  peer_receive(peer, 4, &message_queue_open_type, &queue, &reply);
  assert_int_equal(reply.packet.fd_count, 1);
  packet_close(&reply.packet);
  queue.device = 1;
  assert_int_equal(peer_ask(peer, COMMAND_queue_open, &queue, NULL, 0, NULL, &failure), STATUS_INVALID);
  assert_int_equal(failure.field, FIELD_DEVICE);
}

/* ---- loads that are refused */

static void load_requests_are_checked(void **state) {
  int file = peer_file(4, 4, 1);
  struct message_weight_load load;
  peer_hello(peer);
#define REFUSED(change, expected, words)                                                                               \
  load = peer_load("w");                                                                                               \
  change;                                                                                                              \
  assert_int_equal(peer_ask(peer, COMMAND_weight_load, &load, &file, 1, NULL, &failure), expected);                    \
  assert_non_null(strstr(failure.text, words))
  REFUSED(load.name[0] = '\0', STATUS_INVALID, "name");
  REFUSED(load.tensor[0] = '\0', STATUS_INVALID, "tensor");
  REFUSED(load.format = 0, STATUS_INVALID, "format");
  REFUSED(load.format = GEMM_FORMATS, STATUS_INVALID, "format");
  REFUSED(load.scale = GEMM_SCALES, STATUS_INVALID, "scale");
  REFUSED(load.scale = GEMM_SCALE_GROUP, STATUS_INVALID, "scale mode group");
  REFUSED(load.method = GEMM_METHOD_TERNARY, STATUS_INVALID, "method");
  REFUSED(load.method = 9, STATUS_INVALID, "method");
  REFUSED(load.placement = 3, STATUS_INVALID, "placement");
  REFUSED(load.device = 1, STATUS_INVALID, "device");
  REFUSED(strcpy(load.tensor, "missing"), STATUS_NOT_FOUND, "missing");
#undef REFUSED
  close(file);
  peer_expect_alive(peer);
}

static enum status load_from(int fd) {
  struct message_weight_load load = peer_load("w");
  enum status status = peer_ask(peer, COMMAND_weight_load, &load, &fd, 1, NULL, &failure);
  close(fd);
  return status;
}

static void only_readable_regular_files_are_loaded(void **state) {
  int pair[2];
  peer_hello(peer);
  assert_int_equal(pipe(pair), 0);
  assert_int_equal(load_from(pair[0]), STATUS_BAD_DESCRIPTOR);
  close(pair[1]);
  assert_int_equal(load_from(open("/", O_RDONLY)), STATUS_BAD_DESCRIPTOR);
  assert_int_equal(load_from(open("/dev/zero", O_RDONLY)), STATUS_BAD_DESCRIPTOR);
  assert_int_equal(load_from(open("/proc/self/exe", O_PATH)), STATUS_BAD_DESCRIPTOR);
  assert_int_equal(load_from(open("/tmp", O_TMPFILE | O_WRONLY, 0600)), STATUS_BAD_DESCRIPTOR);
  assert_non_null(strstr(failure.text, "not open for reading"));
  assert_int_equal(load_from(open("/proc/self/exe", O_RDONLY)), STATUS_BAD_FILE);
  assert_int_equal(load_from(open("/tmp", O_TMPFILE | O_RDWR, 0600)), STATUS_BAD_FILE);
  peer_expect_alive(peer);
}

int main(int count, char **words) {
  peer_main(count, words);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(hello_comes_first_and_once, start, stop),
      cmocka_unit_test_setup_teardown(hello_agrees_on_a_version_or_says_which_there_are, start, stop),
      cmocka_unit_test_setup_teardown(requests_behind_hello_wait_for_it, start, stop),
      cmocka_unit_test_setup_teardown(an_arena_comes_before_what_needs_it, start, stop),
      cmocka_unit_test_setup_teardown(commands_that_are_not_for_clients_are_refused, start, stop),
      cmocka_unit_test_setup_teardown(the_number_of_descriptors_is_checked, start, stop),
      cmocka_unit_test_setup_teardown(a_body_that_does_not_fit_ends_the_session_with_a_reason, start, stop),
      cmocka_unit_test_setup_teardown(garbage_ends_the_session, start, stop),
      cmocka_unit_test_setup_teardown(an_event_from_a_client_ends_the_session, start, stop),
      cmocka_unit_test_setup_teardown(a_record_that_is_too_long_ends_the_session, start, stop),
      cmocka_unit_test_setup_teardown(a_client_that_does_not_read_is_cut_off, start, stop),
      cmocka_unit_test_setup_teardown(an_arena_has_its_bounds, start, stop),
      cmocka_unit_test_setup_teardown(an_arena_is_sealed_and_its_rings_are_ready, start, stop),
      cmocka_unit_test_setup_teardown(load_requests_are_checked, start, stop),
      cmocka_unit_test_setup_teardown(only_readable_regular_files_are_loaded, start, stop),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
