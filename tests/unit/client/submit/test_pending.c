/* The table of requests: tickets, tags, parts, order of results. */
#include "client/submit/pending.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const struct ring_submission whole = {.opcode = RING_OP_PRODUCT,
                                             .x_type = GEMM_F32,
                                             .y_type = GEMM_F16,
                                             .bias_type = GEMM_F32,
                                             .m = 3,
                                             .n = 300,
                                             .k = 64,
                                             .x_offset = 8192,
                                             .y_offset = 16384,
                                             .x_stride = 256,
                                             .y_stride = 600,
                                             .bias_offset = 4096};
static const struct pending_part single[] = {{.device = 0, .handle = 65536, .n_count = 300}};
static const struct pending_part split[] = {{.device = 0, .handle = 65537, .n_begin = 0, .n_count = 256},
                                            {.device = 1, .handle = 65538, .n_begin = 256, .n_count = 44}};

static struct pending pending_make(uint32_t slots) {
  struct pending pending;
  struct error error;
  assert_int_equal(pending_init(&pending, slots, &error), STATUS_OK);
  return pending;
}

static uint64_t tag_of(const struct request *request, uint32_t part) {
  struct ring_submission submission;
  request_submission(request, part, &submission);
  return submission.tag;
}

static struct ring_completion completion_of(enum status status, uint32_t device_ns, uint32_t queue_ns) {
  return (struct ring_completion){.status = (uint16_t)status,
                                  .field = FIELD_M,
                                  .value = 0,
                                  .low = 1,
                                  .high = 9,
                                  .device_ns = device_ns,
                                  .queue_ns = queue_ns};
}

static void a_full_table_takes_no_more(void **state) {
  struct pending pending = pending_make(4);
  struct request *requests[4];
  for (int i = 0; i < 4; i++) {
    requests[i] = pending_add(&pending, &whole, single, 1);
    assert_non_null(requests[i]);
    assert_int_not_equal(requests[i]->ticket, 0);
    for (int j = 0; j < i; j++)
      assert_ptr_not_equal(requests[i], requests[j]);
  }
  assert_null(pending_add(&pending, &whole, single, 1));
  pending_remove(&pending, requests[2]);
  assert_ptr_equal(pending_add(&pending, &whole, single, 1), requests[2]);
  assert_null(pending_add(&pending, &whole, single, 1));
  pending_release(&pending);
}

static void tickets_are_never_used_again(void **state) {
  struct pending pending = pending_make(1);
  uint64_t last = 0;
  for (int i = 0; i < 1000; i++) {
    struct request *request = pending_add(&pending, &whole, single, 1);
    uint64_t ticket = request->ticket;
    assert_true(ticket > last);
    assert_ptr_equal(pending_find(&pending, ticket), request);
    assert_null(pending_find(&pending, last));
    pending_remove(&pending, request);
    assert_null(pending_find(&pending, ticket));
    last = ticket;
  }
  pending_release(&pending);
}

static void unknown_tickets_are_not_found(void **state) {
  struct pending pending = pending_make(2);
  uint64_t ticket = pending_add(&pending, &whole, single, 1)->ticket;
  assert_null(pending_find(&pending, 0));
  assert_null(pending_find(&pending, ticket ^ 1));   /* the other slot, which is free */
  assert_null(pending_find(&pending, ticket | 255)); /* a slot that is not there */
  assert_null(pending_find(&pending, ticket + 256)); /* a later request */
  assert_null(pending_find(&pending, UINT64_MAX));
  pending_release(&pending);
}

static void tags_name_an_open_part_of_their_device(void **state) {
  struct pending pending = pending_make(2);
  struct request *request = pending_add(&pending, &whole, split, 2), *found;
  struct ring_completion done = completion_of(STATUS_OK, 1, 1);
  uint64_t first = tag_of(request, 0), second = tag_of(request, 1);
  uint32_t part;
  assert_true(pending_part(&pending, first, 0, &found, &part));
  assert_ptr_equal(found, request);
  assert_int_equal(part, 0);
  assert_true(pending_part(&pending, second, 1, &found, &part));
  assert_int_equal(part, 1);
  assert_false(pending_part(&pending, first, 1, &found, &part));
  assert_false(pending_part(&pending, second, 0, &found, &part));
  assert_false(pending_part(&pending, first + 2, 0, &found, &part));
  assert_false(pending_part(&pending, 0, 0, &found, &part));
  assert_false(pending_part(&pending, UINT64_MAX, 0, &found, &part));
  pending_complete(&pending, request, 0, &done);
  assert_false(pending_part(&pending, first, 0, &found, &part));
  assert_true(pending_part(&pending, second, 1, &found, &part));
  pending_complete(&pending, request, 1, &done);
  pending_remove(&pending, request);
  assert_false(pending_part(&pending, second, 1, &found, &part));
  pending_release(&pending);
}

static void a_part_asks_for_its_own_columns(void **state) {
  struct pending pending = pending_make(1);
  struct request *request = pending_add(&pending, &whole, split, 2);
  struct ring_submission out;
  request_submission(request, 0, &out);
  assert_int_equal(out.weight, 65537);
  assert_int_equal(out.n, 256);
  assert_int_equal(out.y_offset, 16384);
  assert_int_equal(out.bias_offset, 4096);
  request_submission(request, 1, &out);
  assert_int_equal(out.weight, 65538);
  assert_int_equal(out.n, 44);
  assert_int_equal(out.y_offset, 16384 + 256 * 2);
  assert_int_equal(out.bias_offset, 4096 + 256 * 4);
  /* All else is that of the whole. */
  assert_int_equal(out.x_offset, 8192);
  assert_int_equal(out.y_stride, 600);
  assert_int_equal(out.m, 3);
  assert_int_equal(out.k, 64);
  assert_int_equal(out.opcode, RING_OP_PRODUCT);
  pending_release(&pending);
}

static void without_bias_there_is_no_offset_to_shift(void **state) {
  struct pending pending = pending_make(1);
  struct ring_submission plain = whole, out;
  plain.bias_type = GEMM_TYPE_NONE;
  plain.bias_offset = 0;
  request_submission(pending_add(&pending, &plain, split, 2), 1, &out);
  assert_int_equal(out.bias_offset, 0);
  pending_release(&pending);
}

static void a_request_ends_with_its_last_part(void **state) {
  struct pending pending = pending_make(2);
  struct request *request = pending_add(&pending, &whole, split, 2);
  struct ring_completion slow = completion_of(STATUS_OK, 900, 10), quick = completion_of(STATUS_OK, 100, 20);
  pending_complete(&pending, request, 1, &slow);
  assert_int_equal(request->finished, 0);
  assert_null(pending_finished(&pending));
  pending_complete(&pending, request, 0, &quick);
  assert_ptr_equal(pending_finished(&pending), request);
  assert_int_equal(request->error.status, STATUS_OK);
  assert_int_equal(request->device_ns, 900);
  assert_int_equal(request->queue_ns, 20);
  pending_remove(&pending, request);
  assert_null(pending_finished(&pending));
  assert_int_equal(pending.used, 0);
  pending_release(&pending);
}

static void the_first_failure_is_the_one_that_is_told(void **state) {
  struct pending pending = pending_make(2);
  struct request *request = pending_add(&pending, &whole, split, 2);
  struct ring_completion invalid = completion_of(STATUS_INVALID, 0, 0);
  struct error lost;
  (void)error_set(&lost, STATUS_DEVICE_LOST, "device 1 was lost");
  pending_complete(&pending, request, 0, &invalid);
  pending_fail(&pending, request, 1, &lost);
  assert_int_equal(request->error.status, STATUS_INVALID);
  assert_string_equal(request->error.text, "M must be 1..9, got 0");
  assert_ptr_equal(pending_finished(&pending), request);
  pending_release(&pending);
}

static void a_slot_forgets_who_had_it_before(void **state) {
  struct pending pending = pending_make(1);
  struct request *request = pending_add(&pending, &whole, split, 2);
  struct error lost;
  (void)error_set(&lost, STATUS_DEVICE_LOST, "device 0 was lost");
  request->parts[0].losses = 1;
  pending_fail(&pending, request, 0, &lost);
  pending_fail(&pending, request, 1, &lost);
  pending_remove(&pending, request);
  request = pending_add(&pending, &whole, single, 1);
  assert_int_equal(request->error.status, STATUS_OK);
  assert_int_equal(request->finished, 0);
  assert_int_equal(request->open_parts, 1);
  assert_int_equal(request->parts[0].losses, 0);
  assert_true(request->parts[0].open);
  assert_int_equal(pending.done, 0);
  pending_release(&pending);
}

static void results_come_in_the_order_of_their_ends(void **state) {
  struct pending pending = pending_make(LIMIT_RING_ENTRIES);
  struct request *requests[LIMIT_RING_ENTRIES];
  struct ring_completion done = completion_of(STATUS_OK, 0, 0);
  for (uint32_t i = 0; i < LIMIT_RING_ENTRIES; i++)
    requests[i] = pending_add(&pending, &whole, single, 1);
  /* 7 is odd, so this visits all of them. */
  for (uint32_t i = 0; i < LIMIT_RING_ENTRIES; i++)
    pending_complete(&pending, requests[i * 7 % LIMIT_RING_ENTRIES], 0, &done);
  for (uint32_t i = 0; i < LIMIT_RING_ENTRIES; i++) {
    struct request *first = pending_finished(&pending);
    assert_ptr_equal(first, requests[i * 7 % LIMIT_RING_ENTRIES]);
    pending_remove(&pending, first);
  }
  assert_int_equal(pending.used, 0);
  pending_release(&pending);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_full_table_takes_no_more),        cmocka_unit_test(tickets_are_never_used_again),
      cmocka_unit_test(unknown_tickets_are_not_found),     cmocka_unit_test(tags_name_an_open_part_of_their_device),
      cmocka_unit_test(a_part_asks_for_its_own_columns),   cmocka_unit_test(without_bias_there_is_no_offset_to_shift),
      cmocka_unit_test(a_request_ends_with_its_last_part), cmocka_unit_test(the_first_failure_is_the_one_that_is_told),
      cmocka_unit_test(a_slot_forgets_who_had_it_before),  cmocka_unit_test(results_come_in_the_order_of_their_ends),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
