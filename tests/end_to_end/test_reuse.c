/* Loads that are answered by what is there. trust_size_and_time: files that look as they did are not read, and only
 * where it is asked for; a mapping writes to a memfd without a change of its times, so that what is read can be told
 * from what is not. INT2 takes a search for scales: what was made of numbers is found by them, in whatever file they
 * lie, and what a search for other numbers, types or methods gives is not taken for it. */
#include "client/gemmclient.h"
#include "tests/support/daemon/layers.h"
#include "tests/support/daemon/status.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { SETTLED_US = 2100000, ROWS = 8, COLUMNS = 64 };

static const char trusted_head[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[8,64],\"data_offsets\":[0,2048]}}";

struct model {
  int fd;
  float *values; /* in the file */
  uint8_t *base;
  size_t bytes;
};

static struct model make_model(void) {
  uint64_t length = (sizeof trusted_head - 1 + 7) / 8 * 8;
  struct model model = {.fd = memfd_create("model", MFD_CLOEXEC), .bytes = 8 + length + ROWS * COLUMNS * sizeof(float)};
  assert_true(model.fd >= 0);
  assert_int_equal(ftruncate(model.fd, (off_t)model.bytes), 0);
  model.base = mmap(NULL, model.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, model.fd, 0);
  assert_ptr_not_equal(model.base, MAP_FAILED);
  memcpy(model.base, &length, sizeof length);
  memset(model.base + 8, ' ', length);
  memcpy(model.base + 8, trusted_head, sizeof trusted_head - 1);
  model.values = (float *)(void *)(model.base + 8 + length);
  for (int i = 0; i < ROWS * COLUMNS; i++)
    model.values[i] = (float)(i % 7) - 3.0f;
  usleep(SETTLED_US);
  return model;
}

static void close_model(struct model *model) {
  munmap(model->base, model->bytes);
  close(model->fd);
}

static gemmd_weight_info load_as(gemmd_session *session, const struct model *model, const char *name, bool trust,
                                 enum gemmd_format format) {
  const gemmd_load request = {
      .name = name, .tensor = "w", .format = format, .device = -1, .trust_size_and_time = trust};
  gemmd_weight_info info;
  expect_ok(session, gemmd_weight_load(session, model->fd, &request, &info));
  return info;
}

static bool same(const gemmd_weight_info *a, const gemmd_weight_info *b) {
  return memcmp(a->hash, b->hash, sizeof a->hash) == 0;
}

static void unload(gemmd_session *session, const char *name) {
  expect_ok(session, gemmd_weight_unload(session, name, NULL));
}

static void files_that_look_the_same_are_not_read(void **state) {
  gemmd_session *session = daemon_join(&layers.daemon, NULL);
  struct model model = make_model();
  gemmd_weight_info first = load_as(session, &model, "first", false, GEMMD_FORMAT_INT8);
  assert_false(first.shared);
  model.values[3] = 99.0f; /* nobody is told */
  gemmd_weight_info trusted = load_as(session, &model, "trusted", true, GEMMD_FORMAT_INT8);
  assert_true(trusted.shared);
  assert_true(same(&first, &trusted));
  assert_int_equal(trusted.n, ROWS);
  assert_int_equal(trusted.k, COLUMNS);
  /* In another way they have not been loaded yet. */
  gemmd_weight_info other = load_as(session, &model, "other", true, GEMMD_FORMAT_FP8);
  assert_int_equal(other.format, GEMMD_FORMAT_FP8);
  assert_false(other.shared);
  /* Who does not trust reads. */
  gemmd_weight_info read = load_as(session, &model, "read", false, GEMMD_FORMAT_INT8);
  assert_false(same(&first, &read));
  /* And is the one that is trusted next. */
  gemmd_weight_info next = load_as(session, &model, "next", true, GEMMD_FORMAT_INT8);
  assert_true(same(&read, &next));
  for (const char *const *name = (const char *const[]){"first", "trusted", "other", "read", "next", NULL}; *name;
       name++)
    unload(session, *name);
  close_model(&model);
  gemmd_disconnect(session);
}

/* What a weight was made of goes along to the next gemmd. */
static void the_next_gemmd_knows_the_files(void **state) {
  gemmd_session *session = daemon_join(&layers.daemon, NULL);
  struct model model = make_model();
  gemmd_weight_info first = load_as(session, &model, "first", false, GEMMD_FORMAT_INT8);
  model.values[3] = 99.0f; /* nobody is told */
  daemon_upgrade(&layers.daemon);
  gemmd_weight_info trusted = load_as(session, &model, "trusted", true, GEMMD_FORMAT_INT8);
  assert_true(trusted.shared);
  assert_true(same(&first, &trusted));
  gemmd_weight_info read = load_as(session, &model, "read", false, GEMMD_FORMAT_INT8);
  assert_false(same(&first, &read));
  for (const char *const *name = (const char *const[]){"first", "trusted", "read", NULL}; *name; name++)
    unload(session, *name);
  close_model(&model);
  gemmd_disconnect(session);
}

static void what_has_gone_or_changed_is_read(void **state) {
  gemmd_session *session = daemon_join(&layers.daemon, NULL);
  struct model model = make_model();
  gemmd_weight_info first = load_as(session, &model, "first", true, GEMMD_FORMAT_INT8);
  unload(session, "first");
  model.values[3] = 99.0f;
  gemmd_weight_info again = load_as(session, &model, "again", true, GEMMD_FORMAT_INT8);
  assert_false(same(&first, &again));
  model.values[4] = -99.0f;
  assert_int_equal(futimens(model.fd, NULL), 0);
  gemmd_weight_info touched = load_as(session, &model, "touched", true, GEMMD_FORMAT_INT8);
  assert_false(same(&again, &touched));
  /* Times of just now say nothing: the file may change once more under them. */
  model.values[5] = 98.0f;
  gemmd_weight_info fresh = load_as(session, &model, "fresh", true, GEMMD_FORMAT_INT8);
  assert_false(same(&touched, &fresh));
  unload(session, "again");
  unload(session, "touched");
  unload(session, "fresh");
  close_model(&model);
  gemmd_disconnect(session);
}

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

static void equal_numbers_are_found(void **state) {
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
      cmocka_unit_test_teardown(files_that_look_the_same_are_not_read, layers_as_before),
      cmocka_unit_test_teardown(the_next_gemmd_knows_the_files, layers_as_before),
      cmocka_unit_test_teardown(what_has_gone_or_changed_is_read, layers_as_before),
      cmocka_unit_test_teardown(equal_numbers_are_found, layers_as_before),
      cmocka_unit_test_teardown(a_refusal_names_the_tensor, layers_as_before),
  };
  return cmocka_run_group_tests(tests, layers_start, layers_stop);
}
