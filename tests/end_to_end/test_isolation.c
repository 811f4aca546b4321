/* Users who ask for much beside one who asks for little, from the table of hostile cases: all answers are right,
 * nothing keeps the device for long at a time, as predicted, and what the worker takes for it is given back. */
#include "client/gemmclient.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/hostile.h"
#include "tests/support/daemon/product.h"
#include "tests/support/daemon/status.h"
#include "tests/support/reference/checkpoint.h"
#include "tests/support/reference/oracle.h"
#include "tests/support/system/nap.h"
#include "tests/support/system/private_bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum {
  GOOD = 54331,
  BAD = 54332,
  LONGEST_NS = 25000000, /* that a product may keep the device from others */
  KEPT_MOST = 8 << 20,   /* of the worker's own memory, behind them */
  PATIENCE_MS = 250      /* with a case; the rest of it is dropped */
};
/* Cases, and what is computed in one: more take too long here. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { CASES = 10 };
#define TERMS_MOST 4e9
#else
enum { CASES = 40 };
#define TERMS_MOST 4e10
#endif
#define BYTES_MOST ((uint64_t)96 << 20)

/* narrow: rows of x are memory rather than work, which sanitizers slow down */
static const struct gemm_weight shape = {16, 1024, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0};
static struct daemon daemon_under_test;
static struct oracle_weight weight;

struct scene {
  _Atomic bool stop;
  _Atomic uint64_t done;
};

static int be_good(int index, void *user) {
  static const enum gemmd_priority classes[] = {GEMMD_PRIORITY_URGENT, GEMMD_PRIORITY_NORMAL,
                                                GEMMD_PRIORITY_BACKGROUND};
  struct scene *scene = user;
  struct product_request request = {.weight = &weight, .m = 1, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 3};
  struct product product;
  gemmd_weight *handle;
  if (geteuid() == 0 && (setgid(GOOD) != 0 || setuid(GOOD) != 0))
    return 1;
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  int status = gemmd_weight_open(session, "good", &handle);
  bool right = status == GEMMD_OK && product_make(&product, session, &request);
  for (int class = 0; right && !scene->stop; class = (class + 1) % 3) {
    product.product.priority = classes[class];
    right = gemmd_matmul(handle, &product.product) == GEMMD_OK && product_right(&product);
    scene->done++;
    nap_shortly();
  }
  if (!right)
    fprintf(stderr, "the good client: %s\n", gemmd_error(session));
  if (status == GEMMD_OK)
    product_free(&product, session);
  gemmd_disconnect(session);
  return right ? 0 : 1;
}

static void begin(void) {
  gemmd_load request = {
      .name = "good", .tensor = "good", .format = GEMMD_FORMAT_INT8, .device = -1, .mode = GEMMD_MODE_ALL};
  /* What libraries keep that the tuner tries, and for how long, is theirs. */
  daemon_make(&daemon_under_test, "socket_mode = 0666\ntune = off\n");
  assert_int_equal(chmod(daemon_under_test.folder, 0755), 0);
  oracle_weight_make(&weight, &shape, 1);
  checkpoint_write_one(daemon_path(&daemon_under_test, "good.safetensors"), "good", &weight);
  daemon_start(&daemon_under_test);
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  expect_ok(session,
            gemmd_weight_load_file(session, daemon_path(&daemon_under_test, "good.safetensors"), &request, NULL));
  gemmd_disconnect(session);
}

static void end(void) {
  daemon_end(&daemon_under_test);
  oracle_weight_free(&weight);
}

static void attack(const struct hostile_case *what) {
  struct hostile_result result;
  print_message("%s\n", what->line); /* the last one of a log is what did not end */
  gemmd_session *session = hostile_join(daemon_under_test.socket, BAD, what);
  assert_non_null(session);
  bool asked = hostile_run(session, what, PATIENCE_MS, &result);
  gemmd_disconnect(session);
  if (!asked || result.status != GEMMD_OK || result.wrong)
    fail_msg("%s: %s", what->line, result.why);
  assert_int_equal(result.ended + result.dropped, what->in_flight);
}

/* Back to what it was, soon after nobody asks for anything: else this waits until the test's time is over. */
static void expect_memory_back(gemmd_session *session, uint64_t before) {
  while (device_info(session).memory_working > KEPT_MOST ||
         private_bytes((pid_t)device_info(session).pid) > before + KEPT_MOST)
    nap_shortly();
}

static void hostile_users_hold_up_nobody(void **state) {
  struct scene *scene = clients_share(sizeof *scene);
  struct clients clients = {.count = 0};
  struct hostile_case what;
  gemmd_device_health health;
  int cases = 0;
  begin();
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  uint64_t before = private_bytes((pid_t)device_info(session).pid);
  clients_start(&clients, 1, be_good, scene);
  for (size_t line = 0; cases < CASES && hostile_read(line, &what); line += 8) {
    if (hostile_terms(&what) > TERMS_MOST || hostile_bytes(&what) > BYTES_MOST)
      continue;
    uint64_t done = scene->done;
    attack(&what);
    while (scene->done == done && clients.count > 0)
      nap_shortly();
    cases++;
  }
  assert_int_equal(cases, CASES);
  scene->stop = true;
  clients_wait(&clients);
  assert_int_equal(device_info(session).restarts, 0);
  expect_ok(session, gemmd_device_state(session, 0, &health));
  if (!daemon_on_cuda()) { /* a GPU computes beside its worker, which has the driver's memory */
    assert_in_range(health.longest_ns, 1, LONGEST_NS);
    expect_memory_back(session, before);
  }
  gemmd_disconnect(session);
  end();
}

/* W of 128 MiB comes with the product; the session ends, and of that nothing is left. */
static void tensors_leave_nothing_behind(void **state) {
  struct hostile_case what = {.kind = HOSTILE_TENSORS,
                              .format = GEMMD_FORMAT_F16,
                              .m = 4,
                              .n = 4096,
                              .k = 16384,
                              .in_flight = 1,
                              .steps = 1,
                              .line = "4 x 4096 x 16384"};
  struct hostile_result result;
  begin();
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  uint64_t before = private_bytes((pid_t)device_info(session).pid);
  gemmd_session *other = hostile_join(daemon_under_test.socket, BAD, &what);
  assert_non_null(other);
  assert_true(hostile_run(other, &what, 60000, &result));
  assert_int_equal(result.ended, 1);
  assert_false(result.wrong);
  gemmd_disconnect(other);
  if (!daemon_on_cuda())
    expect_memory_back(session, before);
  gemmd_disconnect(session);
  end();
}

/* x of what is tried takes 12 MiB, and kernels what they need beside them. */
static void tuning_leaves_nothing_behind(void **state) {
  const gemmd_tune_request request = {.weight = "good", .m = 3072, .x_type = GEMMD_F32, .y_type = GEMMD_F32};
  gemmd_tune_report report;
  begin();
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  uint64_t before = private_bytes((pid_t)device_info(session).pid);
  expect_ok(session, gemmd_tune(session, &request, &report));
  if (!daemon_on_cuda())
    expect_memory_back(session, before);
  gemmd_disconnect(session);
  end();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(hostile_users_hold_up_nobody),
      cmocka_unit_test(tensors_leave_nothing_behind),
      cmocka_unit_test(tuning_leaves_nothing_behind),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
