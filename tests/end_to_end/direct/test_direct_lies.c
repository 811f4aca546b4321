/* Engines beside a gemmd that is another one than theirs: of another version, with weights in a layout that this build
 * does not know, or with answers that cannot be. And what callers get wrong without being told by an argument's check:
 * one lane used by two threads, streams where there are none, what is open when all is closed. */
#include "client/gemmclient_direct.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/engine.h"
#include "tests/support/daemon/layers.h"
#include "tests/support/messages/liar.h"
#include "tests/support/system/sealed.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N = 64, K = 128, SLAB_BYTES = 1 << 16, LANES = 2, ROWS_MOST = 64, THREADS = 4, TURNS = 200 };

/* ---- answers to weight_borrow */

/* What may be wrong with one: the liar's thread looks here. */
static struct lie {
  struct message_weight_borrowed reply;
  uint64_t slab_bytes; /* that the descriptor has */
  size_t fds;          /* that come */
  int seals;
  const char *backend; /* that status names */
} lie;

/* What would be true of a weight of INT8 at the beginning of a slab, but for the layout, whose number nobody has. */
static void tell_the_truth(void) {
  lie = (struct lie){.slab_bytes = SLAB_BYTES, .fds = 1, .seals = F_SEAL_SHRINK, .backend = "cpu"};
  lie.reply = (struct message_weight_borrowed){.n = N,
                                               .k = K,
                                               .format = GEMM_FORMAT_INT8,
                                               .scale = GEMM_SCALE_ROW,
                                               .bytes = 16384,
                                               .mode = MODE_PRIVATE,
                                               .epoch = 7,
                                               .borrow = 1,
                                               .parts_count = 1,
                                               .slabs_count = 1};
  lie.reply.slabs[0] = (struct message_slab_given){.slab = 3, .fresh = true};
  lie.reply.parts[0] = (struct message_borrowed_part){
      .n_count = N, .slab = 3, .slab_bytes = SLAB_BYTES, .bytes = 16384, .layout = 0xbad};
}

static void answer_status(struct liar *liar) {
  static struct message_status_reply status;
  status = (struct message_status_reply){.server = "liar", .devices_count = LIAR_DEVICES};
  snprintf(status.backend, sizeof status.backend, "%s", lie.backend);
  liar_reply(liar, &message_status_reply_type, &status, NULL, 0);
}

static void answer(struct liar *liar) {
  const struct message_empty nothing = {.reserved = 0};
  const struct message_failure refusal = {.text = "not served here"};
  for (uint32_t command; (command = liar_request(liar)) != 0;) {
    if (command == COMMAND_weight_borrow) {
      int slab = sealed_memfd(lie.slab_bytes, lie.seals), fds[] = {slab, slab};
      liar_reply(liar, &message_weight_borrowed_type, &lie.reply, fds, lie.fds);
      close(slab);
    } else if (command == COMMAND_status) {
      answer_status(liar);
    } else if (command == COMMAND_weight_return) {
      liar_reply(liar, &message_empty_type, &nothing, NULL, 0);
    } else {
      liar_message(liar, MESSAGE_REPLY, liar->id, STATUS_UNSUPPORTED, &message_failure_type, &refusal, NULL, 0);
    }
  }
}

/* Borrowing fails with the status and a sentence that contains `text`; nothing stays open of it. */
static void expect_refused(int status, const char *text) {
  struct liar liar;
  gemmd_session *session = NULL;
  gemmd_direct *direct;
  gemmd_direct_weight *weight = NULL;
  const gemmd_direct_options options = {.bytes = sizeof options, .threads = 1};
  const gemmd_options connection = {.arena_bytes = LIAR_TENSORS, .entries = LIAR_ENTRIES, .reconnect_ms = UINT32_MAX};
  int before = liar_descriptors();
  liar_start(&liar, liar_hello, liar_arena, answer);
  assert_int_equal(gemmd_connect(&session, liar.path, &connection), GEMMD_OK);
  assert_int_equal(gemmd_direct_open(session, &options, &direct), GEMMD_OK);
  int got = gemmd_direct_borrow(direct, "w", &weight);
  if (got != status || weight != NULL || strstr(gemmd_direct_error(), text) == NULL)
    fail_msg("%s, \"%s\" in place of %s, \"%s\"", gemmd_status_name(got), gemmd_direct_error(),
             gemmd_status_name(status), text);
  assert_int_equal(gemmd_direct_close(direct), GEMMD_OK);
  gemmd_disconnect(session);
  liar_join(&liar);
  assert_int_equal(liar_descriptors(), before);
}

/* Whatever number this build has, this one it has not: gemmd itself still serves such a weight. */
static void a_layout_that_nobody_knows(void **state) {
  tell_the_truth();
  expect_refused(GEMMD_UNSUPPORTED, "layout");
}

static void a_weight_of_another_device(void **state) {
  tell_the_truth();
  lie.reply.parts[0].device_uuid[5] = 1;
  expect_refused(GEMMD_UNSUPPORTED, "another device");
  tell_the_truth();
  lie.reply.parts[0].n_count = N / 2;
  lie.reply.placement = PLACEMENT_SPLIT;
  expect_refused(GEMMD_UNSUPPORTED, "parts on several devices");
}

static void memory_that_is_not_what_it_is_said_to_be(void **state) {
  tell_the_truth();
  lie.slab_bytes = SLAB_BYTES / 2; /* to read behind its end would be the end of the process */
  expect_refused(GEMMD_BAD_DESCRIPTOR, "bytes was expected");
  tell_the_truth();
  lie.seals = 0; /* it could shrink one day */
  expect_refused(GEMMD_BAD_DESCRIPTOR, "sealed against shrinking");
  tell_the_truth();
  lie.reply.parts[0].offset = SLAB_BYTES - 64;
  expect_refused(GEMMD_PROTOCOL, "does not lie in its slab");
  tell_the_truth();
  lie.reply.parts[0].offset = UINT64_MAX - 63;
  expect_refused(GEMMD_PROTOCOL, "does not lie in its slab");
}

static void answers_that_cannot_be(void **state) {
  tell_the_truth();
  lie.reply.format = 77;
  expect_refused(GEMMD_PROTOCOL, "cannot be");
  tell_the_truth();
  lie.reply.k = -K;
  expect_refused(GEMMD_PROTOCOL, "cannot be");
  tell_the_truth();
  lie.reply.parts_count = 0;
  expect_refused(GEMMD_PROTOCOL, "no parts");
  tell_the_truth();
  lie.reply.borrow = 0;
  expect_refused(GEMMD_PROTOCOL, "no number");
  tell_the_truth();
  lie.fds = 2;
  expect_refused(GEMMD_PROTOCOL, "descriptors of nothing");
  tell_the_truth();
  lie.reply.more = true; /* and never is there more */
  expect_refused(GEMMD_PROTOCOL, "never comes");
}

/* ---- another version */

static void hello_of_tomorrow(struct liar *liar) {
  struct message_hello_reply reply = liar_good_hello;
  reply.version = PROTOCOL_VERSION_MAX + 1;
  liar_reply(liar, &message_hello_reply_type, &reply, NULL, 0);
}

static void a_gemmd_of_another_version(void **state) {
  struct liar liar;
  gemmd_session *session = NULL;
  gemmd_direct *direct = NULL;
  const gemmd_direct_options options = {.bytes = sizeof options, .threads = 1};
  const gemmd_options connection = {.arena_bytes = LIAR_TENSORS, .entries = LIAR_ENTRIES, .reconnect_ms = UINT32_MAX};
  liar_start(&liar, hello_of_tomorrow, liar_arena, answer);
  int status = gemmd_connect(&session, liar.path, &connection);
  assert_true(status == GEMMD_VERSION || status == GEMMD_PROTOCOL);
  gemmd_disconnect(session);
  liar_join(&liar);
  tell_the_truth();
  lie.backend = "quantum";
  liar_start(&liar, liar_hello, liar_arena, answer);
  assert_int_equal(gemmd_connect(&session, liar.path, &connection), GEMMD_OK);
  assert_int_equal(gemmd_direct_open(session, &options, &direct), GEMMD_UNSUPPORTED);
  assert_null(direct);
  assert_non_null(strstr(gemmd_direct_error(), "quantum"));
  gemmd_disconnect(session);
  liar_join(&liar);
}

/* ---- callers */

struct user {
  struct engine *engine;
  gemmd_direct_weight *weight;
  int index;
  bool good;
};

/* All of them in lane 0, which takes them in turn on a CPU and says BUSY on a GPU. */
static void *use_lane(void *argument) {
  struct user *user = argument;
  struct engine_product product;
  user->good = engine_product_make(user->engine, &product, user->weight, &layers.weights[2], 1 + user->index, GEMM_F32,
                                   GEMM_F32, (uint64_t)(10 + user->index));
  for (int i = 0; i < TURNS && user->good; i++)
    user->good = engine_product_run(user->engine, &product);
  engine_product_free(user->engine, &product);
  return NULL;
}

static int share_a_lane(int index, void *nothing) {
  struct engine engine;
  gemmd_direct_weight *weight;
  struct user users[THREADS];
  pthread_t threads[THREADS];
  EXPECT(engine_open(&engine, &layers.daemon, LANES, ROWS_MOST));
  EXPECT(engine_report(gemmd_direct_borrow(engine.direct, layers_name(2), &weight)));
  for (int i = 0; i < THREADS; i++) {
    users[i] = (struct user){.engine = &engine, .weight = weight, .index = i};
    EXPECT(pthread_create(&threads[i], NULL, use_lane, &users[i]) == 0);
  }
  for (int i = 0; i < THREADS; i++)
    EXPECT(pthread_join(threads[i], NULL) == 0);
  for (int i = 0; i < THREADS; i++)
    EXPECT(users[i].good);
  engine_close(&engine);
  return 0;
}

static void a_lane_used_by_several_threads(void **state) {
  if (daemon_on_cuda())
    skip(); /* there it is BUSY, or not, as it comes */
  clients_run(1, share_a_lane, NULL);
}

static int pass_streams(int index, void *nothing) {
  struct engine engine;
  gemmd_direct_weight *weight;
  struct engine_product product;
  EXPECT(engine_open(&engine, &layers.daemon, LANES, ROWS_MOST));
  EXPECT(engine_report(gemmd_direct_borrow(engine.direct, layers_name(2), &weight)));
  EXPECT(engine_product_make(&engine, &product, weight, &layers.weights[2], 5, GEMM_F32, GEMM_F32, 3));
  void *const streams[] = {NULL, (void *)(uintptr_t)1, (void *)(uintptr_t)0xdead0000, &engine};
  for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
    engine.stream = streams[i];
    EXPECT(engine_product_run(&engine, &product));
  }
  engine.stream = NULL;
  engine_product_free(&engine, &product);
  engine_close(&engine);
  return 0;
}

/* There are none on a CPU: what is passed for one is not looked at. */
static void streams_on_a_cpu(void **state) {
  if (daemon_on_cuda())
    skip();
  clients_run(1, pass_streams, NULL);
}

static int close_with_all_open(int index, void *nothing) {
  struct engine engine;
  gemmd_direct_weight *first, *second;
  gemmd_direct_plan *plan;
  EXPECT(engine_open(&engine, &layers.daemon, LANES, ROWS_MOST));
  EXPECT(engine_report(gemmd_direct_borrow(engine.direct, layers_name(2), &first)));
  EXPECT(engine_report(gemmd_direct_borrow(engine.direct, layers_name(2), &second)));
  const gemmd_direct_step step = {.weight = first, .y_type = GEMMD_F32};
  EXPECT(engine_report(gemmd_direct_plan_create(&step, 1, &plan)));
  EXPECT(gemmd_direct_return(first) == GEMMD_BUSY); /* the plan names it */
  EXPECT(engine_report(gemmd_direct_return(second)));
  EXPECT(engine_report(gemmd_direct_close(engine.direct)));
  engine.direct = NULL;
  EXPECT(engine_report(gemmd_direct_close(NULL)));
  gemmd_weight_info info;
  EXPECT(gemmd_weight_stat(engine.session, layers_name(2), &info) == GEMMD_OK && info.borrows == 0);
  engine_close(&engine);
  return 0;
}

static void what_is_open_when_all_is_closed(void **state) {
  clients_run(1, close_with_all_open, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_layout_that_nobody_knows),
      cmocka_unit_test(a_weight_of_another_device),
      cmocka_unit_test(memory_that_is_not_what_it_is_said_to_be),
      cmocka_unit_test(answers_that_cannot_be),
      cmocka_unit_test(a_gemmd_of_another_version),
      cmocka_unit_test(a_lane_used_by_several_threads),
      cmocka_unit_test(streams_on_a_cpu),
      cmocka_unit_test(what_is_open_when_all_is_closed),
  };
  return cmocka_run_group_tests(tests, layers_start, layers_stop);
}
