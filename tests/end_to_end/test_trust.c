/* trust_size_and_time: a load of files that look as they did is answered without reading them, and only where it is
 * asked for. A mapping writes to a memfd without a change of its times: what is read can be told from what is not. */
#include "client/gemmclient.h"
#include "tests/support/daemon/layers.h"
#include "tests/support/daemon/status.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { SETTLED_US = 2100000, N = 8, K = 64 };

static const char head[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[8,64],\"data_offsets\":[0,2048]}}";

struct model {
  int fd;
  float *values; /* in the file */
  uint8_t *base;
  size_t bytes;
};

static struct model make_model(void) {
  uint64_t length = (sizeof head - 1 + 7) / 8 * 8;
  struct model model = {.fd = memfd_create("model", MFD_CLOEXEC), .bytes = 8 + length + N * K * sizeof(float)};
  assert_true(model.fd >= 0);
  assert_int_equal(ftruncate(model.fd, (off_t)model.bytes), 0);
  model.base = mmap(NULL, model.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, model.fd, 0);
  assert_ptr_not_equal(model.base, MAP_FAILED);
  memcpy(model.base, &length, sizeof length);
  memset(model.base + 8, ' ', length);
  memcpy(model.base + 8, head, sizeof head - 1);
  model.values = (float *)(void *)(model.base + 8 + length);
  for (int i = 0; i < N * K; i++)
    model.values[i] = (float)(i % 7) - 3.0f;
  usleep(SETTLED_US);
  return model;
}

static void close_model(struct model *model) {
  munmap(model->base, model->bytes);
  close(model->fd);
}

static gemmd_weight_info load(gemmd_session *session, const struct model *model, const char *name, bool trust,
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
  (void)state;
  gemmd_session *session = daemon_join(&layers.daemon, NULL);
  struct model model = make_model();
  gemmd_weight_info first = load(session, &model, "first", false, GEMMD_FORMAT_INT8);
  assert_false(first.shared);
  model.values[3] = 99.0f; /* nobody is told */
  gemmd_weight_info trusted = load(session, &model, "trusted", true, GEMMD_FORMAT_INT8);
  assert_true(trusted.shared);
  assert_true(same(&first, &trusted));
  assert_int_equal(trusted.n, N);
  assert_int_equal(trusted.k, K);
  /* In another way they have not been loaded yet. */
  gemmd_weight_info other = load(session, &model, "other", true, GEMMD_FORMAT_FP8);
  assert_int_equal(other.format, GEMMD_FORMAT_FP8);
  assert_false(other.shared);
  /* Who does not trust reads. */
  gemmd_weight_info read = load(session, &model, "read", false, GEMMD_FORMAT_INT8);
  assert_false(same(&first, &read));
  /* And is the one that is trusted next. */
  gemmd_weight_info next = load(session, &model, "next", true, GEMMD_FORMAT_INT8);
  assert_true(same(&read, &next));
  for (const char *const *name = (const char *const[]){"first", "trusted", "other", "read", "next", NULL}; *name;
       name++)
    unload(session, *name);
  close_model(&model);
  gemmd_disconnect(session);
}

/* What a weight was made of goes along to the next gemmd. */
static void the_next_gemmd_knows_the_files(void **state) {
  (void)state;
  gemmd_session *session = daemon_join(&layers.daemon, NULL);
  struct model model = make_model();
  gemmd_weight_info first = load(session, &model, "first", false, GEMMD_FORMAT_INT8);
  model.values[3] = 99.0f; /* nobody is told */
  daemon_upgrade(&layers.daemon);
  gemmd_weight_info trusted = load(session, &model, "trusted", true, GEMMD_FORMAT_INT8);
  assert_true(trusted.shared);
  assert_true(same(&first, &trusted));
  gemmd_weight_info read = load(session, &model, "read", false, GEMMD_FORMAT_INT8);
  assert_false(same(&first, &read));
  for (const char *const *name = (const char *const[]){"first", "trusted", "read", NULL}; *name; name++)
    unload(session, *name);
  close_model(&model);
  gemmd_disconnect(session);
}

static void what_has_gone_or_changed_is_read(void **state) {
  (void)state;
  gemmd_session *session = daemon_join(&layers.daemon, NULL);
  struct model model = make_model();
  gemmd_weight_info first = load(session, &model, "first", true, GEMMD_FORMAT_INT8);
  unload(session, "first");
  model.values[3] = 99.0f;
  gemmd_weight_info again = load(session, &model, "again", true, GEMMD_FORMAT_INT8);
  assert_false(same(&first, &again));
  model.values[4] = -99.0f;
  assert_int_equal(futimens(model.fd, NULL), 0);
  gemmd_weight_info touched = load(session, &model, "touched", true, GEMMD_FORMAT_INT8);
  assert_false(same(&again, &touched));
  /* Times of just now say nothing: the file may change once more under them. */
  model.values[5] = 98.0f;
  gemmd_weight_info fresh = load(session, &model, "fresh", true, GEMMD_FORMAT_INT8);
  assert_false(same(&touched, &fresh));
  unload(session, "again");
  unload(session, "touched");
  unload(session, "fresh");
  close_model(&model);
  gemmd_disconnect(session);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(files_that_look_the_same_are_not_read, layers_as_before),
      cmocka_unit_test_teardown(the_next_gemmd_knows_the_files, layers_as_before),
      cmocka_unit_test_teardown(what_has_gone_or_changed_is_read, layers_as_before),
  };
  return cmocka_run_group_tests(tests, layers_start, layers_stop);
}
