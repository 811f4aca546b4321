/* The rings by one thread: layout, order, bounds, replacement of the worker, words that lie. */
#include "proto/limits.h"
#include "proto/shm/ring.h"
#include "tests/support/worker/pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- layout */

/* What PROTOCOL.md says, in numbers. */
static void offsets_on_the_wire(void **state) {
  assert_int_equal(sizeof(struct ring_header), 4096);
  assert_int_equal(offsetof(struct ring_header, magic), 0);
  assert_int_equal(offsetof(struct ring_header, version), 4);
  assert_int_equal(offsetof(struct ring_header, devices), 8);
  assert_int_equal(offsetof(struct ring_header, entries), 12);
  assert_int_equal(offsetof(struct ring_header, arena_bytes), 16);
  assert_int_equal(offsetof(struct ring_header, tensor_offset), 24);
  assert_int_equal(sizeof(struct ring_queue), 320);
  assert_int_equal(offsetof(struct ring_queue, worker_generation), 0);
  assert_int_equal(offsetof(struct ring_queue, worker_state), 4);
  assert_int_equal(offsetof(struct ring_queue, submission_tail), 64);
  assert_int_equal(offsetof(struct ring_queue, completion_head), 128);
  assert_int_equal(offsetof(struct ring_queue, client_generation), 132);
  assert_int_equal(offsetof(struct ring_queue, client_sleeping), 136);
  assert_int_equal(offsetof(struct ring_queue, submission_head), 192);
  assert_int_equal(offsetof(struct ring_queue, worker_sleeping), 196);
  assert_int_equal(offsetof(struct ring_queue, completion_tail), 256);
  assert_int_equal(sizeof(struct ring_submission), 128);
  assert_int_equal(offsetof(struct ring_submission, tag), 0);
  assert_int_equal(offsetof(struct ring_submission, opcode), 8);
  assert_int_equal(offsetof(struct ring_submission, event), 12);
  assert_int_equal(offsetof(struct ring_submission, weight), 16);
  assert_int_equal(offsetof(struct ring_submission, x_type), 20);
  assert_int_equal(offsetof(struct ring_submission, y_type), 21);
  assert_int_equal(offsetof(struct ring_submission, bias_type), 22);
  assert_int_equal(offsetof(struct ring_submission, priority), 23);
  assert_int_equal(offsetof(struct ring_submission, m), 24);
  assert_int_equal(offsetof(struct ring_submission, n), 28);
  assert_int_equal(offsetof(struct ring_submission, k), 32);
  assert_int_equal(offsetof(struct ring_submission, steps), 36);
  assert_int_equal(offsetof(struct ring_submission, x_offset), 40);
  assert_int_equal(offsetof(struct ring_submission, y_offset), 48);
  assert_int_equal(offsetof(struct ring_submission, x_stride), 56);
  assert_int_equal(offsetof(struct ring_submission, y_stride), 64);
  assert_int_equal(offsetof(struct ring_submission, bias_offset), 72);
  assert_int_equal(offsetof(struct ring_submission, x_scale_offset), 80);
  assert_int_equal(offsetof(struct ring_submission, deadline_ns), 88);
  assert_int_equal(offsetof(struct ring_submission, plan_offset), 96);
  assert_int_equal(offsetof(struct ring_submission, w_offset), 104);
  assert_int_equal(offsetof(struct ring_submission, w_stride), 112);
  assert_int_equal(offsetof(struct ring_submission, x_tensor), 120);
  assert_int_equal(offsetof(struct ring_submission, y_tensor), 124);
  assert_int_equal(sizeof(struct ring_completion), 64);
  assert_int_equal(offsetof(struct ring_completion, tag), 0);
  assert_int_equal(offsetof(struct ring_completion, status), 8);
  assert_int_equal(offsetof(struct ring_completion, field), 10);
  assert_int_equal(offsetof(struct ring_completion, skipped), 12);
  assert_int_equal(offsetof(struct ring_completion, value), 16);
  assert_int_equal(offsetof(struct ring_completion, low), 24);
  assert_int_equal(offsetof(struct ring_completion, high), 32);
  assert_int_equal(offsetof(struct ring_completion, device_ns), 40);
  assert_int_equal(offsetof(struct ring_completion, queue_ns), 44);
  assert_int_equal(offsetof(struct ring_completion, reserved1), 48);
}

static void sizes_of_queues(void **state) {
  assert_true(ring_queue_bytes(1) == 4096);
  assert_true(ring_queue_bytes(64) == 16384); /* 320 + 64 * 192 = 12608 */
  assert_true(ring_queue_bytes(256) == 53248);
  assert_true(ring_queue_offset(64, 0) == 4096 && ring_queue_offset(64, 2) == 4096 + 2 * 16384);
  assert_true(ring_tensor_offset(256, 64) == 4096 + 64 * 53248);
}

static void arenas_that_cannot_be(void **state) {
  static const struct {
    uint32_t devices, entries;
    uint64_t bytes;
    const char *text;
  } cases[] = {
      {0, 64, 1 << 20, "device must be 1..64, got 0"},
      {65, 64, 1 << 20, "device must be 1..64, got 65"},
      {1, 0, 1 << 20, "entries must be 1..256, got 0"},
      {1, 512, 1 << 20, "entries must be 1..256, got 512"},
      {1, 96, 1 << 20, "entries must be a power of two, got 96"},
      {1, 64, 24575, "bytes must be 24576..1099511627776, got 24575"},
      {1, 64, LIMIT_ARENA_BYTES + 1, "bytes must be 24576..1099511627776, got 1099511627777"},
      {1, 64, UINT64_MAX, "bytes must be 24576..1099511627776, got 9223372036854775807"},
  };
  struct error error;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    assert_int_equal(ring_check(cases[i].devices, cases[i].entries, cases[i].bytes, &error), STATUS_INVALID);
    assert_string_equal(error.text, cases[i].text);
  }
  assert_int_equal(ring_check(1, 64, 24576, &error), STATUS_OK);
  assert_int_equal(ring_check(64, 256, LIMIT_ARENA_BYTES, &error), STATUS_OK);
  assert_int_equal(ring_check(1, 1, 12288, &error), STATUS_OK);
}

static void headers_that_lie(void **state) {
  struct pair pair = pair_make(64);
  struct ring_header *header = pair.arena;
  struct ring_header good = *header;
  struct error error;
  assert_int_equal(ring_header_check(header, pair.bytes, &error), STATUS_OK);
  assert_int_equal(ring_header_check(header, pair.bytes + 4096, &error), STATUS_PROTOCOL);
  header->magic++;
  assert_int_equal(ring_header_check(header, pair.bytes, &error), STATUS_PROTOCOL);
  *header = good;
  header->version = 2;
  assert_int_equal(ring_header_check(header, pair.bytes, &error), STATUS_VERSION);
  assert_string_equal(error.text, "arena version must be 1, got 2");
  *header = good;
  header->entries = 63;
  assert_int_equal(ring_header_check(header, pair.bytes, &error), STATUS_INVALID);
  *header = good;
  header->devices = 2;
  assert_int_equal(ring_header_check(header, pair.bytes, &error), STATUS_INVALID); /* does not fit any more */
  *header = good;
  header->tensor_offset -= 4096;
  assert_int_equal(ring_header_check(header, pair.bytes, &error), STATUS_PROTOCOL);
  pair_free(&pair);
}

static void queues_do_not_overlap(void **state) {
  enum { DEVICES = 3, ENTRIES = 2 };
  uint64_t bytes = ring_tensor_offset(ENTRIES, DEVICES) + 4096;
  uint8_t *arena = aligned_alloc(4096, bytes);
  memset(arena, 0, bytes);
  ring_format(arena, DEVICES, ENTRIES, bytes);
  for (uint32_t device = 0; device < DEVICES; device++) {
    struct ring_client client;
    ring_client_init(&client, arena, ENTRIES, device);
    uint8_t *begin = arena + ring_queue_offset(ENTRIES, device);
    assert_ptr_equal(client.queue, begin);
    assert_ptr_equal(client.submissions, begin + 320);
    assert_ptr_equal(client.completions, begin + 320 + ENTRIES * 128);
    assert_true((const uint8_t *)(client.completions + ENTRIES) <= begin + ring_queue_bytes(ENTRIES));
    assert_int_equal(client.generation, 1);
    assert_int_equal(ring_client_worker_state(&client), RING_WORKER_STARTING);
  }
  free(arena);
}

/* ---- one after the other */

static void in_order_and_bounded(void **state) {
  struct pair pair = pair_make(4);
  assert_int_equal(pair_take(&pair), -1);
  assert_int_equal(pair_reap(&pair), -1);
  for (uint64_t tag = 1; tag <= 4; tag++)
    assert_true(pair_submit(&pair, tag));
  assert_false(pair_submit(&pair, 5));
  assert_int_equal(pair_take(&pair), 1);
  assert_false(pair_submit(&pair, 5)); /* taken is not yet completed */
  pair_complete(&pair, 1);
  assert_false(pair_submit(&pair, 5)); /* and completed not yet taken */
  assert_true(ring_client_ready(&pair.client));
  assert_int_equal(pair_reap(&pair), 1);
  assert_false(ring_client_ready(&pair.client));
  assert_true(pair_submit(&pair, 5));
  for (int64_t tag = 2; tag <= 5; tag++)
    assert_int_equal(pair_take(&pair), tag);
  assert_int_equal(pair_take(&pair), -1);
  assert_int_equal(pair.worker.in_flight, 4);
  for (int64_t tag = 5; tag >= 2; tag--) /* completed in another order */
    pair_complete(&pair, (uint64_t)tag);
  assert_int_equal(pair.worker.in_flight, 0);
  for (int64_t tag = 5; tag >= 2; tag--)
    assert_int_equal(pair_reap(&pair), tag);
  pair_free(&pair);
}

/* As after 2^32 - 3 entries. */
static void counters_wrap(void **state) {
  struct pair pair = pair_make(2);
  uint32_t begin = UINT32_MAX - 2;
  struct ring_queue *queue = pair.client.queue;
  atomic_store(&queue->submission_tail, begin);
  atomic_store(&queue->submission_head, begin);
  atomic_store(&queue->completion_tail, begin);
  atomic_store(&queue->completion_head, begin);
  ring_client_init(&pair.client, pair.arena, pair.entries, 0);
  pair.worker.submission_head = pair.worker.completion_tail = begin;
  for (uint64_t tag = 0; tag < 20; tag += 2) {
    assert_true(pair_submit(&pair, tag) && pair_submit(&pair, tag + 1));
    assert_false(pair_submit(&pair, 99));
    assert_int_equal(pair_take(&pair), tag);
    assert_int_equal(pair_take(&pair), tag + 1);
    assert_int_equal(pair_take(&pair), -1);
    pair_complete(&pair, tag);
    pair_complete(&pair, tag + 1);
    assert_int_equal(pair_reap(&pair), tag);
    assert_int_equal(pair_reap(&pair), tag + 1);
  }
  assert_int_equal(atomic_load(&queue->submission_tail), (uint32_t)(begin + 20));
  pair_free(&pair);
}

static void whole_entries_travel(void **state) {
  struct pair pair = pair_make(1);
  struct ring_submission in, out;
  struct ring_completion done, back;
  struct error error;
  bool flag;
  memset(&in, 0xa7, sizeof in);
  memset(&done, 0x3c, sizeof done);
  assert_true(ring_client_submit(&pair.client, &in, &flag));
  assert_int_equal(ring_worker_take(&pair.worker, &out, &flag, &error), STATUS_OK);
  assert_true(flag);
  assert_memory_equal(&in, &out, sizeof in);
  ring_worker_complete(&pair.worker, &done, &flag);
  assert_true(ring_client_take(&pair.client, &back));
  assert_memory_equal(&done, &back, sizeof done);
  pair_free(&pair);
}

static void sleepers_are_woken(void **state) {
  struct pair pair = pair_make(4);
  struct ring_submission submission = {.tag = 1};
  bool wake;
  assert_true(ring_client_submit(&pair.client, &submission, &wake));
  assert_false(wake);
  assert_false(ring_worker_sleep(&pair.worker)); /* something waits: no sleep, and no flag left */
  assert_int_equal(atomic_load(&pair.worker.queue->worker_sleeping), 0);
  assert_int_equal(pair_take(&pair), 1);
  assert_true(ring_worker_sleep(&pair.worker));
  assert_true(ring_client_submit(&pair.client, &submission, &wake));
  assert_true(wake);
  ring_worker_awake(&pair.worker);
  assert_true(ring_client_submit(&pair.client, &submission, &wake));
  assert_false(wake);

  assert_true(ring_client_sleep(&pair.client));
  assert_true(pair_complete(&pair, 1));
  ring_client_awake(&pair.client);
  assert_false(pair_complete(&pair, 1));
  assert_false(ring_client_sleep(&pair.client));
  assert_int_equal(atomic_load(&pair.client.queue->client_sleeping), 0);
  assert_int_equal(pair_reap(&pair), 1);
  assert_int_equal(pair_reap(&pair), 1);
  assert_true(ring_client_sleep(&pair.client));
  pair_free(&pair);
}

/* ---- replacement */

static void a_worker_is_replaced(void **state) {
  struct pair pair = pair_make(4);
  struct ring_queue *queue = pair.client.queue;
  ring_set_worker_state(queue, RING_WORKER_READY);
  assert_int_equal(ring_client_worker_state(&pair.client), RING_WORKER_READY);
  assert_true(pair_submit(&pair, 1) && pair_submit(&pair, 2) && pair_submit(&pair, 3));
  assert_int_equal(pair_take(&pair), 1);
  assert_int_equal(pair_take(&pair), 2);
  pair_complete(&pair, 2); /* and then it dies, with 1 in flight */
  assert_false(ring_client_replaced(&pair.client));
  ring_replace_worker(queue, 2);
  assert_int_equal(ring_client_worker_state(&pair.client), RING_WORKER_STARTING);
  assert_true(ring_client_replaced(&pair.client));
  assert_false(ring_client_sleep(&pair.client));

  ring_worker_init(&pair.worker, pair.arena, pair.entries, 0, 2);
  assert_int_equal(pair_take(&pair), -1);       /* 3 waits, but not for this one yet */
  assert_true(ring_worker_sleep(&pair.worker)); /* it may sleep meanwhile */

  assert_int_equal(pair_reap(&pair), 2);
  assert_int_equal(pair_reap(&pair), -1);
  ring_client_reset(&pair.client);
  assert_false(ring_client_replaced(&pair.client));
  assert_int_equal(pair_reap(&pair), -1);
  assert_int_equal(pair_take(&pair), -1);
  struct ring_submission submission = {.tag = 1};
  bool wake;
  assert_true(ring_client_submit(&pair.client, &submission, &wake));
  assert_true(wake); /* the flag of the successor, raised before the reset, has survived it */
  assert_true(pair_submit(&pair, 3));
  assert_int_equal(pair_take(&pair), 1);
  assert_int_equal(pair_take(&pair), 3);
  pair_complete(&pair, 3);
  pair_complete(&pair, 1);
  assert_int_equal(pair_reap(&pair), 3);
  assert_int_equal(pair_reap(&pair), 1);
  pair_free(&pair);
}

static void two_workers_die_before_the_client_looks(void **state) {
  struct pair pair = pair_make(4);
  assert_true(pair_submit(&pair, 1) && pair_submit(&pair, 2));
  assert_int_equal(pair_take(&pair), 1);
  pair_complete(&pair, 1);
  ring_replace_worker(pair.client.queue, 2);
  ring_worker_init(&pair.worker, pair.arena, pair.entries, 0, 2);
  assert_int_equal(pair_take(&pair), -1);
  ring_replace_worker(pair.client.queue, 3);
  ring_worker_init(&pair.worker, pair.arena, pair.entries, 0, 3);
  assert_int_equal(pair_reap(&pair), 1); /* what the first published is still there */
  ring_client_reset(&pair.client);
  assert_int_equal(pair.client.generation, 3);
  assert_true(pair_submit(&pair, 2));
  assert_int_equal(pair_take(&pair), 2);
  pair_complete(&pair, 2);
  assert_int_equal(pair_reap(&pair), 2);
  pair_free(&pair);
}

/* ---- hostile words */

static void indices_that_cannot_be_true(void **state) {
  static const uint32_t far[] = {3, 4, 1000, 1u << 31, UINT32_MAX - 1};
  for (size_t i = 0; i < sizeof far / sizeof far[0]; i++) {
    struct pair pair = pair_make(2);
    atomic_store(&pair.client.queue->submission_tail, far[i]);
    assert_int_equal(pair_take(&pair), -2);
    assert_int_equal(pair.worker.submission_head, 0);
    assert_int_equal(pair.worker.in_flight, 0);
    pair_free(&pair);

    pair = pair_make(2);
    assert_true(pair_submit(&pair, 1));
    atomic_store(&pair.client.queue->completion_head, far[i]);
    assert_int_equal(pair_take(&pair), -2);
    pair_free(&pair);
  }
}

/* More on the way than the ring has completions: a client that submits without taking. */
static void no_room_for_completions(void **state) {
  struct pair pair = pair_make(2);
  assert_true(pair_submit(&pair, 1) && pair_submit(&pair, 2));
  assert_int_equal(pair_take(&pair), 1);
  pair_complete(&pair, 1);
  atomic_store(&pair.client.queue->submission_tail, 3);
  assert_int_equal(pair_take(&pair), 2); /* 1 untaken + 1 on the way */
  assert_int_equal(pair_take(&pair), -2);
  pair_free(&pair);
}

/* The worker's own words are never read back, so what a client writes there changes nothing. */
static void the_workers_words_rewritten(void **state) {
  struct pair pair = pair_make(2);
  struct ring_queue *queue = pair.client.queue;
  for (uint64_t tag = 0; tag < 10; tag++) {
    assert_true(pair_submit(&pair, tag));
    atomic_store(&queue->submission_head, 77);
    atomic_store(&queue->worker_generation, 1);
    uint32_t tail = atomic_load(&queue->completion_tail);
    atomic_store(&queue->completion_tail, 1234567);
    assert_int_equal(pair_take(&pair), tag);
    atomic_store(&queue->completion_tail, tail);
    pair_complete(&pair, tag);
    assert_int_equal(pair_reap(&pair), tag);
  }
  pair_free(&pair);
}

static void an_earlier_generation_gets_no_service(void **state) {
  struct pair pair = pair_make(2);
  assert_true(pair_submit(&pair, 1));
  pair.worker.generation = 2; /* that has taken another's place, which the client has not seen */
  assert_int_equal(pair_take(&pair), -1);
  assert_true(ring_worker_sleep(&pair.worker));
  assert_false(ring_worker_wanted(&pair.worker)); /* or a client that rests would keep the worker from resting */
  atomic_store(&pair.client.queue->worker_state, 99);
  assert_int_equal(ring_client_worker_state(&pair.client), RING_WORKER_FAILED);
  pair_free(&pair);
}

static void a_generation_that_never_was_is_nonsense(void **state) {
  static const uint32_t generations[] = {0, 2, UINT32_MAX};
  for (size_t i = 0; i < sizeof generations / sizeof *generations; i++) {
    struct pair pair = pair_make(2);
    assert_true(pair_submit(&pair, 1));
    atomic_store(&pair.client.queue->client_generation, generations[i]);
    assert_int_equal(pair_take(&pair), -2);
    pair_free(&pair);
  }
}

/* ---- entries <-> products */

static void submissions_become_products(void **state) {
  struct ring_submission submission = {.opcode = RING_OP_PRODUCT,
                                       .x_type = GEMM_F16,
                                       .y_type = 200,
                                       .bias_type = GEMM_F32,
                                       .m = UINT32_MAX,
                                       .n = 2,
                                       .k = 3,
                                       .x_offset = UINT64_MAX,
                                       .y_offset = 5,
                                       .x_stride = 6,
                                       .y_stride = 7,
                                       .bias_offset = 8,
                                       .x_scale_offset = 9};
  struct gemm_product product;
  struct error error;
  assert_int_equal(ring_submission_product(&submission, &product, &error), STATUS_OK);
  assert_true(product.m == UINT32_MAX && product.n == 2 && product.k == 3);
  assert_int_equal(product.x_type, GEMM_F16);
  assert_int_equal(product.y_type, 200);
  assert_int_equal(product.bias_type, GEMM_F32);
  assert_true(product.x_offset == UINT64_MAX && product.y_offset == 5 && product.x_stride == 6);
  assert_true(product.y_stride == 7 && product.bias_offset == 8 && product.x_scale_offset == 9);
}

static void submissions_of_another_version(void **state) {
  struct ring_submission submission = {.opcode = 9};
  struct gemm_product product;
  struct error error;
  assert_int_equal(ring_submission_product(&submission, &product, &error), STATUS_INVALID);
  assert_string_equal(error.text, "opcode must be 0..5, got 9");
  submission = (struct ring_submission){.opcode = RING_OP_PRODUCT, .priority = 3};
  assert_int_equal(ring_submission_product(&submission, &product, &error), STATUS_INVALID);
  assert_string_equal(error.text, "priority must be 0..2, got 3");
  submission = (struct ring_submission){.opcode = RING_OP_PRODUCT, .steps = 1};
  assert_int_equal(ring_submission_product(&submission, &product, &error), STATUS_INVALID);
  assert_string_equal(error.text, "steps must be 0, got 1");
  submission = (struct ring_submission){.opcode = RING_OP_PRODUCT, .plan_offset = 64};
  assert_int_equal(ring_submission_product(&submission, &product, &error), STATUS_INVALID);
  assert_string_equal(error.text, "plan offset must be 0, got 64");
  submission = (struct ring_submission){.opcode = RING_OP_PRODUCT, .w_offset = 64};
  assert_int_equal(ring_submission_product(&submission, &product, &error), STATUS_INVALID);
  assert_string_equal(error.text, "w offset must be 0, got 64");
  submission = (struct ring_submission){.opcode = RING_OP_PLAN, .steps = 1, .w_stride = 64};
  assert_int_equal(ring_submission_product(&submission, &product, &error), STATUS_INVALID);
  assert_string_equal(error.text, "w stride must be 0, got 64");
  submission = (struct ring_submission){.opcode = RING_OP_TENSORS, .weight = 7, .w_offset = 64, .w_stride = 64};
  assert_int_equal(ring_submission_product(&submission, &product, &error), STATUS_OK);
  assert_int_equal(product.w_tensor, 7);
  struct tensors_form form;
  assert_int_equal(ring_submission_form(&submission, &form, &error), STATUS_OK);
  assert_false(form.x_turned || form.w_turned || form.add);
  submission.form = (struct ring_form){.flags = RING_X_TURNED | RING_ADD, .batch = 5};
  submission.x_step = 32;
  submission.w_step = 64;
  submission.y_step = 96;
  assert_int_equal(ring_submission_form(&submission, &form, &error), STATUS_OK);
  assert_true(form.x_turned && form.add && !form.w_turned);
  assert_int_equal(form.batch, 5);
  assert_int_equal(form.x_step, 32);
  assert_int_equal(form.w_step, 64);
  assert_int_equal(form.y_step, 96);
  submission.form.batch = 1;
  assert_int_equal(ring_submission_form(&submission, &form, &error), STATUS_INVALID);
  assert_int_equal(error.field, FIELD_PLAN_OFFSET);
  submission.form = (struct ring_form){.flags = 8};
  assert_int_equal(ring_submission_form(&submission, &form, &error), STATUS_INVALID);
  assert_int_equal(error.field, FIELD_RESERVED);
  submission.form = (struct ring_form){.reserved = 1};
  assert_int_equal(ring_submission_form(&submission, &form, &error), STATUS_INVALID);
  submission = (struct ring_submission){.opcode = RING_OP_PRODUCT, .weight = 7};
  assert_int_equal(ring_submission_product(&submission, &product, &error), STATUS_OK);
  assert_int_equal(product.w_tensor, 0);
  submission = (struct ring_submission){.opcode = RING_OP_PLAN, .steps = 1, .plan_offset = 64};
  assert_int_equal(ring_submission_product(&submission, &product, &error), STATUS_OK);
}

static void cancellations_take_no_completion(void **state) {
  struct pair pair = pair_make(4);
  struct ring_submission submission;
  struct error error;
  bool wake, taken;
  for (uint64_t tag = 1; tag <= 3; tag++)
    assert_true(pair_submit(&pair, tag));
  assert_true(ring_client_cancel(&pair.client, 2, &wake));
  assert_int_equal(ring_client_room(&pair.client), 0); /* four wait for the worker */
  assert_false(ring_client_cancel(&pair.client, 3, &wake));
  for (unsigned i = 0; i < 4; i++) {
    assert_int_equal(ring_worker_take(&pair.worker, &submission, &taken, &error), STATUS_OK);
    assert_true(taken);
    assert_int_equal(submission.opcode, i < 3 ? RING_OP_PRODUCT : RING_OP_CANCEL);
  }
  assert_int_equal(submission.tag, 2);
  assert_int_equal(pair.worker.in_flight, 3);
  assert_int_equal(ring_client_room(&pair.client), 1);
  assert_true(pair_submit(&pair, 4));
  assert_int_equal(ring_client_room(&pair.client), 0);
  assert_true(ring_client_cancel(&pair.client, 4, &wake)); /* with all products in flight, too */
  for (unsigned i = 0; i < 2; i++)
    assert_int_equal(ring_worker_take(&pair.worker, &submission, &taken, &error), STATUS_OK);
  assert_int_equal(submission.opcode, RING_OP_CANCEL);
  assert_int_equal(pair.worker.in_flight, 4);
  pair_free(&pair);
}

static void errors_survive_a_completion(void **state) {
  struct error errors[4], back;
  struct ring_completion completion = {.tag = 5, .device_ns = 6};
  assert_int_equal(error_field(&errors[0], STATUS_INVALID, FIELD_M, 0, 1, LIMIT_M), STATUS_INVALID);
  assert_int_equal(error_field(&errors[1], STATUS_NOT_FOUND, FIELD_WEIGHT, 65537, 1, 0), STATUS_NOT_FOUND);
  assert_int_equal(error_field(&errors[2], STATUS_UNSUPPORTED, FIELD_X_TYPE, GEMM_E4M3, 1, 0), STATUS_UNSUPPORTED);
  gemm_error_compose(&errors[2]);
  assert_int_equal(error_set(&errors[3], STATUS_NOMEM, "%s", status_text(STATUS_NOMEM)), STATUS_NOMEM);
  for (size_t i = 0; i < 4; i++) {
    ring_completion_from_error(&completion, &errors[i]);
    memset(&back, 0x5a, sizeof back);
    ring_completion_to_error(&completion, &back);
    assert_memory_equal(&back, &errors[i], offsetof(struct error, text));
    assert_string_equal(back.text, errors[i].text);
  }
  assert_true(completion.tag == 5 && completion.device_ns == 6);
  completion = (struct ring_completion){.status = 999, .field = 999};
  ring_completion_to_error(&completion, &back);
  assert_int_equal(back.status, STATUS_INTERNAL);
  assert_string_equal(back.text, "internal error");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(offsets_on_the_wire),
      cmocka_unit_test(sizes_of_queues),
      cmocka_unit_test(arenas_that_cannot_be),
      cmocka_unit_test(headers_that_lie),
      cmocka_unit_test(queues_do_not_overlap),
      cmocka_unit_test(in_order_and_bounded),
      cmocka_unit_test(counters_wrap),
      cmocka_unit_test(whole_entries_travel),
      cmocka_unit_test(sleepers_are_woken),
      cmocka_unit_test(a_worker_is_replaced),
      cmocka_unit_test(two_workers_die_before_the_client_looks),
      cmocka_unit_test(indices_that_cannot_be_true),
      cmocka_unit_test(no_room_for_completions),
      cmocka_unit_test(the_workers_words_rewritten),
      cmocka_unit_test(an_earlier_generation_gets_no_service),
      cmocka_unit_test(a_generation_that_never_was_is_nonsense),
      cmocka_unit_test(submissions_become_products),
      cmocka_unit_test(submissions_of_another_version),
      cmocka_unit_test(cancellations_take_no_completion),
      cmocka_unit_test(errors_survive_a_completion),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
