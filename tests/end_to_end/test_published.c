/* For processes that launch kernels themselves: the table of kernels that were found, and the ring by which they tell
 * what they compute. */
#include "client/gemmclient.h"
#include "proto/shm/published.h"
#include "proto/shm/seen.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/status.h"
#include "tests/support/reference/checkpoint.h"
#include "tests/support/reference/oracle.h"
#include "tests/support/system/nap.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static const struct gemm_weight shape = {128, 256, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0};
static struct daemon daemon_under_test;
static struct error failure;

static gemmd_session *begin(const char *options) {
  struct oracle_weight weight;
  daemon_make(&daemon_under_test, options);
  oracle_weight_make(&weight, &shape, 1);
  checkpoint_write_one(daemon_path(&daemon_under_test, "model.safetensors"), "w", &weight);
  oracle_weight_free(&weight);
  daemon_start(&daemon_under_test);
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  daemon_load(session, &daemon_under_test, "w", GEMMD_FORMAT_INT8);
  return session;
}

static void end(gemmd_session *session) {
  gemmd_disconnect(session);
  daemon_end(&daemon_under_test);
}

/* ---- the table */

struct mapped {
  int fd;
  uint64_t bytes;
  struct published table;
};

static struct mapped map(gemmd_session *session) {
  struct mapped mapped;
  expect_ok(session, gemmd_tunings_open(session, 0, &mapped.fd, &mapped.bytes));
  void *memory = mmap(NULL, mapped.bytes, PROT_READ, MAP_SHARED, mapped.fd, 0);
  assert_ptr_not_equal(memory, MAP_FAILED);
  assert_int_equal(published_open(&mapped.table, memory, mapped.bytes, &failure), STATUS_OK);
  return mapped;
}

static void unmap(struct mapped *mapped) {
  munmap((void *)(uintptr_t)mapped->table.memory, mapped->bytes);
  close(mapped->fd);
}

static void what_is_found_is_there_for_all(void **state) {
  const gemmd_tune_request request = {.weight = "w", .m = 3, .x_type = GEMMD_F16, .y_type = GEMMD_F16};
  gemmd_tune_report report;
  struct published_row row;
  gemmd_session *session = begin("");
  struct mapped before = map(session);
  uint64_t generation = published_generation(&before.table);
  expect_ok(session, gemmd_tune(session, &request, &report));
  struct mapped after = map(session); /* what was there when it is asked for, too */
  assert_true(published_find(&after.table, report.shape, &row));
  assert_true(published_find(&before.table, report.shape, &row));
  assert_true(published_generation(&before.table) > generation);
  assert_string_equal(row.kernel, report.kernel);
  assert_true(row.kernel_ns > 0 && row.identity[0] != '\0');
  assert_true(row.kind == PUBLISHED_BUILT_IN ? row.built_in[0] == '\0' : row.built_in[0] != '\0');
  device_kill_worker(session); /* the next one goes on where it was */
  assert_true(published_find(&before.table, report.shape, &row));
  unmap(&before);
  unmap(&after);
  end(session);
}

static void what_is_forgotten_is_gone(void **state) {
  const gemmd_tune_request request = {.weight = "w", .m = 1, .x_type = GEMMD_F32, .y_type = GEMMD_F32};
  gemmd_tune_report report;
  struct published_row row;
  uint32_t count;
  gemmd_session *session = begin("tune = off\n");
  struct mapped mapped = map(session);
  expect_ok(session, gemmd_tune(session, &request, &report));
  assert_true(published_find(&mapped.table, report.shape, &row));
  expect_ok(session, gemmd_tune_forget(session, 0, "*", &count));
  assert_true(count >= 1);
  while (published_find(&mapped.table, report.shape, &row))
    nap_shortly(); /* the worker's answer and its word are two messages */
  unmap(&mapped);
  end(session);
}

static void nobody_else_writes_there(void **state) {
  uint64_t bytes;
  int fd;
  gemmd_session *session = begin("");
  struct mapped mapped = map(session);
  assert_ptr_equal(mmap(NULL, mapped.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, mapped.fd, 0), MAP_FAILED);
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", mapped.fd);
  int again = open(path, O_RDWR | O_CLOEXEC); /* root may; the seal stays */
  if (again >= 0) {
    assert_ptr_equal(mmap(NULL, mapped.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0), MAP_FAILED);
    assert_int_equal(write(again, "x", 1), -1);
    assert_int_equal(errno, EPERM);
    close(again);
  }
  assert_int_equal(gemmd_tunings_open(session, 1, &fd, &bytes), GEMMD_INVALID);
  assert_int_equal(gemmd_tunings_open(session, UINT32_MAX, &fd, &bytes), GEMMD_INVALID);
  unmap(&mapped);
  end(session);
}

/* ---- the ring */

static uint8_t *open_ring(gemmd_session *session) {
  uint64_t bytes;
  int fd;
  expect_ok(session, gemmd_shapes_open(session, &fd, &bytes));
  uint8_t *ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  assert_ptr_not_equal(ring, MAP_FAILED);
  close(fd);
  assert_int_equal(seen_check(ring, bytes, &failure), STATUS_OK);
  return ring;
}

struct search {
  const char *shape;
  bool found;
};

static bool look(void *user, const gemmd_tune_shape *one) {
  struct search *search = user;
  search->found |= strcmp(one->shape, search->shape) == 0;
  return true;
}

/* Ends by the test's limit. */
static void await_shape(gemmd_session *session, const char *text) {
  struct search search = {.shape = text};
  while (!search.found) {
    expect_ok(session, gemmd_tune_list(session, 0, look, &search));
    nap_shortly();
  }
}

static void a_shape_that_was_seen_is_tuned_for(void **state) {
  struct published_row row;
  gemmd_borrowed *borrowed;
  if (daemon_on_cuda())
    skip();
  gemmd_session *session = begin("tune_quiet_ms = 0\n");
  struct mapped mapped = map(session);
  uint8_t *ring = open_ring(session);
  expect_ok(session, gemmd_weight_borrow(session, "w", &borrowed));
  const struct seen_entry seen = {
      .borrow = gemmd_borrowed_number(borrowed), .m = 5, .x_type = GEMM_F16, .y_type = GEMM_F32};
  assert_true(seen_put(ring, &seen));
  await_shape(session, "int8-row-128x256-f16-f32-none-m8");
  while (!published_find(&mapped.table, "int8-row-128x256-f16-f32-none-m8", &row))
    nap_shortly();
  unmap(&mapped);
  munmap(ring, SEEN_BYTES);
  end(session);
}

static void whatever_lies_in_the_ring_harms_nobody(void **state) {
  gemmd_borrowed *borrowed;
  if (daemon_on_cuda())
    skip();
  gemmd_session *session = begin("");
  uint8_t *ring = open_ring(session);
  expect_ok(session, gemmd_weight_borrow(session, "w", &borrowed));
  uint32_t number = gemmd_borrowed_number(borrowed);
  static const struct seen_entry nonsense[] = {
      {.borrow = 0, .m = 1, .x_type = 2, .y_type = 2},
      {.borrow = UINT32_MAX, .m = 1, .x_type = 2, .y_type = 2},
      {.m = 0, .x_type = 2, .y_type = 2},
      {.m = UINT32_MAX, .x_type = 2, .y_type = 2},
      {.m = 1, .x_type = 255, .y_type = 2},
      {.m = 1, .x_type = 2, .y_type = 255},
      {.m = 1, .x_type = 2, .y_type = 2, .bias_type = 255},
      {.m = 1, .x_type = 2, .y_type = 6},
  };
  for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
    struct seen_entry entry = nonsense[i];
    entry.borrow = entry.borrow == 0 && i > 0 ? number : entry.borrow;
    assert_true(seen_put(ring, &entry));
  }
  const struct seen_entry last = {.borrow = number, .m = 2, .x_type = GEMM_F32, .y_type = GEMM_F32};
  assert_true(seen_put(ring, &last));
  await_shape(session, "int8-row-128x256-f32-f32-none-m2"); /* behind all of that */
  assert_int_equal(device_info(session).restarts, 0);
  for (unsigned i = 64; i < SEEN_BYTES; i++)
    ring[i] = (uint8_t)(i * 2654435761u >> 13);
  gemmd_session *other = daemon_join(&daemon_under_test, NULL);
  uint8_t *good = open_ring(other);
  gemmd_borrowed *again;
  expect_ok(other, gemmd_weight_borrow(other, "w", &again));
  const struct seen_entry one = {
      .borrow = gemmd_borrowed_number(again), .m = 30, .x_type = GEMM_F32, .y_type = GEMM_F32};
  assert_true(seen_put(good, &one));
  await_shape(other, "int8-row-128x256-f32-f32-none-m32");
  assert_int_equal(device_info(other).restarts, 0);
  gemmd_disconnect(other);
  munmap(ring, SEEN_BYTES);
  munmap(good, SEEN_BYTES);
  end(session);
}

static void a_resumed_session_opens_them_again(void **state) {
  if (daemon_on_cuda())
    skip();
  gemmd_session *session = begin("");
  struct mapped before = map(session);
  uint8_t *ring = open_ring(session), *same = open_ring(session);
  ring[SEEN_BYTES - 1] = 77;
  assert_int_equal(same[SEEN_BYTES - 1], 77); /* one a session */
  assert_int_equal(gemmd_resumes(session), 0);
  daemon_upgrade(&daemon_under_test);
  expect_ok(session, gemmd_ping(session, NULL));
  assert_int_equal(gemmd_resumes(session), 1);
  struct mapped after = map(session);
  uint8_t *next = open_ring(session);
  assert_int_equal(next[SEEN_BYTES - 1], 0);
  unmap(&before);
  unmap(&after);
  munmap(ring, SEEN_BYTES);
  munmap(same, SEEN_BYTES);
  munmap(next, SEEN_BYTES);
  end(session);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_found_is_there_for_all),
      cmocka_unit_test(what_is_forgotten_is_gone),
      cmocka_unit_test(nobody_else_writes_there),
      cmocka_unit_test(a_shape_that_was_seen_is_tuned_for),
      cmocka_unit_test(whatever_lies_in_the_ring_harms_nobody),
      cmocka_unit_test(a_resumed_session_opens_them_again),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
