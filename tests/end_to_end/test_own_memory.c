/* x and y in memory of the client's own: on the CPU backend a memfd. Processes with memory of their own, workers and
 * daemons that are replaced. On another backend a memfd is refused: test_own_memory_refusals. */
#include "client/gemmclient.h"
#include "client/gemmclient_cuda.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/status.h"
#include "tests/support/messages/raw.h"
#include "tests/support/reference/checkpoint.h"
#include "tests/support/reference/oracle.h"
#include "tests/support/system/hold.h"
#include "tests/support/system/nap.h"
#include "tests/support/system/sealed.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum {
  N = 96,
  K = 160,
  ROWS = 11,
  BYTES = 1 << 20,
  X_AT = 4096,
  Y_AT = 512 << 10,
  CLIENTS = 2,
  TURNS = 40,
  KILLS = 3,
  SQUARE = 256
};

static const struct gemm_weight shape = {N, K, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0};
static struct daemon daemon_under_test;
static const struct gemm_weight square_shape = {SQUARE, SQUARE, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0};
static struct oracle_weight weight_values, square_values;
static bool takes_memfd;

/* A session with a piece of memory of its own. */
struct client {
  gemmd_session *session;
  gemmd_weight *weight;
  gemmd_memory *tensor;
  uint8_t *memory;
  int fd;
};

static bool report(gemmd_session *session, int status) {
  if (status != GEMMD_OK)
    fprintf(stderr, "%s: %s\n", gemmd_status_name(status), gemmd_error(session));
  return status == GEMMD_OK;
}

/* Without a weight. */
static bool client_open_memory(struct client *client) {
  *client = (struct client){.fd = sealed_memfd(BYTES, F_SEAL_SHRINK)};
  client->memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, client->fd, 0);
  return client->memory != MAP_FAILED &&
         report(client->session, gemmd_connect(&client->session, daemon_under_test.socket, NULL)) &&
         report(client->session,
                gemmd_memory_open(client->session, 0, client->fd, client->memory, BYTES, &client->tensor));
}

static bool client_open(struct client *client) {
  return client_open_memory(client) &&
         report(client->session, gemmd_weight_open(client->session, "w", &client->weight));
}

static void client_close(struct client *client) {
  gemmd_disconnect(client->session);
  munmap(client->memory, BYTES);
  close(client->fd);
}

/* One product with x and y where they are said to lie. */
static bool compute(struct client *client, float *x, float *y, uint64_t seed) {
  struct oracle_x rows;
  oracle_x_make(&rows, ROWS, K, GEMM_F32, 1, seed);
  double *values = oracle_x_values(&rows, &shape, false),
         *reference = oracle_product(values, ROWS, &weight_values, NULL);
  memcpy(x, rows.data, ROWS * K * sizeof *x);
  memset(y, 0xfd, ROWS * N * sizeof *y);
  gemmd_product product = {.m = ROWS, .x = x, .x_type = GEMMD_F32, .y = y, .y_type = GEMMD_F32};
  bool good = report(client->session, gemmd_matmul(client->weight, &product));
  for (int64_t row = 0; good && row < ROWS; row++)
    good = oracle_row_error(shape.format, reference + row * N, y + row * N, GEMM_F32, N) <=
           oracle_row_gate(&shape, GEMM_F32, reference + row * N);
  free(values);
  free(reference);
  oracle_x_free(&rows);
  return good;
}

static float *own(struct client *client, size_t offset) {
  return (float *)(void *)(client->memory + offset);
}

static void expect_right(struct client *client) {
  assert_true(compute(client, own(client, X_AT), own(client, Y_AT), 3));
}

/* ---- the daemon */

static int start(void **state) {
  static struct checkpoint checkpoint;
  gemmd_session *session = NULL;
  gemmd_daemon_info info;
  daemon_make(&daemon_under_test, "");
  oracle_weight_make(&weight_values, &shape, 1);
  checkpoint_add_weight(&checkpoint, "w", &weight_values);
  oracle_weight_make(&square_values, &square_shape, 2);
  checkpoint_add_weight(&checkpoint, "square", &square_values);
  checkpoint_write(&checkpoint, daemon_path(&daemon_under_test, "model.safetensors"));
  daemon_start(&daemon_under_test);
  expect_ok(session, gemmd_connect(&session, daemon_under_test.socket, NULL));
  daemon_load(session, &daemon_under_test, "w", GEMMD_FORMAT_INT8);
  daemon_load(session, &daemon_under_test, "square", GEMMD_FORMAT_INT8);
  expect_ok(session, gemmd_daemon_status(session, &info));
  takes_memfd = strcmp(info.backend, "cpu") == 0;
  gemmd_disconnect(session);
  return 0;
}

static int stop(void **state) {
  daemon_end(&daemon_under_test);
  oracle_weight_free(&weight_values);
  oracle_weight_free(&square_values);
  return 0;
}

/* ---- products */

static void x_and_y_lie_anywhere(void **state) {
  struct client client;
  if (!takes_memfd)
    skip();
  assert_true(client_open(&client));
  float *x = gemmd_alloc(client.session, ROWS * K * sizeof *x), *y = gemmd_alloc(client.session, ROWS * N * sizeof *y);
  assert_true(compute(&client, own(&client, X_AT), own(&client, Y_AT), 1));
  assert_true(compute(&client, own(&client, X_AT), y, 2));
  assert_true(compute(&client, x, own(&client, Y_AT), 3));
  assert_true(compute(&client, x, y, 4));
  assert_true(compute(&client, own(&client, 0), own(&client, BYTES - ROWS * N * sizeof *y), 5)); /* all of it */
  const gemmd_step step = {.weight = client.weight, .y_type = GEMMD_F32, .activation = GEMMD_SILU, .gated = true};
  gemmd_plan *plan;
  expect_ok(client.session, gemmd_plan_create(client.session, &step, 1, &plan));
  gemmd_product product = {.m = 1, .x = own(&client, X_AT), .x_type = GEMMD_F32, .y = y, .y_type = GEMMD_F32};
  expect_ok(client.session, gemmd_plan_run(plan, &product));
  product.y = own(&client, Y_AT);
  expect_ok(client.session, gemmd_plan_run(plan, &product));
  assert_memory_equal(product.y, y, N / 2 * sizeof *y);
  expect_ok(client.session, gemmd_memory_close(client.tensor));
  product.bias = NULL;
  assert_int_equal(gemmd_matmul(client.weight, &product), GEMMD_INVALID); /* a pointer like any other again */
  client_close(&client);
}

/* W, x and y of one product in it, against W in the arena; and again with the next daemon, where handles differ. */
static void w_lies_anywhere(void **state) {
  struct client client;
  if (!takes_memfd)
    skip();
  assert_true(client_open(&client));
  enum { W_AT = 128 << 10, STRIDE = 2 * K + 32 };
  uint16_t *arena_w = gemmd_alloc(client.session, N * STRIDE), *x = (uint16_t *)(void *)own(&client, X_AT);
  float *expected = gemmd_alloc(client.session, ROWS * N * sizeof *expected), *y = own(&client, Y_AT);
  for (int i = 0; i < N * STRIDE / 2; i++)
    arena_w[i] = (uint16_t)(0x3000 + i % 0x0c00);
  for (int i = 0; i < ROWS * K; i++)
    x[i] = (uint16_t)(0x3800 + i % 512);
  memcpy(client.memory + W_AT, arena_w, N * STRIDE);
  gemmd_product product = {.m = ROWS, .x = x, .x_type = GEMMD_F16, .y = expected, .y_type = GEMMD_F32};
  gemmd_tensor w = {.data = arena_w, .n = N, .k = K, .stride = STRIDE};
  expect_ok(client.session, gemmd_tensors_matmul(client.session, &w, &product));
  w.data = client.memory + W_AT;
  for (int i = 0; i < 3; i++) {
    memset(y, 0xfd, ROWS * N * sizeof *y);
    product.y = y;
    expect_ok(client.session, gemmd_tensors_matmul(client.session, &w, &product));
    assert_memory_equal(y, expected, ROWS * N * sizeof *y);
    daemon_upgrade(&daemon_under_test);
  }
  /* A stored weight, and be it of the same handle, has no part in what goes wrong. */
  int status = GEMMD_OK;
  product.deadline_us = 1;
  while (status == GEMMD_OK)
    status = gemmd_tensors_matmul(client.session, &w, &product);
  assert_int_equal(status, GEMMD_TIMEOUT);
  assert_null(strstr(gemmd_error(client.session), "weight"));
  product.deadline_us = 0;
  product.y = client.memory + W_AT + 16;
  assert_int_equal(gemmd_tensors_matmul(client.session, &w, &product), GEMMD_INVALID);
  assert_non_null(strstr(gemmd_error(client.session), "W overlaps y"));
  product.y = y;
  w.data = client.memory + BYTES - STRIDE;
  assert_int_equal(gemmd_tensors_matmul(client.session, &w, &product), GEMMD_INVALID);
  assert_non_null(strstr(gemmd_error(client.session), "w offset must be 0.."));
  client_close(&client);
}

struct scene {
  _Atomic bool stop;
  _Atomic uint64_t turns[CLIENTS];
};

static int run_client(int index, void *user) {
  struct scene *scene = user;
  struct client client;
  bool good = client_open(&client);
  while (good && (!atomic_load(&scene->stop) || atomic_load(&scene->turns[index]) < TURNS)) {
    good = compute(&client, own(&client, X_AT), own(&client, Y_AT), (uint64_t)index + 1);
    atomic_fetch_add(&scene->turns[index], 1);
  }
  client_close(&client);
  return good ? 0 : 1;
}

static void the_worker_is_killed(void **state) {
  if (!takes_memfd)
    skip();
  struct scene *scene = clients_share(sizeof *scene);
  struct clients clients;
  gemmd_session *session = NULL;
  expect_ok(session, gemmd_connect(&session, daemon_under_test.socket, NULL));
  clients_start(&clients, CLIENTS, run_client, scene);
  for (int i = 0; i < KILLS; i++) {
    for (int c = 0; c < CLIENTS; c++)
      for (uint64_t from = atomic_load(&scene->turns[c]); atomic_load(&scene->turns[c]) < from + 3; nap_shortly())
        expect_ok(session, gemmd_ping(session, NULL));
    device_kill_worker(session);
  }
  atomic_store(&scene->stop, true);
  clients_wait(&clients);
  gemmd_disconnect(session);
}

static void gemmd_is_replaced(void **state) {
  struct client client;
  if (!takes_memfd)
    skip();
  assert_true(client_open(&client));
  gemmd_memory *second;
  int fd = sealed_memfd(4096, F_SEAL_SHRINK);
  void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  assert_ptr_not_equal(memory, MAP_FAILED);
  expect_ok(client.session, gemmd_memory_open(client.session, 0, fd, memory, 4096, &second));
  for (int i = 0; i < 2; i++) {
    daemon_upgrade(&daemon_under_test);
    expect_right(&client);
  }
  expect_ok(client.session, gemmd_memory_close(second));
  expect_right(&client);
  munmap(memory, 4096);
  close(fd);
  client_close(&client);
}

/* A client that has opened no rings finds the next daemon when it asks for its first product. There each piece of
 * memory gets the handle that the other had. */
static void gemmd_is_replaced_before_the_first_product(void **state) {
  enum { W_AT = 128 << 10 };
  struct client client;
  gemmd_memory *second;
  if (!takes_memfd)
    skip();
  assert_true(client_open_memory(&client));
  int fd = sealed_memfd(BYTES, F_SEAL_SHRINK);
  uint8_t *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  assert_ptr_not_equal(memory, MAP_FAILED);
  expect_ok(client.session, gemmd_memory_open(client.session, 0, fd, memory, BYTES, &second));
  uint16_t *x = (uint16_t *)(void *)own(&client, X_AT), *w = (uint16_t *)(void *)own(&client, W_AT);
  float *y = (float *)(void *)(memory + Y_AT);
  for (int i = 0; i < ROWS * K; i++)
    x[i] = 0x3c00;
  for (int i = 0; i < N * K; i++)
    w[i] = 0x3c00;
  gemmd_product product = {.m = ROWS, .x = x, .x_type = GEMMD_F16, .y = y, .y_type = GEMMD_F32};
  daemon_upgrade(&daemon_under_test);
  expect_ok(client.session, gemmd_tensors_matmul(client.session, &(gemmd_tensor){.data = w, .n = N, .k = K}, &product));
  for (int i = 0; i < ROWS * N; i++)
    assert_true(y[i] == K);
  munmap(memory, BYTES);
  close(fd);
  client_close(&client);
}

/* Who asks is told, and may not take the memory for his own again before that has come to something. */
static void memory_that_is_not_given_back_in_time(void **state) {
  struct client client = {.fd = sealed_memfd(BYTES, F_SEAL_SHRINK)};
  if (!takes_memfd)
    skip();
  expect_ok(client.session,
            gemmd_connect(&client.session, daemon_under_test.socket, &(gemmd_options){.timeout_ms = 500}));
  client.memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, client.fd, 0);
  expect_ok(client.session, gemmd_memory_open(client.session, 0, client.fd, client.memory, BYTES, &client.tensor));
  pid_t worker = (pid_t)device_info(client.session).pid;
  hold_process(worker);
  int status = gemmd_memory_close(client.tensor);
  assert_int_equal(kill(worker, SIGCONT), 0);
  assert_int_equal(status, GEMMD_TIMEOUT);
  do
    status = gemmd_memory_close(client.tensor);
  while (status == GEMMD_TIMEOUT);
  assert_int_equal(status, GEMMD_OK);
  client_close(&client);
}

/* ---- device memory of two processes, where there is a GPU: what one product writes there, the next one reads */

/* y = W (W x) with the inner result in device memory, against the same through the arena. */
static int run_on_the_gpu(int index, void *user) {
  gemmd_session *session = NULL;
  gemmd_weight *weight;
  gemmd_cuda_memory *memory;
  enum { M = 5 };
  if (!report(session, gemmd_connect(&session, daemon_under_test.socket, NULL)) ||
      !report(session, gemmd_weight_open(session, "square", &weight)))
    return 1;
  if (gemmd_cuda_alloc(session, 0, 0, BYTES, &memory) != GEMMD_OK) {
    fprintf(stderr, "%s\n", gemmd_cuda_error());
    return 1;
  }
  float *x = gemmd_alloc(session, M * SQUARE * sizeof *x), *between = gemmd_alloc(session, M * SQUARE * sizeof *x);
  float *expected = gemmd_alloc(session, M * SQUARE * sizeof *x), *y = gemmd_alloc(session, M * SQUARE * sizeof *x);
  for (int i = 0; i < M * SQUARE; i++)
    x[i] = (float)((i * 7 + index) % 13 - 6);
  gemmd_product first = {.m = M, .x = x, .x_type = GEMMD_F32, .y = between, .y_type = GEMMD_F32}, second = first;
  second.x = between;
  second.y = expected;
  bool good = report(session, gemmd_matmul(weight, &first)) && report(session, gemmd_matmul(weight, &second));
  first.y = (uint8_t *)gemmd_cuda_address(memory) + X_AT;
  second.x = first.y;
  second.y = y;
  for (int turn = 0; good && turn < TURNS; turn++) {
    memset(y, 0xfd, M * SQUARE * sizeof *y);
    good = report(session, gemmd_matmul(weight, &first)) && report(session, gemmd_matmul(weight, &second)) &&
           memcmp(y, expected, M * SQUARE * sizeof *y) == 0;
  }
  good = gemmd_cuda_free(memory) == GEMMD_OK && good;
  gemmd_disconnect(session);
  return good ? 0 : 1;
}

static void two_processes_on_a_gpu(void **state) {
  if (takes_memfd)
    skip();
  clients_run(CLIENTS, run_on_the_gpu, NULL);
}

/* Its client has sealed it against mappings for writing that are new, which the next worker's are. Others do not
 * notice. */
static void memory_that_no_other_worker_can_map(void **state) {
  const struct message_tensor_open request = {.device = 0, .bytes = 4096};
  struct message_tensor_handle handle;
  struct raw_session hostile;
  struct raw_reply reply;
  struct client client;
  if (!takes_memfd)
    skip();
  raw_open(&hostile, daemon_under_test.socket, 4, "w");
  int fd = sealed_memfd(4096, F_SEAL_SHRINK);
  assert_true(raw_ask(hostile.socket, COMMAND_tensor_open, &request, &fd, 1, &handle, &reply));
  assert_int_equal(reply.status, STATUS_OK);
  assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
  assert_true(client_open(&client));
  uint32_t restarts = device_info(client.session).restarts;
  device_kill_worker(client.session);
  assert_true(compute(&client, (float *)(client.memory + X_AT), (float *)(client.memory + Y_AT), 5));
  assert_int_equal(device_info(client.session).restarts, restarts + 1);
  raw_expect_end(hostile.socket);
  munmap(hostile.arena, hostile.bytes);
  close(hostile.doorbell);
  close(hostile.wakeup);
  close(fd);
  client_close(&client);
}

static void products_that_cannot_be(void **state) {
  struct client client;
  if (!takes_memfd)
    skip();
  assert_true(client_open(&client));
  const struct {
    size_t x, y;
    const char *text;
  } cases[] = {
      {X_AT, BYTES - 64, "y offset must be 0.."},
      {BYTES - 64, Y_AT, "x offset must be 0.."},
      {X_AT + 4, Y_AT, "x offset must be a multiple of 16"},
      {X_AT, X_AT + 64, "y overlaps x"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    gemmd_product product = {.m = ROWS,
                             .x = own(&client, cases[i].x),
                             .x_type = GEMMD_F32,
                             .y = own(&client, cases[i].y),
                             .y_type = GEMMD_F32};
    assert_int_equal(gemmd_matmul(client.weight, &product), GEMMD_INVALID);
    if (strstr(gemmd_error(client.session), cases[i].text) == NULL)
      fail_msg("\"%s\" in place of \"... %s\"", gemmd_error(client.session), cases[i].text);
  }
  expect_right(&client);
  client_close(&client);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(x_and_y_lie_anywhere),
      cmocka_unit_test(w_lies_anywhere),
      cmocka_unit_test(the_worker_is_killed),
      cmocka_unit_test(gemmd_is_replaced),
      cmocka_unit_test(gemmd_is_replaced_before_the_first_product),
      cmocka_unit_test(memory_that_is_not_given_back_in_time),
      cmocka_unit_test(two_processes_on_a_gpu),
      cmocka_unit_test(memory_that_no_other_worker_can_map),
      cmocka_unit_test(products_that_cannot_be),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
