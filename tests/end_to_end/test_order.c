/* Which requests go first, which go together, and which do not go at all: the real daemon and several sessions. While
 * its worker is stopped, requests pile up; what it then does with them shows. */
#include "client/gemmclient.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/product.h"
#include "tests/support/daemon/status.h"
#include "tests/support/reference/checkpoint.h"
#include "tests/support/reference/oracle.h"
#include "tests/support/system/hold.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cmocka.h>

enum { SESSIONS = 3 };

static const struct gemm_weight shape = {96, 200, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0};

static struct daemon daemon_under_test;
static struct oracle_weight weight;

struct member {
  gemmd_session *session;
  gemmd_weight *weight;
};

static struct member join(void) {
  struct member member = {NULL, NULL};
  int status = gemmd_connect(&member.session, daemon_under_test.socket, NULL);
  if (status == GEMMD_OK)
    status = gemmd_weight_open(member.session, "w", &member.weight);
  expect_ok(member.session, status);
  return member;
}

static int start(void **state) {
  daemon_make(&daemon_under_test, "spin_us = 0\nin_flight = 1\n"); /* asleep when it is stopped */
  oracle_weight_make(&weight, &shape, 1);
  checkpoint_write_one(daemon_path(&daemon_under_test, "model.safetensors"), "w", &weight);
  daemon_start(&daemon_under_test);
  gemmd_session *session = NULL;
  expect_ok(session, gemmd_connect(&session, daemon_under_test.socket, NULL));
  daemon_load(session, &daemon_under_test, "w", GEMMD_FORMAT_INT8);
  gemmd_disconnect(session);
  return 0;
}

static int stop(void **state) {
  daemon_end(&daemon_under_test);
  oracle_weight_free(&weight);
  return 0;
}

/* Stops the worker once it has nothing to do; returns its process. */
static pid_t stop_worker(struct member *member) {
  struct product_request request = {.weight = &weight, .m = 1, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 9};
  assert_true(product_run(member->session, member->weight, &request));
  pid_t worker = (pid_t)device_info(member->session).pid;
  hold_process(worker);
  return worker;
}

/* Types differ by `kind`, so that products of different kinds do not go together. */
static struct product ask(struct member *member, int64_t m, int kind, enum gemmd_priority priority) {
  static const enum gemm_type types[] = {GEMM_F32, GEMM_F16, GEMM_BF16};
  struct product product;
  struct product_request request = {
      .weight = &weight, .m = m, .x_type = types[kind], .y_type = GEMM_F32, .seed = (uint64_t)(10 * m + kind)};
  assert_true(product_make(&product, member->session, &request));
  product.product.priority = priority;
  expect_ok(member->session, gemmd_submit(member->weight, &product.product, &product.ticket));
  return product;
}

static void expect_right(struct member *member, struct product *product) {
  expect_ok(member->session, gemmd_wait(member->session, product->ticket, -1, NULL));
  assert_true(product_right(product));
  product_free(product, member->session);
}

static void rows_of_several_sessions_are_one_product(void **state) {
  struct member members[SESSIONS];
  struct product products[SESSIONS];
  for (int i = 0; i < SESSIONS; i++)
    members[i] = join();
  pid_t worker = stop_worker(&members[0]);
  for (int i = 0; i < SESSIONS; i++)
    products[i] = ask(&members[i], 1 + i, 0, GEMMD_PRIORITY_NORMAL);
  assert_int_equal(kill(worker, SIGCONT), 0);
  for (int i = 0; i < SESSIONS; i++)
    expect_right(&members[i], &products[i]);
  gemmd_device_info after = device_info(members[0].session);
  assert_int_equal(after.requests, 1 + SESSIONS);
  assert_int_equal(after.products, 2);
  assert_int_equal(after.rows, 1 + 6);
  for (int i = 0; i < SESSIONS; i++)
    gemmd_disconnect(members[i].session);
}

static void urgent_ones_overtake(void **state) {
  struct member member = join();
  const enum gemmd_priority priorities[] = {GEMMD_PRIORITY_BACKGROUND, GEMMD_PRIORITY_NORMAL, GEMMD_PRIORITY_URGENT};
  struct product products[3];
  pid_t worker = stop_worker(&member);
  for (int i = 0; i < 3; i++)
    products[i] = ask(&member, 2, i, priorities[i]);
  assert_int_equal(kill(worker, SIGCONT), 0);
  for (int i = 2; i >= 0; i--) {
    gemmd_result result;
    expect_ok(member.session, gemmd_wait_any(member.session, -1, &result));
    assert_int_equal(result.status, GEMMD_OK);
    assert_true(result.ticket == products[i].ticket);
    assert_true(product_right(&products[i]));
    product_free(&products[i], member.session);
  }
  gemmd_disconnect(member.session);
}

static void what_is_late_is_not_computed(void **state) {
  struct member member = join();
  struct product late, timely;
  struct product_request request = {.weight = &weight, .m = 1, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 3};
  assert_true(product_make(&late, member.session, &request));
  assert_true(product_make(&timely, member.session, &request));
  late.product.deadline_us = 1;
  timely.product.deadline_us = 4000000000u;
  pid_t worker = stop_worker(&member);
  expect_ok(member.session, gemmd_submit(member.weight, &late.product, &late.ticket));
  expect_ok(member.session, gemmd_submit(member.weight, &timely.product, &timely.ticket));
  assert_int_equal(kill(worker, SIGCONT), 0); /* more than a microsecond later */
  assert_int_equal(gemmd_wait(member.session, late.ticket, -1, NULL), GEMMD_TIMEOUT);
  product_free(&late, member.session);
  expect_right(&member, &timely);
  gemmd_disconnect(member.session);
}

static void what_waits_can_be_cancelled(void **state) {
  struct member member = join();
  pid_t worker = stop_worker(&member);
  struct product kept = ask(&member, 1, 0, GEMMD_PRIORITY_NORMAL);
  struct product dropped = ask(&member, 1, 1, GEMMD_PRIORITY_NORMAL);
  expect_ok(member.session, gemmd_cancel(member.session, dropped.ticket));
  assert_int_equal(kill(worker, SIGCONT), 0);
  assert_int_equal(gemmd_wait(member.session, dropped.ticket, -1, NULL), GEMMD_CANCELLED);
  expect_right(&member, &kept);
  assert_int_equal(gemmd_cancel(member.session, dropped.ticket), GEMMD_INVALID); /* its result has been taken */
  product_free(&dropped, member.session);
  gemmd_disconnect(member.session);
}

/* ---- one that floods */

static int flood(int index, void *user) {
  _Atomic bool *over = user;
  gemmd_options options = {.entries = 256};
  gemmd_session *session = NULL;
  gemmd_weight *handle = NULL;
  struct product product;
  struct product_request request = {.weight = &weight, .m = 3, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 5};
  if (gemmd_connect(&session, daemon_under_test.socket, &options) != GEMMD_OK ||
      gemmd_weight_open(session, "w", &handle) != GEMMD_OK || !product_make(&product, session, &request)) {
    fprintf(stderr, "flood: %s\n", gemmd_error(session));
    return 1;
  }
  /* All write the same y: only that they are many matters. */
  for (int in_flight = 0; !atomic_load(over) || in_flight > 0;) {
    gemmd_result result;
    uint64_t ticket;
    if (!atomic_load(over) && gemmd_submit(handle, &product.product, &ticket) == GEMMD_OK)
      in_flight++;
    else if (gemmd_wait_any(session, -1, &result) == GEMMD_OK)
      in_flight--;
    else
      return 1;
  }
  product_free(&product, session);
  gemmd_disconnect(session);
  return 0;
}

static void a_flood_starves_nobody(void **state) {
  enum { CALLS = 200, FLOODS = 3 };
  _Atomic bool *over = clients_share(sizeof *over);
  struct clients floods;
  clients_start(&floods, FLOODS, flood, (void *)over);
  struct member member = join();
  struct product_request request = {.weight = &weight, .m = 1, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 7};
  for (int i = 0; i < CALLS; i++)
    assert_true(product_run(member.session, member.weight, &request));
  atomic_store(over, true);
  clients_wait(&floods);
  gemmd_disconnect(member.session);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_of_several_sessions_are_one_product),
      cmocka_unit_test(urgent_ones_overtake),
      cmocka_unit_test(what_is_late_is_not_computed),
      cmocka_unit_test(what_waits_can_be_cancelled),
      cmocka_unit_test(a_flood_starves_nobody),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
