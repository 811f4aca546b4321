/* The order in which the engine takes what waits, and products of several requests. */
#include "daemon/worker/serve/engine.h"
#include "daemon/worker/serve/serve.h"
#include "tests/support/worker/rig.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { ENTRIES = RIG_ENTRIES };

/* ---- order, and products of several requests */

static _Atomic bool held;          /* the device takes nothing */
static _Atomic unsigned tried;     /* since then */
static _Atomic uint64_t sizes[64]; /* rows of the products that the device took */
static _Atomic unsigned size_count;
static _Atomic unsigned held_from; /* so many products on; 0: never */
static _Atomic uint32_t awake;     /* clients, as the last product says */

static enum status submit_when_let(struct backend *of, const struct backend_job *job, struct error *error) {
  uint64_t rows = 0;
  if (held) {
    tried++;
    return error_set(error, STATUS_BUSY, "held by the test");
  }
  awake = job->awake;
  for (const struct backend_job *each = job; each != NULL; each = each->next)
    rows += (uint64_t)each->m;
  sizes[size_count++ % 64] = rows;
  held = size_count == held_from;
  return rig.ops->submit(of, job, error);
}

/* Until the engine has taken in all that was submitted: it tries on and on to start the first. */
static void wait_until_taken(struct rig_client *client) {
  while (atomic_load(&client->ring.queue->submission_head) != client->ring.submission_tail)
    sched_yield();
  for (unsigned before = tried; tried == before;)
    sched_yield();
}

static void start_holding(struct rig_control *control, struct backend_ops *device, uint32_t rows) {
  *device = *rig.ops;
  device->submit = submit_when_let;
  held = true;
  tried = size_count = held_from = 0;
  rig_start_batching(control, device, 0, rows, 0);
}

static void take_all_right(struct rig_client *client, const struct ring_submission *products, unsigned count) {
  for (unsigned i = 0; i < count; i++)
    assert_int_equal(rig_take(client).status, STATUS_OK);
  for (unsigned i = 0; i < count; i++)
    rig_check(client, &products[i]);
}

static void requests_that_wait_together_are_one_product(void **state) {
  struct backend_ops device;
  struct rig_control control;
  struct rig_client clients[3];
  struct ring_submission products[3][2];
  start_holding(&control, &device, 64);
  for (unsigned i = 0; i < 3; i++) {
    rig_join(&control, &clients[i]);
    for (unsigned j = 0; j < 2; j++) {
      products[i][j] = rig_product(&clients[i], j, 1 + i + 4 * j);
      rig_fill(&clients[i], &products[i][j], 10 * i + j);
      rig_submit(&clients[i], products[i][j]);
    }
  }
  for (unsigned i = 0; i < 3; i++)
    wait_until_taken(&clients[i]);
  held = false;
  for (unsigned i = 0; i < 3; i++)
    take_all_right(&clients[i], products[i], 2);
  assert_int_equal(size_count, 1);
  assert_int_equal(sizes[0], 1 + 5 + 2 + 6 + 3 + 7);
  struct message_worker_stats stats;
  engine_stats(control.engine, &stats);
  assert_int_equal(stats.requests, 6);
  assert_int_equal(stats.products, 1);
  assert_int_equal(stats.rows, 24);
  for (unsigned i = 0; i < 3; i++)
    rig_leave(&control, &clients[i]);
  rig_stop(&control);
}

/* Of four clients `asleep` sleep, and one has asked for nothing. */
static uint32_t count_awake(bool on_cores, unsigned asleep) {
  struct backend_ops device;
  struct rig_control control;
  struct rig_client clients[4];
  struct ring_submission products[3];
  start_holding(&control, &device, 64);
  device.on_cores = on_cores;
  for (unsigned i = 0; i < 4; i++)
    rig_join(&control, &clients[i]);
  for (unsigned i = 0; i < 3; i++) {
    products[i] = rig_product(&clients[i], 0, 1);
    rig_fill(&clients[i], &products[i], i);
    rig_submit(&clients[i], products[i]);
    wait_until_taken(&clients[i]);
  }
  for (unsigned i = 0; i < asleep; i++)
    assert_true(ring_client_sleep(&clients[i].ring));
  wait_until_taken(&clients[0]); /* whoever was counted before that has been refused */
  held = false;
  while (size_count == 0) /* rig_take sleeps at once */
    sched_yield();
  for (unsigned i = 0; i < 3; i++)
    take_all_right(&clients[i], &products[i], 1);
  for (unsigned i = 0; i < 4; i++)
    rig_leave(&control, &clients[i]);
  rig_stop(&control);
  return awake;
}

static void a_product_on_cores_knows_who_looks_out_for_it(void **state) {
  assert_int_equal(count_awake(true, 0), 3);
  assert_int_equal(count_awake(true, 1), 2);
  assert_int_equal(count_awake(true, 3), 1); /* will be woken by its end */
  assert_int_equal(count_awake(false, 1), 0);
}

static void a_batch_has_so_many_rows(void **state) {
  struct backend_ops device;
  struct rig_control control;
  struct rig_client client;
  struct ring_submission products[8];
  start_holding(&control, &device, 6);
  rig_join(&control, &client);
  for (unsigned i = 0; i < 8; i++) {
    products[i] = rig_product(&client, i, i == 7 ? 60 : 2);
    rig_fill(&client, &products[i], i);
    rig_submit(&client, products[i]);
  }
  wait_until_taken(&client);
  held = false;
  take_all_right(&client, products, 8);
  assert_int_equal(size_count, 4);
  assert_true(sizes[0] == 6 && sizes[1] == 6 && sizes[2] == 2 && sizes[3] == 60);
  rig_leave(&control, &client);
  rig_stop(&control);
}

static void a_window_lets_others_join(void **state) {
  struct rig_control control;
  struct rig_client client;
  struct ring_submission products[4];
  rig_start_batching(&control, rig.ops, 0, 4, 60000000); /* a minute: only a full batch ends this wait */
  rig_join(&control, &client);
  for (unsigned i = 0; i < 4; i++) {
    products[i] = rig_product(&client, i, 1);
    rig_fill(&client, &products[i], i);
    rig_submit(&client, products[i]);
  }
  take_all_right(&client, products, 4);
  struct message_worker_stats stats;
  engine_stats(control.engine, &stats);
  assert_int_equal(stats.products, 1);
  rig_leave(&control, &client);
  rig_stop(&control);
}

/* One that floods and one that asks once, of the same class: the latter's is among the first two. */
static void a_flood_starves_nobody(void **state) {
  struct backend_ops device;
  struct rig_control control;
  struct rig_client flood, other;
  start_holding(&control, &device, 1);
  rig_join(&control, &flood);
  rig_join(&control, &other);
  for (unsigned i = 0; i < ENTRIES; i++)
    rig_submit(&flood, rig_product(&flood, i, 10 + i));
  wait_until_taken(&flood);
  rig_submit(&other, rig_product(&other, 0, 1));
  wait_until_taken(&other);
  held = false;
  assert_int_equal(rig_take(&other).status, STATUS_OK);
  for (unsigned i = 0; i < ENTRIES; i++)
    assert_int_equal(rig_take(&flood).status, STATUS_OK);
  assert_true(sizes[0] == 10 && sizes[1] == 1 && sizes[2] == 11);
  rig_leave(&control, &other);
  rig_leave(&control, &flood);
  rig_stop(&control);
}

/* ---- products that take long: those of a hundred rows and more, here */

enum { TURN = 1000 /* in `sizes` */ };

static uint64_t predict_rows(const struct backend *of, const struct backend_job *job) {
  return job->m >= 100 ? UINT64_MAX : 0;
}

static enum status begin_when_let(struct backend *of, const struct backend_job *job, uint32_t most,
                                  struct backend_turns **out, struct error *error) {
  if (held) {
    tried++;
    return error_set(error, STATUS_BUSY, "held by the test");
  }
  return rig.ops->turns_begin(of, job, most, out, error);
}

/* As short as a turn can be; one without work while it is held. */
static bool turn_when_let(struct backend *of, struct backend_turns *turns, uint64_t budget_ns,
                          struct backend_done *done, struct error *error) {
  if (held) {
    tried++;
    *done = (struct backend_done){.tag = 0};
    return false;
  }
  sizes[size_count++ % 64] = TURN;
  held = size_count == held_from;
  return rig.ops->turns_next(of, turns, 0, done, error);
}

/* The same where turns are the device's: one is under way until the test lets it go. */
static bool beside; /* the engine */
static struct backend_turns *turn_there;

static enum status submit_turn(struct backend *of, struct backend_turns *turns, uint64_t budget_ns,
                               struct error *error) {
  if (turn_there != NULL)
    return error_set(error, STATUS_BUSY, "a turn is under way");
  sizes[size_count++ % 64] = TURN;
  turn_there = turns;
  return STATUS_OK;
}

static int poll_turn(struct backend *of, struct backend_done *done, int most) {
  struct error error;
  tried += turn_there != NULL && held;
  if (turn_there == NULL || held)
    return rig.ops->poll(of, done, most);
  struct backend_turns *turns = turn_there;
  turn_there = NULL;
  bool ended = rig.ops->turns_next(of, turns, 0, done, &error);
  done->goes_on = !ended;
  done->turn_ns = done->device_ns;
  held = size_count == held_from;
  return 1;
}

static void start_holding_turns(struct rig_control *control, struct backend_ops *device) {
  *device = *rig.ops;
  device->submit = submit_when_let;
  device->predict_ns = predict_rows;
  device->turns_begin = begin_when_let;
  device->turns_next = beside ? NULL : turn_when_let;
  device->turns_submit = beside ? submit_turn : NULL;
  device->poll = beside ? poll_turn : rig.ops->poll;
  held = true;
  tried = size_count = held_from = 0;
  rig_start_batching(control, device, 0, 1, 0);
}

/* Between the turns of one that takes long others have theirs. */
static void a_long_product_has_many_turns(void **state) {
  struct backend_ops device;
  struct rig_control control;
  struct rig_client long_one, other;
  start_holding_turns(&control, &device);
  rig_join(&control, &long_one);
  rig_join(&control, &other);
  struct ring_submission product = rig_product(&long_one, 0, 300), brief[2];
  rig_fill(&long_one, &product, 3);
  rig_submit(&long_one, product);
  wait_until_taken(&long_one);
  for (unsigned i = 0; i < 2; i++) {
    brief[i] = rig_product(&other, i, 1 + i);
    rig_fill(&other, &brief[i], i);
    rig_submit(&other, brief[i]);
  }
  wait_until_taken(&other);
  held = false;
  take_all_right(&other, brief, 2);
  take_all_right(&long_one, &product, 1);
  assert_true(size_count >= 5);
  assert_true(sizes[0] == 1 && sizes[1] == TURN && sizes[2] == 2);
  for (unsigned i = 3; i < size_count; i++)
    assert_int_equal(sizes[i], TURN);
  struct message_worker_stats stats;
  engine_stats(control.engine, &stats);
  assert_int_equal(stats.requests, 3);
  assert_int_equal(stats.products, 3);
  assert_int_equal(stats.rows, 303);
  rig_leave(&control, &other);
  rig_leave(&control, &long_one);
  rig_stop(&control);
}

/* It has had a turn, and then has none before it is let. */
static uint64_t begin_long(struct rig_control *control, struct backend_ops *device, struct rig_client *client,
                           uint64_t deadline_ns) {
  start_holding_turns(control, device);
  rig_join(control, client);
  struct ring_submission product = rig_product(client, 0, 300);
  product.deadline_ns = deadline_ns;
  rig_fill(client, &product, 3);
  uint64_t tag = rig_submit(client, product);
  wait_until_taken(client);
  held_from = 1;
  held = false;
  while (!held)
    sched_yield();
  return tag;
}

static void a_long_product_can_be_cancelled_on_its_way(void **state) {
  struct backend_ops device;
  struct rig_control control;
  struct rig_client client;
  bool wake;
  uint64_t tag = begin_long(&control, &device, &client, 0);
  assert_true(ring_client_cancel(&client.ring, tag, &wake));
  if (wake)
    rig_ring_doorbell(&client);
  wait_until_taken(&client);
  held = false;
  assert_int_equal(rig_take(&client).status, STATUS_CANCELLED);
  assert_int_equal(size_count, 2);
  assert_int_equal(rig.weight.jobs, 0);
  rig_leave(&control, &client);
  rig_stop(&control);
}

static void a_deadline_can_pass_on_the_way(void **state) {
  struct backend_ops device;
  struct rig_control control;
  struct rig_client client;
  uint64_t deadline_ns = clock_ns() + 300000000;
  begin_long(&control, &device, &client, deadline_ns);
  while (clock_ns() < deadline_ns)
    sched_yield();
  held = false;
  assert_int_equal(rig_take(&client).status, STATUS_TIMEOUT);
  assert_int_equal(rig.weight.jobs, 0);
  rig_leave(&control, &client);
  rig_stop(&control);
}

/* It ends without being computed to its end; nobody hears of it. */
static void a_client_leaves_a_long_product_behind(void **state) {
  struct backend_ops device;
  struct rig_control control;
  struct rig_client client, other;
  begin_long(&control, &device, &client, 0);
  rig_join(&control, &other);
  held = false;
  rig_leave(&control, &client);
  struct ring_submission brief = rig_product(&other, 0, 1);
  rig_fill(&other, &brief, 1);
  rig_submit(&other, brief);
  take_all_right(&other, &brief, 1);
  assert_int_equal(rig.weight.jobs, 0);
  rig_leave(&control, &other);
  rig_stop(&control);
}

/* Deadlines of what waits pass whatever is computed meanwhile. */
static void a_deadline_passes_behind_others(void **state) {
  struct backend_ops device;
  struct rig_control control;
  struct rig_client client;
  begin_long(&control, &device, &client, 0);
  struct ring_submission brief = rig_product(&client, 1, 1);
  brief.deadline_ns = clock_ns() + 1000000;
  rig_submit(&client, brief);
  assert_int_equal(rig_take(&client).status, STATUS_TIMEOUT); /* while the long one is held */
  held = false;
  assert_int_equal(rig_take(&client).status, STATUS_OK);
  rig_leave(&control, &client);
  rig_stop(&control);
}

/* Memory that a waiting product uses is not given back, and is when that has ended. */
static void memory_in_use_stays(void **state) {
  struct backend_ops device;
  struct rig_control control;
  struct rig_client client;
  enum { TENSOR = 7 << 16 | 1 };
  start_holding(&control, &device, 1);
  rig_join(&control, &client);
  struct ring_submission product = rig_product(&client, 0, 3);
  struct engine_tensor tensor = {.address = client.session.base + product.x_offset, .bytes = 4096};
  struct engine_message message = {
      .verb = ENGINE_TENSOR_ADD, .session = &client.session, .tensor = &tensor, .handle = TENSOR};
  assert_int_equal(rig_ask(&control, &message), STATUS_OK);
  rig_fill(&client, &product, 1);
  struct ring_submission by_handle = product;
  by_handle.x_tensor = TENSOR;
  by_handle.x_offset = 0;
  rig_submit(&client, by_handle);
  wait_until_taken(&client);
  message.verb = ENGINE_TENSOR_REMOVE;
  assert_int_equal(rig_ask(&control, &message), STATUS_BUSY);
  held = false;
  assert_int_equal(rig_take(&client).status, STATUS_OK);
  rig_check(&client, &product);
  assert_int_equal(rig_ask(&control, &message), STATUS_OK);
  assert_int_equal(rig_call(&client, by_handle).status, STATUS_NOT_FOUND);
  rig_leave(&control, &client);
  rig_stop(&control);
}

/* It was asked for before the memory was to be given back: the engine was busy, and finds both. */
static void memory_in_use_stays_for_a_busy_engine(void **state) {
  struct backend_ops device = *rig.ops;
  struct rig_control control;
  struct rig_client client;
  enum { TENSOR = 7 << 16 | 1 };
  rig_keep_busy(&device);
  rig_start_on(&control, &device, 0);
  rig_join(&control, &client);
  struct ring_submission products[] = {rig_product(&client, 0, 3), rig_product(&client, 1, 3)};
  struct engine_tensor tensor = {.address = client.session.base + products[1].x_offset, .bytes = 4096};
  struct engine_message message = {
      .verb = ENGINE_TENSOR_ADD, .session = &client.session, .tensor = &tensor, .handle = TENSOR};
  assert_int_equal(rig_ask(&control, &message), STATUS_OK);
  for (unsigned i = 0; i < 2; i++)
    rig_fill(&client, &products[i], i);
  struct ring_submission by_handle = products[1];
  by_handle.x_tensor = TENSOR;
  by_handle.x_offset = 0;
  rig_submit(&client, products[0]);
  rig_await_busy();
  rig_submit(&client, by_handle);
  message.verb = ENGINE_TENSOR_REMOVE;
  engine_post(control.engine, &message);
  rig_let_go();
  assert_int_equal(rig_expect_back(&control, &message), STATUS_BUSY);
  take_all_right(&client, products, 2);
  assert_int_equal(rig_ask(&control, &message), STATUS_OK);
  rig_leave(&control, &client);
  rig_stop(&control);
}

static void urgent_products_overtake(void **state) {
  struct backend_ops device;
  struct rig_control control;
  struct rig_client client;
  const enum ring_priority priorities[] = {RING_PRIORITY_BACKGROUND, RING_PRIORITY_NORMAL, RING_PRIORITY_URGENT};
  start_holding(&control, &device, 1);
  rig_join(&control, &client);
  for (unsigned i = 0; i < 3; i++) {
    struct ring_submission one = rig_product(&client, i, 1 + i);
    one.priority = (uint8_t)priorities[i];
    rig_submit(&client, one);
  }
  wait_until_taken(&client);
  held = false;
  for (unsigned i = 0; i < 3; i++)
    assert_int_equal(rig_take(&client).status, STATUS_OK);
  assert_true(sizes[0] == 3 && sizes[1] == 2 && sizes[2] == 1);
  rig_leave(&control, &client);
  rig_stop(&control);
}

static void deadlines_hold_before_the_start(void **state) {
  struct backend_ops device;
  struct rig_control control;
  struct rig_client client;
  start_holding(&control, &device, 64);
  rig_join(&control, &client);
  struct ring_submission late = rig_product(&client, 0, 1), waits = rig_product(&client, 1, 2),
                         timely = rig_product(&client, 2, 3);
  late.deadline_ns = 1; /* over when it is admitted */
  assert_int_equal(rig_call(&client, late).status, STATUS_TIMEOUT);
  waits.deadline_ns = clock_ns() + 20000000; /* over while the device takes nothing */
  timely.deadline_ns = UINT64_MAX;
  uint64_t tag = rig_submit(&client, waits);
  rig_submit(&client, timely);
  wait_until_taken(&client);
  struct ring_completion completion = rig_take(&client);
  assert_int_equal(completion.tag, tag);
  assert_int_equal(completion.status, STATUS_TIMEOUT);
  held = false;
  assert_int_equal(rig_take(&client).status, STATUS_OK);
  assert_int_equal(size_count, 1);
  assert_int_equal(sizes[0], 3);
  assert_int_equal(rig.weight.jobs, 0);
  rig_leave(&control, &client);
  rig_stop(&control);
}

static void what_waits_can_be_cancelled(void **state) {
  struct backend_ops device;
  struct rig_control control;
  struct rig_client client, other;
  bool wake;
  start_holding(&control, &device, 64);
  rig_join(&control, &client);
  rig_join(&control, &other);
  uint64_t first = rig_submit(&client, rig_product(&client, 0, 1)),
           second = rig_submit(&client, rig_product(&client, 1, 2));
  wait_until_taken(&client);
  assert_true(ring_client_cancel(&other.ring, second, &wake)); /* nobody cancels what is another's */
  assert_true(ring_client_cancel(&other.ring, 12345, &wake));
  wait_until_taken(&other);
  assert_true(ring_client_cancel(&client.ring, second, &wake));
  if (wake)
    rig_ring_doorbell(&client);
  struct ring_completion completion = rig_take(&client);
  assert_int_equal(completion.tag, second);
  assert_int_equal(completion.status, STATUS_CANCELLED);
  held = false;
  completion = rig_take(&client);
  assert_int_equal(completion.tag, first);
  assert_int_equal(completion.status, STATUS_OK);
  assert_int_equal(sizes[0], 1);
  rig_expect_nop(&other);
  rig_leave(&control, &other);
  rig_leave(&control, &client);
  rig_stop(&control);
}

static void a_session_may_end_with_rows_in_a_batch(void **state) {
  struct backend_ops device;
  struct rig_control control;
  struct rig_client stays, goes;
  start_holding(&control, &device, 64);
  rig_join(&control, &stays);
  rig_join(&control, &goes);
  struct ring_submission one = rig_product(&stays, 0, 1);
  rig_fill(&stays, &one, 5);
  rig_submit(&goes, rig_product(&goes, 0, 2));
  rig_submit(&stays, one);
  wait_until_taken(&goes);
  wait_until_taken(&stays);
  rig_leave(&control, &goes);
  held = false;
  take_all_right(&stays, &one, 1);
  assert_int_equal(sizes[0], 1);
  rig_leave(&control, &stays);
  rig_stop(&control);
}

static int open_beside(void **state) {
  beside = true;
  return rig_open(state);
}

int main(void) {
  const struct CMUnitTest turns_there[] = {
      cmocka_unit_test(a_long_product_has_many_turns),   cmocka_unit_test(a_long_product_can_be_cancelled_on_its_way),
      cmocka_unit_test(a_deadline_can_pass_on_the_way),  cmocka_unit_test(a_client_leaves_a_long_product_behind),
      cmocka_unit_test(a_deadline_passes_behind_others),
  };
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(requests_that_wait_together_are_one_product),
      cmocka_unit_test(a_product_on_cores_knows_who_looks_out_for_it),
      cmocka_unit_test(a_batch_has_so_many_rows),
      cmocka_unit_test(a_window_lets_others_join),
      cmocka_unit_test(a_flood_starves_nobody),
      cmocka_unit_test(a_long_product_has_many_turns),
      cmocka_unit_test(a_long_product_can_be_cancelled_on_its_way),
      cmocka_unit_test(a_deadline_can_pass_on_the_way),
      cmocka_unit_test(a_client_leaves_a_long_product_behind),
      cmocka_unit_test(a_deadline_passes_behind_others),
      cmocka_unit_test(memory_in_use_stays),
      cmocka_unit_test(memory_in_use_stays_for_a_busy_engine),
      cmocka_unit_test(urgent_products_overtake),
      cmocka_unit_test(deadlines_hold_before_the_start),
      cmocka_unit_test(what_waits_can_be_cancelled),
      cmocka_unit_test(a_session_may_end_with_rows_in_a_batch),
  };
  int failed = cmocka_run_group_tests(tests, rig_open, rig_close);
  return failed + cmocka_run_group_tests(turns_there, open_beside, rig_close);
}
