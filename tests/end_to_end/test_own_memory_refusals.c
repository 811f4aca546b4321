/* Memory of the client's own that gemmd does not take, or takes for nobody: what is no memory, what is too much, what
 * is given up, and handles as no library writes them. */
#include "client/gemmclient.h"
#include "proto/limits.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/status.h"
#include "tests/support/messages/raw.h"
#include "tests/support/reference/checkpoint.h"
#include "tests/support/reference/oracle.h"
#include "tests/support/system/hold.h"
#include "tests/support/system/sealed.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N = 96, K = 160 };

static struct daemon daemon_under_test;
static bool takes_memfd;

static int start(void **state) {
  struct oracle_weight weight;
  gemmd_daemon_info info;
  daemon_make(&daemon_under_test, "");
  oracle_weight_make(&weight, &(struct gemm_weight){N, K, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0}, 1);
  checkpoint_write_one(daemon_path(&daemon_under_test, "model.safetensors"), "w", &weight);
  oracle_weight_free(&weight);
  daemon_start(&daemon_under_test);
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  daemon_load(session, &daemon_under_test, "w", GEMMD_FORMAT_INT8);
  expect_ok(session, gemmd_daemon_status(session, &info));
  takes_memfd = strcmp(info.backend, "cpu") == 0;
  gemmd_disconnect(session);
  return 0;
}

static int stop(void **state) {
  daemon_end(&daemon_under_test);
  return 0;
}

static void expect_refusal(gemmd_session *session, unsigned device, int fd, uint64_t bytes, int status,
                           const char *text) {
  static uint8_t address[4096];
  gemmd_memory *tensor;
  assert_int_equal(gemmd_memory_open(session, device, fd, address, bytes, &tensor), status);
  assert_null(tensor);
  if (strstr(gemmd_error(session), text) == NULL)
    fail_msg("\"%s\" in place of \"... %s\"", gemmd_error(session), text);
}

static void memory_that_cannot_be(void **state) {
  gemmd_session *session = NULL;
  int ends[2];
  expect_ok(session, gemmd_connect(&session, daemon_under_test.socket, NULL));
  int good = sealed_memfd(4096, F_SEAL_SHRINK), loose = sealed_memfd(4096, 0);
  int file = open(daemon_path(&daemon_under_test, "model.safetensors"), O_RDWR | O_CLOEXEC);
  int frozen = sealed_memfd(4096, F_SEAL_SHRINK | F_SEAL_WRITE), null = open("/dev/null", O_RDWR | O_CLOEXEC);
  assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
  expect_refusal(session, 1, good, 4096, GEMMD_INVALID, "device must be 0");
  expect_refusal(session, 0, good, 0, GEMMD_INVALID, "bytes must be");
  expect_refusal(session, 0, good, LIMIT_TENSOR_BYTES + 1, GEMMD_INVALID, "bytes must be");
  /* files of a tmpfs have seals as a memfd has them, but not this one */
  expect_refusal(session, 0, file, 4096, GEMMD_BAD_DESCRIPTOR,
                 fcntl(file, F_GET_SEALS) < 0 ? "neither a memfd nor memory of a device"
                 : takes_memfd                ? "not sealed against shrinking"
                                              : "no device memory");
  expect_refusal(session, 0, ends[0], 4096, GEMMD_BAD_DESCRIPTOR, "neither a memfd nor memory of a device");
  expect_refusal(session, 0, -1, 4096, GEMMD_BAD_DESCRIPTOR, "descriptor -1");
  if (takes_memfd) {
    expect_refusal(session, 0, loose, 4096, GEMMD_BAD_DESCRIPTOR, "not sealed against shrinking");
    expect_refusal(session, 0, good, 8192, GEMMD_BAD_DESCRIPTOR, "must have 8192 bytes, has 4096");
    expect_refusal(session, 0, frozen, 4096, GEMMD_BAD_DESCRIPTOR, "cannot be mapped for writing");
    expect_refusal(session, 0, null, 4096, GEMMD_BAD_DESCRIPTOR, "no memfd");
  } else {
    expect_refusal(session, 0, good, (uint64_t)2 << 20, GEMMD_BAD_DESCRIPTOR, "no device memory");
    expect_refusal(session, 0, null, (uint64_t)2 << 20, GEMMD_BAD_DESCRIPTOR, "no device memory");
  }
  close(ends[0]);
  close(ends[1]);
  close(null);
  close(frozen);
  close(file);
  close(loose);
  close(good);
  gemmd_disconnect(session);
}

static void as_many_as_there_may_be(void **state) {
  gemmd_session *session = NULL;
  gemmd_memory *tensors[LIMIT_SESSION_TENSORS];
  static uint8_t addresses[LIMIT_SESSION_TENSORS][4096];
  if (!takes_memfd)
    skip();
  expect_ok(session, gemmd_connect(&session, daemon_under_test.socket, NULL));
  int fd = sealed_memfd(4096, F_SEAL_SHRINK);
  for (int round = 0; round < 2; round++) {
    for (unsigned i = 0; i < LIMIT_SESSION_TENSORS; i++)
      expect_ok(session, gemmd_memory_open(session, 0, fd, addresses[i], 4096, &tensors[i]));
    expect_refusal(session, 0, fd, 4096, GEMMD_TOO_LARGE, "at most 32");
    for (unsigned i = 0; i < LIMIT_SESSION_TENSORS; i++)
      expect_ok(session, gemmd_memory_close(tensors[i]));
  }
  close(fd);
  gemmd_disconnect(session);
}

/* What nobody knows of any more takes nobody's place. */
static void memory_that_is_not_opened_in_time(void **state) {
  gemmd_session *session = NULL;
  gemmd_memory *tensor;
  static uint8_t addresses[LIMIT_SESSION_TENSORS][4096];
  if (!takes_memfd)
    skip();
  expect_ok(session, gemmd_connect(&session, daemon_under_test.socket, &(gemmd_options){.timeout_ms = 1000}));
  int fd = sealed_memfd(4096, F_SEAL_SHRINK);
  pid_t worker = (pid_t)device_info(session).pid;
  hold_process(worker);
  int status = gemmd_memory_open(session, 0, fd, addresses[0], 4096, &tensor);
  assert_int_equal(kill(worker, SIGCONT), 0);
  assert_int_equal(status, GEMMD_TIMEOUT);
  assert_null(tensor);
  for (unsigned i = 0; i < LIMIT_SESSION_TENSORS; i += status == GEMMD_OK) {
    if (status == GEMMD_TIMEOUT)
      expect_ok(session, gemmd_dispatch(session, -1)); /* the late answer is all that there is to come */
    status = gemmd_memory_open(session, 0, fd, addresses[i], 4096, &tensor);
    if (status != GEMMD_TIMEOUT) /* on a machine that is busy it may be late again */
      expect_ok(session, status);
  }
  close(fd);
  gemmd_disconnect(session);
}

/* Handles and offsets as no library writes them. */
static void hostile_handles(void **state) {
  struct raw_session session;
  struct ring_completion completion;
  raw_open(&session, daemon_under_test.socket, 4, "w");
  const struct ring_submission good = {.tag = 1,
                                       .opcode = RING_OP_PRODUCT,
                                       .weight = session.handle,
                                       .x_type = GEMM_F32,
                                       .y_type = GEMM_F32,
                                       .m = 1,
                                       .n = N,
                                       .k = K,
                                       .x_offset = session.tensor_offset,
                                       .y_offset = session.tensor_offset + 4096};
  struct ring_submission x = good, y = good;
  struct ring_submission tensors = good, late = good;
  tensors.opcode = RING_OP_TENSORS;
  tensors.x_type = GEMM_F16;
  tensors.weight = 3 << 16;
  late.event = 1 << 16;
  raw_submit(&session, &tensors, &completion);
  assert_int_equal(completion.status, STATUS_NOT_FOUND);
  assert_int_equal(completion.field, FIELD_W_TENSOR);
  raw_submit(&session, &late, &completion);
  assert_int_equal(completion.status, STATUS_NOT_FOUND);
  assert_int_equal(completion.field, FIELD_EVENT);
  x.x_tensor = 1 << 16;
  y.y_tensor = UINT32_MAX;
  raw_submit(&session, &x, &completion);
  assert_int_equal(completion.status, STATUS_NOT_FOUND);
  assert_int_equal(completion.field, FIELD_X_TENSOR);
  raw_submit(&session, &y, &completion);
  assert_int_equal(completion.status, STATUS_NOT_FOUND);
  assert_int_equal(completion.field, FIELD_Y_TENSOR);
  struct message_tensor_handle unknown = {.handle = 1 << 16};
  struct raw_reply reply;
  assert_true(raw_ask(session.socket, COMMAND_tensor_close, &unknown, NULL, 0, NULL, &reply));
  assert_int_equal(reply.status, STATUS_NOT_FOUND);
  struct message_tensor_open open_none = {.device = 0, .bytes = 4096};
  assert_true(raw_ask(session.socket, COMMAND_tensor_open, &open_none, NULL, 0, NULL, &reply));
  assert_int_equal(reply.status, STATUS_BAD_DESCRIPTOR);
  if (takes_memfd) {
    int fd = sealed_memfd(65536, F_SEAL_SHRINK);
    struct message_tensor_open open_one = {.device = 0, .bytes = 65536};
    struct message_tensor_handle handle;
    assert_true(raw_ask(session.socket, COMMAND_tensor_open, &open_one, &fd, 1, &handle, &reply));
    assert_int_equal(reply.status, STATUS_OK);
    x.x_tensor = handle.handle;
    x.x_offset = 65536 - 16;
    raw_submit(&session, &x, &completion);
    assert_int_equal(completion.status, STATUS_INVALID);
    assert_int_equal(completion.field, FIELD_X_OFFSET);
    x.x_offset = 0; /* the rings, were it the arena */
    raw_submit(&session, &x, &completion);
    assert_int_equal(completion.status, STATUS_OK);
    close(fd);
  }
  raw_submit(&session, &good, &completion);
  assert_int_equal(completion.status, STATUS_OK);
  raw_close(&session);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_that_cannot_be),
      cmocka_unit_test(as_many_as_there_may_be),
      cmocka_unit_test(memory_that_is_not_opened_in_time),
      cmocka_unit_test(hostile_handles),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
