/* Products of two tensors are tuned as they are seen, by numbers that the tuner makes itself: listed, right before,
 * while and after, and kept by a daemon that starts anew. */
#include "client/gemmclient.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/status.h"
#include "tests/support/system/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { M = 16, N = 24, K = 520, FORMS = 4, WAIT_S = 90 };

static struct daemon gemmd;
static const uint16_t codes[] = {0x3c00, 0x4000, 0xbc00}; /* 1, 2, -1 */
static const float values[] = {1, 2, -1};

static int start(void **state) {
  daemon_make(&gemmd, "tune = eager\ncpu_threads = 2\n");
  setenv("STATE_DIRECTORY", daemon_path(&gemmd, "state"), 1);
  daemon_start(&gemmd);
  return 0;
}

static int stop(void **state) {
  daemon_stop(&gemmd);
  assert_true(folder_drop(daemon_path(&gemmd, "state")));
  daemon_remove(&gemmd);
  return 0;
}

/* One product of each form; bit 0: x by columns, bit 1: W. */
static void compute(gemmd_session *session) {
  uint16_t *x = gemmd_alloc(session, M * K * sizeof *x), *w = gemmd_alloc(session, N * K * sizeof *w);
  float *y = gemmd_alloc(session, M * N * sizeof *y);
  assert_true(x != NULL && w != NULL && y != NULL);
  for (int form = 0; form < FORMS; form++) {
    bool x_turned = form & 1, w_turned = form & 2;
    for (int i = 0; i < M; i++)
      for (int k = 0; k < K; k++)
        x[x_turned ? k * M + i : i * K + k] = codes[(i + k) * 7 % 3];
    for (int i = 0; i < N; i++)
      for (int k = 0; k < K; k++)
        w[w_turned ? k * N + i : i * K + k] = codes[(i * 5 + k) % 11 % 3];
    const gemmd_product product = {.m = M, .x = x, .x_type = GEMMD_F16, .y = y, .y_type = GEMMD_F32};
    const gemmd_tensor tensor = {.data = w, .n = N, .k = K, .turned = w_turned, .x_turned = x_turned};
    assert_int_equal(gemmd_tensors_matmul(session, &tensor, &product), GEMMD_OK);
    for (int i = 0; i < M; i++)
      for (int j = 0; j < N; j++) {
        float sum = 0;
        for (int k = 0; k < K; k++)
          sum += values[(i + k) * 7 % 3] * values[(j * 5 + k) % 11 % 3];
        assert_true(y[i * N + j] == sum);
      }
  }
  gemmd_free(session, x);
  gemmd_free(session, w);
  gemmd_free(session, y);
}

struct count {
  int listed, tuned, kept;
};

static bool count_one(void *user, const gemmd_tune_shape *tuned) {
  static const char *const names[FORMS] = {"rr16", "cr16", "rc16", "cc16"};
  struct count *count = user;
  char shape[128];
  for (int form = 0; form < FORMS; form++) {
    snprintf(shape, sizeof shape, "f16-none-%dx%d-f16-f32-none-m%d-%s", N, K, M, names[form]);
    if (strcmp(tuned->shape, shape) != 0)
      continue;
    count->listed++;
    count->tuned += strcmp(tuned->state, "tuned") == 0;
    count->kept += strcmp(tuned->state, "kept") == 0 || strcmp(tuned->state, "tuned") == 0;
  }
  return true;
}

static struct count count_all(gemmd_session *session) {
  struct count count = {.listed = 0};
  if (gemmd_tune_list(session, 0, count_one, &count) != GEMMD_OK)
    fail_msg("%s", gemmd_error(session));
  return count;
}

static void test_all_forms_are_tuned(void **state) {
  gemmd_session *session = daemon_join(&gemmd, NULL);
  struct count count = {.listed = 0};
  for (time_t end = time(NULL) + WAIT_S; count.tuned < FORMS && time(NULL) < end;) {
    compute(session);
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    count = count_all(session);
  }
  assert_int_equal(count.listed, FORMS);
  assert_int_equal(count.tuned, FORMS);
  compute(session);
  gemmd_disconnect(session);
}

static void test_the_next_daemon_knows(void **state) {
  daemon_stop(&gemmd);
  daemon_start(&gemmd);
  gemmd_session *session = daemon_join(&gemmd, NULL);
  compute(session);
  assert_int_equal(count_all(session).kept, FORMS);
  gemmd_disconnect(session);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_all_forms_are_tuned),
      cmocka_unit_test(test_the_next_daemon_knows),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
