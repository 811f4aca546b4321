/* The engine with a real backend, real rings in sealed memory and real threads: products, refusals, a device that
 * fails, sessions and weights that go away, sleep. */
#include "daemon/worker/serve/engine.h"
#include "daemon/worker/serve/serve.h"
#include "daemon/worker/tune/tuner.h"
#include "tests/support/worker/rig.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

enum { ENTRIES = RIG_ENTRIES, N = RIG_N, K = RIG_K, HANDLE = RIG_HANDLE };

static void products_are_right(void **state) {
  struct rig_control control;
  struct rig_client client;
  rig_start(&control, 50);
  rig_join(&control, &client);
  for (uint32_t m = 1; m <= 33; m += 4) {
    struct ring_submission one = rig_product(&client, 0, m);
    rig_fill(&client, &one, m);
    struct ring_completion completion = rig_call(&client, one);
    assert_int_equal(completion.status, STATUS_OK);
    assert_true(completion.device_ns > 0);
    rig_check(&client, &one);
  }
  struct message_worker_stats stats;
  engine_stats(control.engine, &stats);
  assert_int_equal(stats.requests, 9);
  assert_int_equal(stats.rows, 9 * 17);
  assert_int_equal(stats.failures, 0);
  assert_true(stats.device_ns > 0);
  rig_leave(&control, &client);
  rig_stop(&control);
}

static void strides_offsets_and_bias_arrive(void **state) {
  enum { M = 3, X_STRIDE = K + 32, Y_STRIDE = (N + 4) * 4 };
  struct rig_control control;
  struct rig_client client;
  rig_start(&control, 50);
  rig_join(&control, &client);
  uint8_t *tensors = client.session.base + client.session.tensor_offset;
  int8_t *x = (int8_t *)tensors;
  float *scales = (float *)(void *)(tensors + 4096), *bias = (float *)(void *)(tensors + 8192);
  float *y = (float *)(void *)(tensors + 16384);
  for (int m = 0; m < M; m++) {
    scales[m] = (float)(1 << m);
    for (int k = 0; k < X_STRIDE; k++)
      x[m * X_STRIDE + k] = (int8_t)(m + k);
  }
  for (int n = 0; n < N; n++)
    bias[n] = (float)n;
  for (int i = 0; i < M * Y_STRIDE / 4; i++)
    y[i] = -1.0f;
  struct ring_submission one = rig_product(&client, 0, M);
  one.y_type = one.bias_type = GEMM_F32;
  one.x_scale_offset = one.x_offset + 4096;
  one.bias_offset = one.x_offset + 8192;
  one.y_offset = one.x_offset + 16384;
  one.x_stride = X_STRIDE;
  one.y_stride = Y_STRIDE;
  assert_int_equal(rig_call(&client, one).status, STATUS_OK);
  for (int m = 0; m < M; m++) {
    for (int n = 0; n < N; n++) {
      int32_t sum = 0;
      for (int k = 0; k < K; k++)
        sum += x[m * X_STRIDE + k] * (int8_t)rig.canonical[(uint64_t)n * rig.layout.row_bytes + (uint64_t)k];
      /* sums below 2^24 times powers of two: exact in f32 */
      assert_true(y[m * Y_STRIDE / 4 + n] == (float)sum * 0.5f * scales[m] + bias[n]);
    }
    for (int n = N; n < Y_STRIDE / 4; n++)
      assert_true(y[m * Y_STRIDE / 4 + n] == -1.0f);
  }
  rig_leave(&control, &client);
  rig_stop(&control);
}

/* ---- refusals */

static void expect_refused(struct rig_client *client, struct ring_submission submission, enum status status,
                           enum field field, int64_t value) {
  struct ring_completion completion = rig_call(client, submission);
  assert_int_equal(completion.status, status);
  assert_int_equal(completion.field, field);
  assert_int_equal(completion.value, value);
}

static void what_is_wrong_is_named(void **state) {
  struct rig_control control;
  struct rig_client client;
  rig_start(&control, 50);
  rig_join(&control, &client);
  const struct ring_submission good = rig_product(&client, 0, 4);
  struct ring_submission bad;
#define REFUSED(member, wrong, status, field)                                                                          \
  bad = good;                                                                                                          \
  bad.member = (wrong);                                                                                                \
  expect_refused(&client, bad, STATUS_##status, FIELD_##field, (int64_t)(wrong))
  REFUSED(m, 0, INVALID, M);
  REFUSED(n, N + 1, INVALID, N);
  REFUSED(k, K - 1, INVALID, K);
  REFUSED(weight, 2 << 16 | 5, NOT_FOUND, WEIGHT);
  REFUSED(weight, 3 << 16 | 6, NOT_FOUND, WEIGHT);
  REFUSED(weight, UINT32_MAX, NOT_FOUND, WEIGHT);
  REFUSED(opcode, 77, INVALID, OPCODE);
  REFUSED(event, 1, NOT_FOUND, EVENT);
  REFUSED(y_offset, RIG_ARENA_BYTES - 16, INVALID, Y_OFFSET);
  REFUSED(x_offset, 0, INVALID, X_OFFSET);
  REFUSED(x_offset, good.x_offset + 1, INVALID, X_OFFSET);
#undef REFUSED
  bad = good;
  bad.x_offset = UINT64_MAX - 15;
  assert_int_equal(rig_call(&client, bad).status, STATUS_INVALID);
  bad = good;
  bad.x_tensor = 1;
  assert_int_equal(rig_call(&client, bad).field, FIELD_X_TENSOR);
  bad = good;
  bad.x_type = 200;
  struct ring_completion completion = rig_call(&client, bad);
  assert_int_not_equal(completion.status, STATUS_OK);
  assert_int_equal(completion.field, FIELD_X_TYPE);
  struct message_worker_stats stats;
  engine_stats(control.engine, &stats);
  assert_int_equal(stats.failures, 14);
  rig_fill(&client, &good, 1);
  assert_int_equal(rig_call(&client, good).status, STATUS_OK);
  rig_check(&client, &good);
  rig_leave(&control, &client);
  rig_stop(&control);
}

static void a_session_with_false_indices_ends_alone(void **state) {
  struct rig_control control;
  struct rig_client liar, other;
  rig_start(&control, 50);
  rig_join(&control, &liar);
  rig_join(&control, &other);
  rig_submit(&liar, rig_product(&liar, 0, 64));
  atomic_fetch_add(&liar.ring.queue->submission_tail, 5000);
  rig_ring_doorbell(&liar);
  rig_wait_readable(control.arrived);
  struct engine_message *broken = mailbox_take(&control.mail);
  assert_ptr_equal(broken, &liar.session.breakage);
  assert_int_equal(broken->verb, ENGINE_SESSION_BROKEN);
  assert_ptr_equal(broken->session, &liar.session);
  assert_int_equal(broken->error.status, STATUS_PROTOCOL);
  assert_true(broken->error.text[0] != '\0');
  struct ring_submission one = rig_product(&other, 0, 4);
  rig_fill(&other, &one, 1);
  assert_int_equal(rig_call(&other, one).status, STATUS_OK);
  rig_check(&other, &one);
  rig_leave(&control, &liar);
  rig_expect_nop(&other);
  rig_leave(&control, &other);
  rig_stop(&control);
}

static void a_session_that_blocks_its_wakeup_ends_alone(void **state) {
  struct rig_control control;
  struct rig_client blocker, other;
  rig_start(&control, 50);
  rig_join(&control, &blocker);
  rig_join(&control, &other);
  uint64_t full = UINT64_MAX - 1;
  assert_int_equal(write(blocker.session.wakeup, &full, sizeof full), sizeof full);
  assert_int_equal(fcntl(blocker.session.wakeup, F_SETFL, 0), 0);
  atomic_store(&blocker.ring.queue->client_sleeping, 1);
  for (unsigned i = 0; i < ENTRIES; i++)
    rig_submit(&blocker, (struct ring_submission){.opcode = RING_OP_NOP});
  rig_wait_readable(control.arrived);
  struct engine_message *broken = mailbox_take(&control.mail);
  assert_ptr_equal(broken, &blocker.session.breakage);
  assert_int_equal(broken->error.status, STATUS_PROTOCOL);
  rig_expect_nop(&other);
  rig_leave(&control, &blocker);
  rig_leave(&control, &other);
  rig_stop(&control);
}

static void a_full_wakeup_counter_is_no_offence(void **state) {
  struct rig_control control;
  struct rig_client client;
  rig_start(&control, 50);
  rig_join(&control, &client);
  uint64_t full = UINT64_MAX - 1;
  assert_int_equal(write(client.session.wakeup, &full, sizeof full), sizeof full);
  atomic_store(&client.ring.queue->client_sleeping, 1);
  rig_expect_nop(&client);
  rig_expect_nop(&client);
  rig_leave(&control, &client);
  rig_stop(&control);
}

/* ---- a device that fails: the real one, with one of its functions replaced */

static unsigned refusals;

static enum status lose_device(struct backend *of, const struct backend_job *job, struct error *error) {
  return error_set(error, STATUS_DEVICE_LOST, "the test has lost the device");
}

static enum status submit_reluctantly(struct backend *of, const struct backend_job *job, struct error *error) {
  if (refusals++ % 3 != 0)
    return error_set(error, STATUS_BUSY, "not now");
  return rig.ops->submit(of, job, error);
}

static enum status refuse(struct backend *of, const struct backend_job *job, struct error *error) {
  return error_field(error, STATUS_UNSUPPORTED, FIELD_M, job->m, 1, 2);
}

static int finish_with_loss(struct backend *of, struct backend_done *done, int most) {
  int finished = rig.ops->poll(of, done, most);
  for (int i = 0; i < finished; i++)
    done[i].status = STATUS_DEVICE_LOST;
  return finished;
}

static void a_lost_device_is_reported_and_nothing_completed(void **state) {
  for (unsigned late = 0; late < 2; late++) {
    struct backend_ops failing = *rig.ops;
    struct rig_control control;
    struct rig_client client;
    if (late)
      failing.poll = finish_with_loss;
    else
      failing.submit = lose_device;
    rig_start_on(&control, &failing, 50);
    rig_join(&control, &client);
    rig_submit(&client, rig_product(&client, 0, 1));
    rig_wait_readable(control.arrived);
    struct engine_message *lost = mailbox_take(&control.mail);
    assert_non_null(lost);
    assert_int_equal(lost->verb, ENGINE_DEVICE_LOST);
    assert_int_equal(lost->error.status, STATUS_DEVICE_LOST);
    assert_false(ring_client_ready(&client.ring));
    rig_stop(&control);
    client.session.lane.taken = 0; /* a worker ends here; this test gives all back */
    rig.weight.jobs = rig.weight.handles = 0;
    rig.weight.traffic = (struct engine_traffic){.on_device = 0};
    rig_free_client(&client);
  }
}

static void a_busy_device_is_asked_again(void **state) {
  struct backend_ops reluctant = *rig.ops;
  struct rig_control control;
  struct rig_client client;
  reluctant.submit = submit_reluctantly;
  rig_start_on(&control, &reluctant, 0);
  rig_join(&control, &client);
  struct ring_submission one = rig_product(&client, 0, 2);
  for (unsigned i = 0; i < 20; i++) {
    rig_fill(&client, &one, i);
    assert_int_equal(rig_call(&client, one).status, STATUS_OK);
    rig_check(&client, &one);
  }
  rig_leave(&control, &client);
  rig_stop(&control);
}

static void a_product_that_the_device_refuses_fails_alone(void **state) {
  struct backend_ops refusing = *rig.ops;
  struct rig_control control;
  struct rig_client client;
  refusing.submit = refuse;
  rig_start_on(&control, &refusing, 50);
  rig_join(&control, &client);
  expect_refused(&client, rig_product(&client, 0, 5), STATUS_UNSUPPORTED, FIELD_M, 5);
  rig_expect_nop(&client);
  assert_int_equal(rig.weight.jobs, 0);
  rig_leave(&control, &client);
  rig_stop(&control);
}

/* One product that does not come to an end, as on a stream of its own. */
static _Atomic bool withhold, withheld;
static struct backend_done withheld_done;

static int finish_but_one(struct backend *of, struct backend_done *done, int most) {
  int finished = rig.ops->poll(of, done, most);
  if (finished > 0 && withhold && !withheld) {
    withheld_done = done[--finished];
    withheld = true;
  } else if (!withhold && withheld && finished < most) {
    done[finished++] = withheld_done;
    withheld = false;
  }
  return finished;
}

static void a_product_that_hangs_shows_though_others_end(void **state) {
  struct backend_ops device = *rig.ops;
  struct rig_control control;
  struct rig_client client;
  struct message_worker_stats stats;
  device.poll = finish_but_one;
  rig_start_on(&control, &device, 50);
  rig_join(&control, &client);
  withhold = true;
  uint64_t hangs = rig_submit(&client, rig_product(&client, 0, 1));
  while (!withheld)
    sched_yield();
  uint64_t begin_ns = clock_ns();
  for (unsigned i = 1; i < 10; i++) {
    struct ring_submission one = rig_product(&client, i, 2);
    rig_fill(&client, &one, i);
    assert_int_equal(rig_call(&client, one).status, STATUS_OK);
    rig_check(&client, &one);
  }
  uint64_t since_ns = clock_ns() - begin_ns;
  engine_stats(control.engine, &stats);
  assert_true(stats.stuck_ns >= since_ns);
  withhold = false;
  assert_int_equal(rig_take(&client).tag, hangs);
  rig_expect_nop(&client);
  rig_leave(&control, &client);
  rig_stop(&control);
}

/* However long nobody asks for anything. */
static void an_engine_that_sleeps_is_not_stuck(void **state) {
  struct rig_control control;
  struct rig_client client;
  struct message_worker_stats stats;
  rig_start(&control, 50);
  rig_join(&control, &client);
  rig_expect_nop(&client);
  uint64_t begin_ns = clock_ns();
  do {
    engine_stats(control.engine, &stats);
    assert_true(clock_ns() - begin_ns < 60000000000u);
  } while (stats.stuck_ns != 0);
  rig_leave(&control, &client);
  rig_stop(&control);
}

/* ---- going away */

static void a_session_goes_when_the_device_has_finished(void **state) {
  struct rig_control control;
  rig_start(&control, 0);
  for (unsigned round = 0; round < 100; round++) {
    struct rig_client client;
    rig_join(&control, &client);
    for (unsigned slot = 0; slot < ENTRIES; slot++)
      rig_submit(&client, rig_product(&client, slot, 1 + round % 64));
    rig_leave(&control, &client); /* unmaps: whoever still writes into the arena crashes */
  }
  assert_int_equal(rig.weight.handles, 0);
  assert_int_equal(rig.weight.jobs, 0);
  rig_stop(&control);
}

static void a_weight_goes_when_nothing_uses_it(void **state) {
  struct rig_control control;
  struct rig_client client;
  rig_start(&control, 50);
  rig_join(&control, &client);
  struct engine_message detach = {.verb = ENGINE_WEIGHT_DETACH, .weight = &rig.weight};
  assert_int_equal(rig_ask(&control, &detach), STATUS_WRONG_STATE);
  struct engine_message remove = {.verb = ENGINE_HANDLE_REMOVE, .session = &client.session, .handle = HANDLE};
  for (unsigned slot = 0; slot < ENTRIES; slot++)
    rig_submit(&client, rig_product(&client, slot, 64));
  engine_post(control.engine, &remove);
  engine_post(control.engine, &detach);
  for (unsigned seen = 0; seen < 2;) { /* both may come at once, each announced by itself */
    for (struct engine_message *each = mailbox_take(&control.mail); each != NULL; each = each->next, seen++) {
      rig_wait_readable(control.arrived);
      assert_ptr_equal(each, seen == 0 ? &remove : &detach);
      assert_int_equal(each->error.status, STATUS_OK);
    }
  }
  assert_int_equal(rig.weight.jobs, 0);
  rig.weight.detach = NULL;
  for (unsigned i = 0; i < ENTRIES; i++) { /* those taken before the handle went are right, the others refused */
    struct ring_completion completion = rig_take(&client);
    if (completion.status != STATUS_OK)
      assert_int_equal(completion.status, STATUS_NOT_FOUND);
  }
  assert_int_equal(rig_ask(&control, &remove), STATUS_NOT_FOUND);
  expect_refused(&client, rig_product(&client, 0, 1), STATUS_NOT_FOUND, FIELD_WEIGHT, HANDLE);
  rig_leave(&control, &client);
  rig_stop(&control);
}

static void a_handle_can_be_given_once(void **state) {
  struct rig_control control;
  struct rig_client client;
  rig_start(&control, 50);
  rig_join(&control, &client);
  struct engine_message again = {
      .verb = ENGINE_HANDLE_ADD, .session = &client.session, .weight = &rig.weight, .handle = HANDLE + (1 << 16)};
  assert_int_equal(rig_ask(&control, &again), STATUS_EXISTS);
  assert_int_equal(rig.weight.handles, 1);
  rig_leave(&control, &client);
  assert_int_equal(rig.weight.handles, 0);
  rig_stop(&control);
}

static void a_stop_answers_everything(void **state) {
  for (unsigned round = 0; round < 20; round++) {
    struct rig_control control;
    struct rig_client one, two;
    rig_start(&control, 0);
    rig_join(&control, &one);
    rig_join(&control, &two);
    for (unsigned slot = 0; slot < ENTRIES; slot++) {
      rig_submit(&one, rig_product(&one, slot, 64));
      rig_submit(&two, rig_product(&two, slot, 64));
    }
    struct engine_message remove = {.verb = ENGINE_SESSION_REMOVE, .session = &one.session};
    engine_post(control.engine, &remove);
    engine_stop(control.engine);
    tuner_close(control.tuner);
    assert_ptr_equal(mailbox_take(&control.mail), &remove);
    assert_int_equal(rig.weight.jobs, 0);
    mailbox_close(&control.mail);
    close(control.arrived);
    rig_free_client(&one);
    rig_free_client(&two);
    rig.weight.handles = 0;
  }
}

/* ---- sleeping */

static void nobody_sleeps_through_a_call(void **state) {
  struct rig_control control;
  struct rig_client client;
  rig_start(&control, 0); /* sleeps whenever it finds nothing */
  rig_join(&control, &client);
  for (unsigned i = 0; i < 10000; i++)
    rig_expect_nop(&client);
  struct ring_submission one = rig_product(&client, 0, 1);
  rig_fill(&client, &one, 1);
  for (unsigned i = 0; i < 1000; i++)
    assert_int_equal(rig_call(&client, one).status, STATUS_OK);
  rig_check(&client, &one);
  rig_leave(&control, &client);
  rig_stop(&control);
}

struct caller {
  pthread_t thread;
  struct rig_client client;
  unsigned seed;
};

/* Keeps a varying number of products in flight; each slot's result is checked before the slot is used again. */
static void *call_on_and_on(void *argument) {
  struct caller *caller = argument;
  struct rig_client *client = &caller->client;
  struct ring_submission slots[ENTRIES];
  for (unsigned round = 0; round < 200; round++) {
    unsigned count = 1 + (round * 7 + caller->seed) % ENTRIES;
    uint64_t first = client->next_tag + 1;
    for (unsigned slot = 0; slot < count; slot++) {
      slots[slot] = rig_product(client, slot, 1 + (round + slot) % 5);
      rig_fill(client, &slots[slot], round + caller->seed);
      rig_submit(client, slots[slot]);
    }
    unsigned seen = 0;
    for (unsigned i = 0; i < count; i++) {
      struct ring_completion completion = rig_take(client);
      assert_int_equal(completion.status, STATUS_OK);
      assert_in_range(completion.tag, first, first + count - 1);
      assert_false(seen >> (completion.tag - first) & 1);
      seen |= 1u << (completion.tag - first);
      rig_check(client, &slots[completion.tag - first]);
    }
  }
  return NULL;
}

static void sessions_are_served_side_by_side(void **state) {
  enum { CALLERS = 3 };
  for (uint64_t spin_us = 0; spin_us <= 50; spin_us += 50) {
    struct rig_control control;
    struct caller callers[CALLERS];
    rig_start(&control, spin_us);
    for (unsigned i = 0; i < CALLERS; i++) {
      callers[i].seed = i;
      rig_join(&control, &callers[i].client);
    }
    for (unsigned i = 0; i < CALLERS; i++)
      assert_int_equal(pthread_create(&callers[i].thread, NULL, call_on_and_on, &callers[i]), 0);
    for (unsigned i = 0; i < CALLERS; i++)
      pthread_join(callers[i].thread, NULL);
    for (unsigned i = 0; i < CALLERS; i++)
      rig_leave(&control, &callers[i].client);
    rig_stop(&control);
  }
}

/* ---- generations */

static void a_successor_waits_until_the_client_knows_of_it(void **state) {
  for (unsigned round = 0; round < 200; round++) {
    struct rig_control control;
    struct rig_client client, other;
    rig_start(&control, 0);
    rig_join(&control, &other);
    rig_join_with(&control, &client, 2); /* the client is still at 1, and asks its dead worker */
    uint64_t tag = rig_submit(&client, (struct ring_submission){.opcode = RING_OP_NOP});
    rig_ring_doorbell(&client);
    rig_expect_nop(&other); /* the engine has been around */
    rig_expect_nop(&other);
    assert_int_equal(atomic_load(&client.ring.queue->submission_head), 0);
    assert_int_equal(atomic_load(&client.ring.queue->completion_tail), 0);
    ring_replace_worker(client.ring.queue, 2);
    assert_true(ring_client_replaced(&client.ring));
    assert_false(ring_client_ready(&client.ring));
    ring_client_reset(&client.ring);
    client.next_tag = tag - 1;
    rig_expect_nop(&client);
    rig_leave(&control, &client);
    rig_leave(&control, &other);
    rig_stop(&control);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products_are_right),
      cmocka_unit_test(strides_offsets_and_bias_arrive),
      cmocka_unit_test(what_is_wrong_is_named),
      cmocka_unit_test(a_session_with_false_indices_ends_alone),
      cmocka_unit_test(a_session_that_blocks_its_wakeup_ends_alone),
      cmocka_unit_test(a_full_wakeup_counter_is_no_offence),
      cmocka_unit_test(a_lost_device_is_reported_and_nothing_completed),
      cmocka_unit_test(a_busy_device_is_asked_again),
      cmocka_unit_test(a_product_that_the_device_refuses_fails_alone),
      cmocka_unit_test(an_engine_that_sleeps_is_not_stuck),
      cmocka_unit_test(a_product_that_hangs_shows_though_others_end),
      cmocka_unit_test(a_session_goes_when_the_device_has_finished),
      cmocka_unit_test(a_weight_goes_when_nothing_uses_it),
      cmocka_unit_test(a_handle_can_be_given_once),
      cmocka_unit_test(a_stop_answers_everything),
      cmocka_unit_test(nobody_sleeps_through_a_call),
      cmocka_unit_test(sessions_are_served_side_by_side),
      cmocka_unit_test(a_successor_waits_until_the_client_knows_of_it),
  };
  return cmocka_run_group_tests(tests, rig_open, rig_close);
}
