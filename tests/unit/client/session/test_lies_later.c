/* What a hostile or broken daemon may answer to a session that has begun: weights, completions, lists. The session
 * ends, or the answer is dropped. */
#include "client/gemmclient.h"
#include "client/session/calls.h"
#include "proto/shm/ring.h"
#include "proto/wire/message.h"
#include "tests/support/messages/liar.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

enum { SHORT_MS = 30 };

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
  struct liar liar;
  gemmd_session *session = session_with(&liar, sends_an_event, 0);
  struct pollfd readable = {.fd = gemmd_fd(session), .events = POLLIN};
  assert_int_equal(poll(&readable, 1, -1), 1);
  assert_int_equal(gemmd_dispatch(session, -1), GEMMD_OK);
  assert_int_equal(poll(&readable, 1, 0), 0);
  gemmd_disconnect(session);
  liar_join(&liar);
}

/* ---- a daemon that takes its time */

static atomic_uint waits;

/* In the place of the C library's. */
int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *signals) {
  struct timespec left = timeout != NULL ? *timeout : (struct timespec){0};
  atomic_fetch_add(&waits, 1);
  return (int)syscall(SYS_ppoll, fds, count, timeout != NULL ? &left : NULL, signals, _NSIG / 8);
}

static void answers_late(struct liar *liar) {
  struct message_ping ping = {.payload = 1};
  while (liar_request(liar) != 0) {
    poll(NULL, 0, SHORT_MS);
    liar_reply(liar, &message_ping_type, &ping, NULL, 0);
  }
}

struct pings {
  unsigned next, done;
  struct message_ping request, reply;
};

static bool next_ping(void *user, unsigned slot, struct call *call) {
  struct pings *pings = user;
  *call = (struct call){.command = COMMAND_ping, .request = &pings->request, .reply = &pings->reply, .fd = -1};
  return pings->next++ < 3;
}

static void ping_done(void *user, unsigned slot, enum status status) {
  struct pings *pings = user;
  assert_int_equal(status, STATUS_OK);
  pings->done++;
}

/* Who waits for the answers of several calls sleeps meanwhile: once for each, or a few times. */
static void calls_sleep_until_they_are_answered(void **state) {
  struct liar liar;
  struct pings pings = {.request = {.payload = 1}};
  const struct calls calls = {.width = 1, .next = next_ping, .done = ping_done, .user = &pings};
  gemmd_session *session = session_with(&liar, answers_late, 0);
  atomic_store(&waits, 0);
  assert_int_equal(calls_make(session, &calls), STATUS_OK);
  assert_int_equal(pings.done, 3);
  assert_in_range(atomic_load(&waits), 3, 12);
  gemmd_disconnect(session);
  liar_join(&liar);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(calls_sleep_until_they_are_answered),
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
