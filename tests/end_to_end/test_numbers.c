/* INT2 takes a search for scales: what was made of numbers is found by them, in whatever file they lie, and what a
 * search for other numbers, types or methods gives is not taken for it. */
#include "client/gemmclient.h"
#include "tests/support/daemon/layers.h"
#include "tests/support/daemon/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { N = 24, K = 256 };

/* A file of one tensor, with so many spaces more in its header. */
static int file_of(const char *tensor, const char *type, size_t element, const void *values, int spaces) {
  char head[512];
  int length = snprintf(head, sizeof head, "{\"%s\":{\"dtype\":\"%s\",\"shape\":[%d,%d],\"data_offsets\":[0,%zu]}}%*s",
                        tensor, type, N, K, N * K * element, spaces, "");
  uint64_t bytes = (uint64_t)length;
  int fd = memfd_create("model", MFD_CLOEXEC);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, &bytes, sizeof bytes), sizeof bytes);
  assert_int_equal(write(fd, head, bytes), bytes);
  assert_int_equal(write(fd, values, N * K * element), N * K * element);
  return fd;
}

static gemmd_weight_info load(gemmd_session *session, int fd, const char *tensor, const char *name,
                              enum gemmd_method method) {
  const gemmd_load request = {
      .name = name, .tensor = tensor, .format = GEMMD_FORMAT_INT2, .method = method, .device = -1};
  gemmd_weight_info info;
  expect_ok(session, gemmd_weight_load(session, fd, &request, &info));
  close(fd);
  return info;
}

static bool same(const gemmd_weight_info *a, const gemmd_weight_info *b) {
  return memcmp(a->hash, b->hash, sizeof a->hash) == 0;
}

static void equal_numbers_are_found(void **state) {
  (void)state;
  gemmd_session *session = daemon_join(&layers.daemon, NULL);
  uint16_t values[N * K];
  for (int i = 0; i < N * K; i++)
    values[i] = (uint16_t)(0x3c00 + i * 7919 % 1500 + (i % 3 == 0 ? 0x8000 : 0)); /* numbers of both types */
  gemmd_weight_info first = load(session, file_of("w", "F16", 2, values, 0), "w", "first", GEMMD_METHOD_DEFAULT);
  assert_false(first.shared);
  assert_int_equal(first.n, N);
  assert_int_equal(first.k, K);
  assert_int_equal(first.scale, GEMMD_SCALE_GROUP);
  gemmd_weight_info again = load(session, file_of("v", "F16", 2, values, 8), "v", "again", GEMMD_METHOD_LEAST_SQUARES);
  assert_true(again.shared);
  assert_true(same(&first, &again));
  /* The same bytes, other numbers; the same numbers, another search. */
  gemmd_weight_info other = load(session, file_of("w", "BF16", 2, values, 0), "w", "other", GEMMD_METHOD_DEFAULT);
  assert_false(same(&first, &other));
  gemmd_weight_info method = load(session, file_of("w", "F16", 2, values, 0), "w", "method", GEMMD_METHOD_TERNARY);
  assert_false(same(&first, &method));
  values[N * K - 1] ^= 0x200;
  gemmd_weight_info changed = load(session, file_of("w", "F16", 2, values, 0), "w", "changed", GEMMD_METHOD_DEFAULT);
  assert_false(same(&first, &changed));
  /* What has gone is made anew, to the same content. */
  expect_ok(session, gemmd_weight_unload(session, "changed", NULL));
  gemmd_weight_info anew = load(session, file_of("w", "F16", 2, values, 0), "w", "anew", GEMMD_METHOD_DEFAULT);
  assert_false(anew.shared);
  assert_true(same(&changed, &anew));
  for (const char *const *name = (const char *const[]){"first", "again", "other", "method", "anew", NULL}; *name;
       name++)
    expect_ok(session, gemmd_weight_unload(session, *name, NULL));
  gemmd_disconnect(session);
}

static void a_refusal_names_the_tensor(void **state) {
  (void)state;
  gemmd_session *session = daemon_join(&layers.daemon, NULL);
  float values[N * K] = {0};
  uint32_t infinite = 0x7f800000u;
  memcpy(&values[3 * K + 17], &infinite, sizeof infinite);
  int fd = file_of("odd", "F32", 4, values, 0);
  const gemmd_load request = {.name = "refused", .tensor = "odd", .format = GEMMD_FORMAT_INT2, .device = -1};
  assert_int_equal(gemmd_weight_load(session, fd, &request, NULL), GEMMD_BAD_FILE);
  assert_non_null(strstr(gemmd_error(session), "tensor 'odd': inf in row 3, column 17 is not finite"));
  values[3 * K + 17] = 1e6f;
  close(fd);
  fd = file_of("odd", "F32", 4, values, 0);
  assert_int_equal(gemmd_weight_load(session, fd, &request, NULL), GEMMD_BAD_FILE);
  assert_non_null(strstr(gemmd_error(session), "is beyond what an f16 scale can express"));
  close(fd);
  gemmd_disconnect(session);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(equal_numbers_are_found, layers_as_before),
      cmocka_unit_test_teardown(a_refusal_names_the_tensor, layers_as_before),
  };
  return cmocka_run_group_tests(tests, layers_start, layers_stop);
}
