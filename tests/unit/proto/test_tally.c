/* Counting: histograms by powers of two, what a worker counts, and the sum over a device's workers. */
#include "daemon/supervisor/totals.h"
#include "daemon/worker/serve/counters.h"
#include "proto/tally.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void buckets_end_at_powers_of_two(void **state) {
  assert_int_equal(tally_bucket(0, 1), 0);
  assert_int_equal(tally_bucket(1, 1), 0);
  assert_int_equal(tally_bucket(2, 1), 1);
  assert_int_equal(tally_bucket(3, 1), 2);
  assert_int_equal(tally_bucket(4, 1), 2);
  assert_int_equal(tally_bucket(5, 1), 3);
  assert_int_equal(tally_bucket(2000, TALLY_NS), 0);
  assert_int_equal(tally_bucket(2001, TALLY_NS), 1);
  assert_int_equal(tally_bucket(UINT64_MAX, TALLY_NS), TALLY_BUCKETS - 1);
}

static void a_worker_counts_by_format_status_and_rows(void **state) {
  static struct counters counters;
  static struct message_worker_stats stats;
  counters_request(&counters, STATUS_OK, GEMM_FORMAT_FP8, 4, 3000);
  counters_request(&counters, STATUS_OK, GEMM_FORMAT_FP8, 2, 1500);
  counters_request(&counters, STATUS_OK, GEMM_FORMAT_INT8, 1, UINT64_MAX);
  counters_request(&counters, STATUS_TIMEOUT, GEMM_FORMAT_NONE, 7, 1);
  counters_product(&counters, 6, 2500);
  counters_waiting(&counters, 5);
  counters_progress(&counters, 1000);
  counters_read(&counters, 4000, &stats);
  assert_int_equal(stats.requests, 4);
  assert_int_equal(stats.rows, 7);
  assert_int_equal(stats.failures, 1);
  assert_int_equal(stats.products, 1);
  assert_int_equal(stats.device_ns, 2500);
  assert_int_equal(stats.waiting, 5);
  assert_int_equal(stats.stuck_ns, 3000);
  assert_int_equal(stats.formats_count, 2); /* those that were asked for */
  assert_int_equal(stats.formats[0].format, GEMM_FORMAT_INT8);
  assert_int_equal(stats.formats[0].waits[TALLY_BUCKETS - 1].count, 1);
  assert_int_equal(stats.formats[1].format, GEMM_FORMAT_FP8);
  assert_int_equal(stats.formats[1].wait_ns, 4500);
  assert_int_equal(stats.formats[1].waits[0].count, 1);
  assert_int_equal(stats.formats[1].waits[1].count, 1);
  assert_int_equal(stats.refusals_count, 1);
  assert_int_equal(stats.refusals[0].status, STATUS_TIMEOUT);
  assert_int_equal(stats.batches[3].count, 1);
  counters_progress(&counters, 0);
  counters_read(&counters, 4000, &stats);
  assert_int_equal(stats.stuck_ns, 0);
}

static void workers_of_a_device_add_up(void **state) {
  static struct totals totals;
  static struct message_worker_stats stats = {
      .requests = 3, .rows = 5, .formats_count = 2, .refusals_count = 2, .batches_count = 2};
  stats.formats[0] = (struct message_format_stats){.format = GEMM_FORMAT_INT2, .wait_ns = 9, .waits_count = 1};
  stats.formats[0].waits[0].count = 2;
  stats.formats[1] = (struct message_format_stats){.format = 1000, .wait_ns = 9}; /* of a later version */
  stats.refusals[0] = (struct message_status_stats){.status = STATUS_BUSY, .count = 4};
  stats.refusals[1] = (struct message_status_stats){.status = 1u << 31, .count = 4};
  stats.batches[1].count = 1;
  totals_add(&totals, &stats);
  totals_add(&totals, &stats);
  assert_int_equal(totals.requests, 6);
  assert_int_equal(totals.rows, 10);
  assert_int_equal(totals.waits[GEMM_FORMAT_INT2].ns, 18);
  assert_int_equal(totals.waits[GEMM_FORMAT_INT2].tally[0], 4);
  assert_int_equal(totals.refusals[STATUS_BUSY], 8);
  assert_int_equal(totals.batches[1], 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(buckets_end_at_powers_of_two),
      cmocka_unit_test(a_worker_counts_by_format_status_and_rows),
      cmocka_unit_test(workers_of_a_device_add_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
