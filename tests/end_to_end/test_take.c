/* Weights out of memory that a client shares, on the CPU backend a memfd: the same as out of a file; and what cannot be
 * taken, which disturbs nobody. On a GPU the memory is the device's: test_torch takes weights there. */
#include "client/gemmclient.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/witness.h"
#include "tests/support/messages/raw.h"
#include "tests/support/reference/checkpoint.h"
#include "tests/support/system/sealed.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { N = 130, K = 384, AT = 4096, BYTES = 1 << 20, LARGE = 4096 };

static bool takes_memfd;

struct memory {
  gemmd_session *session;
  gemmd_memory *handle;
  uint8_t *bytes;
  int fd;
};

static void memory_open(struct memory *memory, uint64_t bytes) {
  memory->session = NULL;
  witness_ok(memory->session, gemmd_connect(&memory->session, witness.daemon.socket, NULL));
  memory->fd = sealed_memfd(bytes, F_SEAL_SHRINK);
  memory->bytes = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);
  assert_ptr_not_equal(memory->bytes, MAP_FAILED);
  witness_ok(memory->session, gemmd_memory_open(memory->session, 0, memory->fd, memory->bytes, bytes, &memory->handle));
}

static void memory_close(struct memory *memory, uint64_t bytes) {
  witness_ok(memory->session, gemmd_memory_close(memory->handle));
  gemmd_disconnect(memory->session);
  munmap(memory->bytes, bytes);
  close(memory->fd);
}

static float *values_at(const struct memory *memory) {
  return (float *)(void *)(memory->bytes + AT);
}

static void fill(float *values, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    values[i] = (float)((i * 7919 + i / 251) % 1021 - 510) / (i % 61 == 0 ? 16.0f : 512.0f);
}

static int start(void **state) {
  int result = witness_start(state);
  gemmd_daemon_info info;
  witness_ok(witness.session, gemmd_daemon_status(witness.session, &info));
  takes_memfd = strcmp(info.backend, "cpu") == 0;
  return result;
}

/* ---- what is taken */

static void as_out_of_a_file(void **state) {
  static const struct {
    enum gemmd_format format;
    enum gemmd_scale scale;
    enum gemmd_method method;
  } cases[] = {
      {GEMMD_FORMAT_INT8, GEMMD_SCALE_DEFAULT, GEMMD_METHOD_DEFAULT},
      {GEMMD_FORMAT_INT8, GEMMD_SCALE_ONE, GEMMD_METHOD_ABSMAX},
      {GEMMD_FORMAT_FP8, GEMMD_SCALE_ROW, GEMMD_METHOD_DEFAULT},
      {GEMMD_FORMAT_FP8, GEMMD_SCALE_BLOCK, GEMMD_METHOD_DEFAULT},
      {GEMMD_FORMAT_INT2, GEMMD_SCALE_DEFAULT, GEMMD_METHOD_DEFAULT},
      {GEMMD_FORMAT_INT2, GEMMD_SCALE_ROW, GEMMD_METHOD_TERNARY},
      {GEMMD_FORMAT_BF16, GEMMD_SCALE_DEFAULT, GEMMD_METHOD_DEFAULT},
  };
  if (!takes_memfd)
    skip();
  struct memory memory;
  struct checkpoint checkpoint = {.count = 0};
  memory_open(&memory, BYTES);
  fill(values_at(&memory), N * K);
  checkpoint_add(&checkpoint, "values", "F32", N, K, values_at(&memory), (uint64_t)N * K * 4);
  const char *path = daemon_path(&witness.daemon, "values.safetensors");
  checkpoint_write(&checkpoint, path);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    gemmd_weight_info read, taken;
    gemmd_load load = witness_load("values", "out of a file", cases[i].format);
    load.scale = cases[i].scale;
    load.method = cases[i].method;
    witness_ok(memory.session, gemmd_weight_load_file(memory.session, path, &load, &read));
    load.name = "taken";
    witness_ok(memory.session, gemmd_weight_take(memory.session, &load, values_at(&memory), GEMMD_F32, N, K, &taken));
    assert_string_equal(taken.name, "taken");
    assert_int_equal(taken.n, N);
    assert_int_equal(taken.k, K);
    assert_int_equal(taken.scale, read.scale);
    assert_memory_equal(taken.hash, read.hash, sizeof taken.hash);
    assert_true(taken.shared);
    witness_ok(memory.session, gemmd_weight_unload(memory.session, "taken", NULL));
    witness_ok(memory.session, gemmd_weight_unload(memory.session, "out of a file", NULL));
  }
  memory_close(&memory, BYTES);
  witness_undisturbed();
}

/* ---- what is not */

static void refusals_by_the_library(void **state) {
  if (!takes_memfd)
    skip();
  struct memory memory;
  memory_open(&memory, BYTES);
  float *values = values_at(&memory), elsewhere[16];
  fill(values, N * K);
  gemmd_load load = witness_load("", "refused", GEMMD_FORMAT_INT8);
#define REFUSED(data, type, n, k, status, text)                                                                        \
  witness_status(memory.session, gemmd_weight_take(memory.session, &load, data, type, n, k, NULL), status, text)
  REFUSED(elsewhere, GEMMD_F32, 1, 16, GEMMD_INVALID, "memory of gemmd_memory_open");
  REFUSED(values, GEMMD_INT8, N, K, GEMMD_INVALID, "type must be");
  REFUSED(values, GEMMD_F32, 0, K, GEMMD_INVALID, "N must be");
  REFUSED(values, GEMMD_F32, N, -1, GEMMD_INVALID, "K must be");
  REFUSED(values + 1, GEMMD_F32, N, K, GEMMD_INVALID, "multiple of 16");
  REFUSED(values, GEMMD_F32, BYTES, K, GEMMD_INVALID, "do not lie in memory");
  REFUSED(values, GEMMD_F32, (BYTES - AT) / 4 / K + 1, K, GEMMD_INVALID, "do not lie in memory");
  load.scale = GEMMD_SCALE_GROUP;
  REFUSED(values, GEMMD_F32, N, K, GEMMD_INVALID, "does not go with format");
  load.scale = GEMMD_SCALE_DEFAULT;
  load.method = GEMMD_METHOD_TERNARY;
  REFUSED(values, GEMMD_F32, N, K, GEMMD_INVALID, "does not go with format");
  load.method = GEMMD_METHOD_DEFAULT;
  load.name = "int8";
  REFUSED(values, GEMMD_F32, N, K, GEMMD_EXISTS, "int8");
  load.name = "refused";
  values[3 * K + 5] = NAN;
  REFUSED(values, GEMMD_F32, N, K, GEMMD_BAD_FILE, "row 3, column 5");
  load.format = GEMMD_FORMAT_INT2;
  values[3 * K + 5] = 1e6f;
  REFUSED(values, GEMMD_F32, N, K, GEMMD_BAD_FILE, "row 3, column 5");
#undef REFUSED
  assert_int_equal(gemmd_weight_stat(memory.session, "refused", NULL), GEMMD_NOT_FOUND);
  memory_close(&memory, BYTES);
  witness_undisturbed();
}

static struct message_weight_take take_of(uint32_t memory, const char *name, int64_t n, int64_t k) {
  struct message_weight_take take = {
      .format = GEMM_FORMAT_INT8, .device = -1, .memory = memory, .type = GEMM_F32, .n = n, .k = k};
  snprintf(take.name, sizeof take.name, "%s", name);
  return take;
}

static void expect_raw(int socket, const struct message_weight_take *take, enum status expected, const char *text) {
  struct raw_reply reply;
  assert_true(raw_ask(socket, COMMAND_weight_take, take, NULL, 0, NULL, &reply));
  if (reply.status != expected || strstr(reply.error.text, text) == NULL)
    fail_msg("\"%s\" (%s) in place of \"... %s\"", reply.error.text, status_name(reply.status), text);
}

static uint32_t raw_memory(int socket, uint64_t bytes, int fd) {
  const struct message_tensor_open open = {.device = 0, .bytes = bytes};
  struct message_tensor_handle handle;
  struct raw_reply reply;
  assert_true(raw_ask(socket, COMMAND_tensor_open, &open, &fd, 1, &handle, &reply));
  assert_int_equal(reply.status, STATUS_OK);
  return handle.handle;
}

/* As no library asks. */
static void refusals_of_bare_requests(void **state) {
  if (!takes_memfd)
    skip();
  struct raw_session mine, other;
  struct raw_reply reply;
  int fd = sealed_memfd(BYTES, F_SEAL_SHRINK);
  raw_open(&mine, witness.daemon.socket, 4, "int8");
  raw_open(&other, witness.daemon.socket, 4, "int8");
  uint32_t handle = raw_memory(mine.socket, BYTES, fd);
  struct message_weight_take take = take_of(handle, "bare", N, K);
  expect_raw(other.socket, &take, STATUS_NOT_FOUND, "stands for no memory");
  take.memory = handle + (1 << 16);
  expect_raw(mine.socket, &take, STATUS_NOT_FOUND, "stands for no memory");
  take.memory = 0;
  expect_raw(mine.socket, &take, STATUS_NOT_FOUND, "stands for no memory");
  take = take_of(handle, "", N, K);
  expect_raw(mine.socket, &take, STATUS_INVALID, "name must have");
  take = take_of(handle, "bare", N, K);
  take.format = 99;
  expect_raw(mine.socket, &take, STATUS_INVALID, "format");
  take.format = GEMM_FORMAT_INT8;
  take.mode = 7;
  expect_raw(mine.socket, &take, STATUS_INVALID, "mode must be");
  take.mode = 0;
  take.offset = UINT64_MAX - 15;
  expect_raw(mine.socket, &take, STATUS_INVALID, "do not lie in memory");
  take.offset = BYTES;
  expect_raw(mine.socket, &take, STATUS_INVALID, "do not lie in memory");
  take.offset = 0;
  take.n = LIMIT_N;
  take.k = LIMIT_K_INT8;
  expect_raw(mine.socket, &take, STATUS_INVALID, "do not lie in memory");
  take.n = INT64_MAX;
  expect_raw(mine.socket, &take, STATUS_INVALID, "N must be");
  /* what is a loader's alone */
  struct message_weight_load load = {.format = GEMM_FORMAT_INT8, .matrix_type = GEMM_F32, .matrix_n = 1, .matrix_k = 1};
  snprintf(load.name, sizeof load.name, "bare");
  snprintf(load.tensor, sizeof load.tensor, "bare");
  assert_true(raw_ask(mine.socket, COMMAND_weight_load, &load, &fd, 1, NULL, &reply));
  assert_int_equal(reply.status, STATUS_INVALID);
  assert_non_null(strstr(reply.error.text, "not for clients"));
  raw_close(&mine);
  raw_close(&other);
  close(fd);
  witness_undisturbed();
}

struct scribbler {
  uint32_t *words;
  size_t count;
  int fd;
  atomic_bool end;
};

/* Other numbers, no numbers, and holes. */
static void *scribble(void *argument) {
  struct scribbler *scribbler = argument;
  for (uint32_t turn = 1; !atomic_load(&scribbler->end); turn++) {
    for (size_t i = turn % 997; i < scribbler->count; i += 997)
      scribbler->words[i] = turn * 2654435761u;
    if (turn % 8 == 0)
      assert_int_equal(fallocate(scribbler->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BYTES / 2), 0);
  }
  return NULL;
}

static void memory_that_changes_meanwhile(void **state) {
  if (!takes_memfd)
    skip();
  struct memory memory;
  memory_open(&memory, BYTES);
  fill(values_at(&memory), N * K);
  struct scribbler scribbler = {
      .words = (uint32_t *)(void *)memory.bytes, .count = BYTES / sizeof(uint32_t), .fd = memory.fd};
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, scribble, &scribbler), 0);
  gemmd_load load = witness_load("", "moving", GEMMD_FORMAT_INT8);
  load.replace = true;
  for (int i = 0; i < 20; i++) {
    int status = gemmd_weight_take(memory.session, &load, values_at(&memory), GEMMD_F32, N, K, NULL);
    if (status != GEMMD_OK && status != GEMMD_BAD_FILE)
      witness_ok(memory.session, status);
  }
  atomic_store(&scribbler.end, true);
  pthread_join(thread, NULL);
  (void)gemmd_weight_unload(memory.session, "moving", NULL);
  memory_close(&memory, BYTES);
  witness_undisturbed();
}

/* Its load ends with it, and so does what gemmd held for it. */
static void client_that_leaves_meanwhile(void **state) {
  if (!takes_memfd)
    skip();
  uint64_t bytes = (uint64_t)LARGE * LARGE * sizeof(float);
  int fd = sealed_memfd(bytes, F_SEAL_SHRINK);
  float *values = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  assert_ptr_not_equal(values, MAP_FAILED);
  fill(values, (int64_t)LARGE * LARGE);
  munmap(values, bytes);
  for (int i = 0; i < 6; i++) {
    struct raw_session session;
    raw_open(&session, witness.daemon.socket, 4, "int8");
    struct message_weight_take take = take_of(raw_memory(session.socket, bytes, fd), "left", LARGE, LARGE);
    take.format = GEMM_FORMAT_INT2;
    const struct message_head head = {.kind = MESSAGE_REQUEST, .id = 9, .code = COMMAND_weight_take};
    uint8_t record[LIMIT_MESSAGE_BYTES];
    size_t length;
    struct error error;
    assert_int_equal(message_encode(&head, &message_weight_take_type, &take, record, sizeof record, &length, &error),
                     STATUS_OK);
    raw_send(session.socket, record, length, NULL, 0);
    if (i % 2 == 1) { /* the loader is at work by the time of the second answer */
      const struct message_ping ping = {.payload = 1};
      struct raw_reply reply;
      for (int turn = 0; turn < 2; turn++)
        assert_true(raw_ask(session.socket, COMMAND_ping, &ping, NULL, 0, NULL, &reply));
    }
    raw_close(&session);
    assert_int_equal(gemmd_weight_stat(witness.session, "left", NULL), GEMMD_NOT_FOUND);
  }
  close(fd);
  witness_undisturbed();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(as_out_of_a_file),
      cmocka_unit_test(refusals_by_the_library),
      cmocka_unit_test(refusals_of_bare_requests),
      cmocka_unit_test(memory_that_changes_meanwhile),
      cmocka_unit_test(client_that_leaves_meanwhile),
  };
  return cmocka_run_group_tests(tests, start, witness_stop);
}
