/* What a hostile or broken daemon may answer while a client connects: the library must refuse it with a status and a
 * sentence, and give everything back. */
#include "client/gemmclient.h"
#include "proto/shm/ring.h"
#include "proto/wire/message.h"
#include "tests/support/messages/liar.h"

#include <fcntl.h>
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

static void hello_is_never_answered(struct liar *liar) {}

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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lies_at_hello_are_refused),
      cmocka_unit_test(lies_about_the_arena_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
