/* What a hostile or broken daemon may answer. While a client connects the library must refuse it with a status and a
 * sentence, and give everything back; a session that has begun ends, or the answer is dropped. */
#include "client/gemmclient.h"
#include "proto/shm/ring.h"
#include "proto/wire/message.h"
#include "tests/support/messages/liar.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { SHORT_MS = 30 };

/* ---- lies at hello */

static void hello_closes(struct liar *liar) {
  shutdown(liar->socket, SHUT_RDWR);
}

static void hello_is_no_msgpack(struct liar *liar) {
  liar_send(liar, "\xc1\xc1\xc1", 3, NULL, 0);
}

static void hello_is_half(struct liar *liar) {
  liar_send(liar, "\x94\x01\x01\x00", 4, NULL, 0);
}

static void hello_is_too_long(struct liar *liar) {
  static const char zeros[LIMIT_MESSAGE_BYTES + 1];
  int size = 4 * (int)LIMIT_MESSAGE_BYTES;
  setsockopt(liar->socket, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  liar_send(liar, zeros, sizeof zeros, NULL, 0);
}

static void hello_with_other_id(struct liar *liar) {
  liar_message(liar, MESSAGE_REPLY, liar->id + 1, STATUS_OK, &message_hello_reply_type, &liar_good_hello, NULL, 0);
}

static void hello_is_a_request(struct liar *liar) {
  liar_message(liar, MESSAGE_REQUEST, liar->id, STATUS_OK, &message_hello_reply_type, &liar_good_hello, NULL, 0);
}

static void hello_is_another_body(struct liar *liar) {
  struct message_ping ping = {.payload = 1};
  liar_reply(liar, &message_ping_type, &ping, NULL, 0);
}

static void hello_brings_descriptors(struct liar *liar) {
  int fds[] = {0, 0, 0};
  liar_reply(liar, &message_hello_reply_type, &liar_good_hello, fds, 3);
}

static void hello_brings_too_many_descriptors(struct liar *liar) {
  int fds[16] = {0};
  liar_reply(liar, &message_hello_reply_type, &liar_good_hello, fds, 16);
}

static void hello_from_the_future(struct liar *liar) {
  struct message_hello_reply reply = liar_good_hello;
  reply.version = PROTOCOL_VERSION_MAX + 1;
  liar_reply(liar, &message_hello_reply_type, &reply, NULL, 0);
}

static void hello_refuses(struct liar *liar) {
  struct message_failure failure = {.text = "no places left"};
  liar_message(liar, MESSAGE_REPLY, liar->id, STATUS_BUSY, &message_failure_type, &failure, NULL, 0);
}

static void hello_refuses_with_unknown_status(struct liar *liar) {
  struct message_failure failure = {.text = "what is this"};
  liar_message(liar, MESSAGE_REPLY, liar->id, 250, &message_failure_type, &failure, NULL, 0);
}

static void hello_is_never_answered(struct liar *liar) {
  (void)liar;
}

/* ---- lies about the arena */

static void arena_without_descriptors(struct liar *liar) {
  int memfd = liar_memfd(liar, F_SEAL_SHRINK);
  struct message_arena_reply reply = liar_good_arena(liar);
  liar_send_arena(liar, memfd, &reply, 0);
}

static void arena_without_wakeup(struct liar *liar) {
  int memfd = liar_memfd(liar, F_SEAL_SHRINK);
  struct message_arena_reply reply = liar_good_arena(liar);
  liar_send_arena(liar, memfd, &reply, 1);
}

static void arena_with_three_descriptors(struct liar *liar) {
  int memfd = liar_memfd(liar, F_SEAL_SHRINK);
  struct message_arena_reply reply = liar_good_arena(liar);
  liar_send_arena(liar, memfd, &reply, 3);
}

static void arena_is_unsealed(struct liar *liar) {
  int memfd = liar_memfd(liar, F_SEAL_GROW);
  struct message_arena_reply reply = liar_good_arena(liar);
  liar_send_arena(liar, memfd, &reply, 2);
}

static void arena_is_smaller_than_said(struct liar *liar) {
  int memfd = liar_memfd(liar, F_SEAL_SHRINK);
  struct message_arena_reply reply = liar_good_arena(liar);
  reply.bytes += 4096;
  liar_send_arena(liar, memfd, &reply, 2);
}

static void arena_is_larger_than_said(struct liar *liar) {
  int memfd = liar_memfd(liar, F_SEAL_SHRINK);
  struct message_arena_reply reply = liar_good_arena(liar);
  reply.bytes -= 4096;
  liar_send_arena(liar, memfd, &reply, 2);
}

static void arena_is_no_memfd(struct liar *liar) {
  int memfd = liar_memfd(liar, F_SEAL_SHRINK);
  struct message_arena_reply reply = liar_good_arena(liar);
  close(memfd);
  liar_send_arena(liar, open("/dev/zero", O_RDWR | O_CLOEXEC), &reply, 2);
}

static void arena_with_other_rings(struct liar *liar) {
  int memfd = liar_memfd(liar, F_SEAL_SHRINK);
  struct message_arena_reply reply = liar_good_arena(liar);
  reply.devices = 1;
  liar_send_arena(liar, memfd, &reply, 2);
}

static void arena_with_odd_entries(struct liar *liar) {
  int memfd = liar_memfd(liar, F_SEAL_SHRINK);
  struct message_arena_reply reply = liar_good_arena(liar);
  reply.entries = 3;
  liar_send_arena(liar, memfd, &reply, 2);
}

static void arena_without_devices(struct liar *liar) {
  int memfd = liar_memfd(liar, F_SEAL_SHRINK);
  struct message_arena_reply reply = liar_good_arena(liar);
  reply.devices = 0;
  liar_send_arena(liar, memfd, &reply, 2);
}

static void arena_without_magic(struct liar *liar) {
  int memfd = liar_memfd(liar, F_SEAL_SHRINK);
  struct message_arena_reply reply = liar_good_arena(liar);
  ((struct ring_header *)liar->arena)->magic = 0;
  liar_send_arena(liar, memfd, &reply, 2);
}

static void arena_with_tensors_elsewhere(struct liar *liar) {
  int memfd = liar_memfd(liar, F_SEAL_SHRINK);
  struct message_arena_reply reply = liar_good_arena(liar);
  ((struct ring_header *)liar->arena)->tensor_offset = 64;
  liar_send_arena(liar, memfd, &reply, 2);
}

/* ---- running them */

static void connect_is_refused(void (*hello)(struct liar *), void (*arena)(struct liar *), int expected,
                               const char *says) {
  struct liar liar;
  gemmd_session *session = NULL;
  gemmd_options options = {.timeout_ms = expected == GEMMD_TIMEOUT ? SHORT_MS : 0};
  int before = liar_descriptors();
  liar_start(&liar, hello, arena, liar_until_closed);
  assert_int_equal(gemmd_connect(&session, liar.path, &options), expected);
  assert_non_null(session);
  assert_non_null(strstr(gemmd_error(session), says));
  /* All has been given back before gemmd_disconnect, but for the sentence. */
  liar_join(&liar);
  assert_int_equal(liar_descriptors(), before);
  assert_int_equal(gemmd_ping(session, NULL), GEMMD_DISCONNECTED);
  assert_non_null(strstr(gemmd_error(session), says));
  gemmd_disconnect(session);
}

static void lies_at_hello_are_refused(void **state) {
  (void)state;
  connect_is_refused(hello_closes, liar_arena, GEMMD_DISCONNECTED, "closed the connection");
  connect_is_refused(hello_is_no_msgpack, liar_arena, GEMMD_PROTOCOL, "");
  connect_is_refused(hello_is_half, liar_arena, GEMMD_PROTOCOL, "");
  connect_is_refused(hello_is_too_long, liar_arena, GEMMD_PROTOCOL, "more bytes or descriptors");
  connect_is_refused(hello_with_other_id, liar_arena, GEMMD_PROTOCOL, "answers nothing");
  connect_is_refused(hello_is_a_request, liar_arena, GEMMD_PROTOCOL, "answers nothing");
  connect_is_refused(hello_is_another_body, liar_arena, GEMMD_PROTOCOL, "hello_reply");
  connect_is_refused(hello_brings_descriptors, liar_arena, GEMMD_PROTOCOL, "must bring 0 descriptors, got 3");
  connect_is_refused(hello_brings_too_many_descriptors, liar_arena, GEMMD_PROTOCOL, "more bytes or descriptors");
  connect_is_refused(hello_from_the_future, liar_arena, GEMMD_VERSION, "the daemon speaks version 2");
  connect_is_refused(hello_refuses, liar_arena, GEMMD_BUSY, "no places left");
  connect_is_refused(hello_refuses_with_unknown_status, liar_arena, GEMMD_INTERNAL, "");
  connect_is_refused(hello_is_never_answered, liar_arena, GEMMD_TIMEOUT, "no answer to hello");
}

static void lies_about_the_arena_are_refused(void **state) {
  (void)state;
  connect_is_refused(liar_hello, arena_without_descriptors, GEMMD_PROTOCOL, "must bring 2 descriptors, got 0");
  connect_is_refused(liar_hello, arena_without_wakeup, GEMMD_PROTOCOL, "must bring 2 descriptors, got 1");
  connect_is_refused(liar_hello, arena_with_three_descriptors, GEMMD_PROTOCOL, "must bring 2 descriptors, got 3");
  connect_is_refused(liar_hello, arena_is_unsealed, GEMMD_PROTOCOL, "not sealed");
  connect_is_refused(liar_hello, arena_is_smaller_than_said, GEMMD_PROTOCOL, "size");
  connect_is_refused(liar_hello, arena_is_larger_than_said, GEMMD_PROTOCOL, "size");
  connect_is_refused(liar_hello, arena_is_no_memfd, GEMMD_PROTOCOL, "not sealed");
  connect_is_refused(liar_hello, arena_with_other_rings, GEMMD_PROTOCOL, "other rings");
  connect_is_refused(liar_hello, arena_with_odd_entries, GEMMD_PROTOCOL, "power of two");
  connect_is_refused(liar_hello, arena_without_devices, GEMMD_PROTOCOL, "device");
  connect_is_refused(liar_hello, arena_without_magic, GEMMD_PROTOCOL, "magic");
  connect_is_refused(liar_hello, arena_with_tensors_elsewhere, GEMMD_PROTOCOL, "tensors");
}

static struct message_weight_info good_weight(void) {
  return (struct message_weight_info){.name = "w",
                                      .n = 256,
                                      .k = 64,
                                      .format = GEMM_FORMAT_F16,
                                      .placement = PLACEMENT_SPLIT,
                                      .parts_count = 2,
                                      .parts = {{.device = 0, .handle = 1 << 16, .n_count = 128},
                                                {.device = 1, .handle = 2 << 16, .n_begin = 128, .n_count = 128}}};
}

/* The reply to weight_open, and honest answers from there on. */
static struct message_weight_info lied_weight;

static void serves_weight(struct liar *liar) {
  for (uint32_t command = liar_request(liar); command != 0; command = liar_request(liar)) {
    struct message_queue_open queue = {.device = 0};
    struct message_empty empty = {.reserved = 0};
    if (command == COMMAND_weight_open)
      liar_reply(liar, &message_weight_info_type, &lied_weight, NULL, 0);
    else if (command == COMMAND_queue_open)
      liar_reply(liar, &message_queue_open_type, &queue, &liar->wakeup, 1);
    else
      liar_reply(liar, &message_empty_type, &empty, NULL, 0);
  }
}

static gemmd_session *session_with(struct liar *liar, void (*rest)(struct liar *), unsigned timeout_ms) {
  gemmd_session *session = NULL;
  gemmd_options options = {.timeout_ms = timeout_ms, .spin_us = UINT_MAX, .reconnect_ms = UINT_MAX};
  liar_start(liar, liar_hello, liar_arena, rest);
  assert_int_equal(gemmd_connect(&session, liar->path, &options), GEMMD_OK);
  return session;
}

static void weight_is_refused(void) {
  struct liar liar;
  gemmd_weight *weight;
  int before = liar_descriptors();
  gemmd_session *session = session_with(&liar, serves_weight, 0);
  assert_int_equal(gemmd_weight_open(session, "w", &weight), GEMMD_PROTOCOL);
  assert_null(weight);
  assert_non_null(strstr(gemmd_error(session), "an opened weight"));
  assert_int_equal(gemmd_weight_open(session, "w", &weight), GEMMD_DISCONNECTED);
  gemmd_disconnect(session);
  liar_join(&liar);
  assert_int_equal(liar_descriptors(), before);
}

static void parts_that_do_not_fit_are_refused(void **state) {
  (void)state;
  lied_weight = good_weight();
  lied_weight.parts[1].device = LIAR_DEVICES;
  weight_is_refused();
  lied_weight = good_weight();
  lied_weight.parts[1].n_count = 129;
  weight_is_refused();
  lied_weight = good_weight();
  lied_weight.parts[1].n_count = 127;
  weight_is_refused();
  lied_weight = good_weight();
  lied_weight.parts[1].n_count = INT64_MAX;
  weight_is_refused();
  lied_weight = good_weight();
  lied_weight.parts[0].n_count = 120;
  lied_weight.parts[1].n_begin = 120;
  lied_weight.parts[1].n_count = 136;
  weight_is_refused(); /* y of the second part would not be aligned */
  lied_weight = good_weight();
  lied_weight.parts_count = 0;
  weight_is_refused();
  lied_weight = good_weight();
  lied_weight.placement = PLACEMENT_SINGLE;
  weight_is_refused();
  lied_weight = good_weight();
  lied_weight.placement = PLACEMENT_REPLICAS;
  weight_is_refused();
  lied_weight = good_weight();
  lied_weight.placement = 3;
  weight_is_refused();
  lied_weight = good_weight();
  lied_weight.format = 9;
  weight_is_refused();
  lied_weight = good_weight();
  lied_weight.k = 0;
  weight_is_refused();
}

/* A completion that nobody asked for ends the session, and with it the product in flight. */
static void unknown_tag_ends_the_session(uint64_t (*lie)(uint64_t tag)) {
  struct liar liar;
  gemmd_weight *weight;
  gemmd_result result;
  uint64_t ticket;
  lied_weight = good_weight();
  gemmd_session *session = session_with(&liar, serves_weight, 0);
  assert_int_equal(gemmd_weight_open(session, "w", &weight), GEMMD_OK);
  gemmd_product product = {
      .m = 1, .x = gemmd_alloc(session, 128), .x_type = GEMMD_F16, .y = gemmd_alloc(session, 512), .y_type = GEMMD_F16};
  assert_int_equal(gemmd_submit(weight, &product, &ticket), GEMMD_OK);
  assert_int_equal(gemmd_wait(session, ticket, 0, NULL), GEMMD_TIMEOUT);

  struct ring_worker worker;
  struct ring_submission submission;
  struct error error;
  bool taken, wake;
  ring_worker_init(&worker, liar.arena, LIAR_ENTRIES, 0, 1);
  assert_int_equal(ring_worker_take(&worker, &submission, &taken, &error), STATUS_OK);
  assert_true(taken);
  struct ring_completion completion = {.tag = lie(submission.tag)};
  ring_worker_complete(&worker, &completion, &wake);

  assert_int_equal(gemmd_wait_any(session, 0, &result), GEMMD_OK);
  assert_int_equal(result.ticket, ticket);
  assert_int_equal(result.status, GEMMD_PROTOCOL);
  assert_non_null(strstr(gemmd_error(session), "nobody made"));
  assert_int_equal(gemmd_submit(weight, &product, &ticket), GEMMD_DISCONNECTED);
  assert_int_equal(gemmd_wait_any(session, -1, &result), GEMMD_DISCONNECTED);
  gemmd_disconnect(session);
  liar_join(&liar);
}

static uint64_t another_slot(uint64_t tag) {
  return tag ^ 1 << 4;
}

static uint64_t another_part(uint64_t tag) {
  return tag ^ 1; /* that part is the other device's */
}

static uint64_t no_tag(uint64_t tag) {
  return tag - tag;
}

static uint64_t largest_tag(uint64_t tag) {
  return tag | UINT64_MAX;
}

static void unknown_tags_end_the_session(void **state) {
  (void)state;
  unknown_tag_ends_the_session(another_slot);
  unknown_tag_ends_the_session(another_part);
  unknown_tag_ends_the_session(no_tag);
  unknown_tag_ends_the_session(largest_tag);
}

static void pings_with_another_payload(struct liar *liar) {
  struct message_ping ping = {.payload = 0};
  liar_request(liar);
  liar_reply(liar, &message_ping_type, &ping, NULL, 0);
}

static void a_ping_must_come_back(void **state) {
  (void)state;
  struct liar liar;
  gemmd_session *session = session_with(&liar, pings_with_another_payload, 0);
  assert_int_equal(gemmd_ping(session, NULL), GEMMD_PROTOCOL);
  assert_int_equal(gemmd_ping(session, NULL), GEMMD_DISCONNECTED);
  gemmd_disconnect(session);
  liar_join(&liar);
}

/* Answers the first ping only when the second has come, with a descriptor that nobody wants. */
static void pings_late(struct liar *liar) {
  static const struct message_empty empty = {.reserved = 0};
  struct message_ping ping = {.payload = 5};
  liar_request(liar);
  uint32_t first = liar->id;
  liar_request(liar);
  liar_message(liar, MESSAGE_EVENT, 0, 999, &message_empty_type, &empty, NULL, 0);
  liar_message(liar, MESSAGE_REPLY, first, STATUS_OK, &message_ping_type, &ping, &liar->wakeup, 1);
  liar_message(liar, MESSAGE_REPLY, liar->id, STATUS_OK, &message_empty_type, &empty, NULL, 0);
}

static bool no_weight(void *user, const gemmd_weight_info *info) {
  (void)user, (void)info;
  return false;
}

static void late_answers_and_unknown_events_are_dropped(void **state) {
  (void)state;
  struct liar liar;
  int before = liar_descriptors();
  gemmd_session *session = session_with(&liar, pings_late, SHORT_MS);
  assert_int_equal(gemmd_ping(session, NULL), GEMMD_TIMEOUT);
  /* The last message is an empty body, which no list has: so far the call came, past the two before. */
  assert_int_equal(gemmd_weight_list(session, NULL, no_weight, NULL), GEMMD_PROTOCOL);
  assert_non_null(strstr(gemmd_error(session), "weight_list_reply"));
  gemmd_disconnect(session);
  liar_join(&liar);
  assert_int_equal(liar_descriptors(), before);
}

static void lists_forever(struct liar *liar) {
  static struct message_weight_list_reply page;
  page.weights_count = 1;
  page.weights[0] = good_weight();
  page.more = true;
  while (liar_request(liar) == COMMAND_weight_list)
    liar_reply(liar, &message_weight_list_reply_type, &page, NULL, 0);
}

static bool count_weight(void *user, const gemmd_weight_info *info) {
  assert_string_equal(info->name, "w");
  ++*(int *)user;
  return true;
}

static void a_list_must_move_on(void **state) {
  (void)state;
  struct liar liar;
  int count = 0;
  gemmd_session *session = session_with(&liar, lists_forever, 0);
  assert_int_equal(gemmd_weight_list(session, NULL, count_weight, &count), GEMMD_PROTOCOL);
  assert_int_equal(count, 1);
  gemmd_disconnect(session);
  liar_join(&liar);
}

static void sends_garbage(struct liar *liar) {
  liar_send(liar, "?", 1, NULL, 0);
}

/* What comes unasked makes the event loop's descriptor readable, and so does the end. */
static void garbage_reaches_the_event_loop(void **state) {
  (void)state;
  struct liar liar;
  gemmd_session *session = session_with(&liar, sends_garbage, 0);
  struct pollfd readable = {.fd = gemmd_fd(session), .events = POLLIN};
  assert_int_equal(poll(&readable, 1, -1), 1);
  assert_int_equal(gemmd_dispatch(session, 0), GEMMD_PROTOCOL);
  assert_int_equal(poll(&readable, 1, -1), 1);
  assert_int_equal(gemmd_dispatch(session, -1), GEMMD_DISCONNECTED);
  gemmd_disconnect(session);
  liar_join(&liar);
}

static void sends_an_event(struct liar *liar) {
  static const struct message_empty empty = {.reserved = 0};
  liar_message(liar, MESSAGE_EVENT, 0, 999, &message_empty_type, &empty, NULL, 0);
}

/* Nothing else comes: a dispatch that took it in and waited for more would not return. */
static void what_is_there_already_ends_a_dispatch(void **state) {
  (void)state;
  struct liar liar;
  gemmd_session *session = session_with(&liar, sends_an_event, 0);
  struct pollfd readable = {.fd = gemmd_fd(session), .events = POLLIN};
  assert_int_equal(poll(&readable, 1, -1), 1);
  assert_int_equal(gemmd_dispatch(session, -1), GEMMD_OK);
  assert_int_equal(poll(&readable, 1, 0), 0);
  gemmd_disconnect(session);
  liar_join(&liar);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lies_at_hello_are_refused),
      cmocka_unit_test(lies_about_the_arena_are_refused),
      cmocka_unit_test(parts_that_do_not_fit_are_refused),
      cmocka_unit_test(unknown_tags_end_the_session),
      cmocka_unit_test(a_ping_must_come_back),
      cmocka_unit_test(late_answers_and_unknown_events_are_dropped),
      cmocka_unit_test(a_list_must_move_on),
      cmocka_unit_test(garbage_reaches_the_event_loop),
      cmocka_unit_test(what_is_there_already_ends_a_dispatch),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
