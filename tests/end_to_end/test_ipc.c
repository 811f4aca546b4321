/* Memory and events of a client's GPU work by handles of CUDA's IPC, and W in such memory: products behind an event,
 * clients that die with all of it in use, events that never come, handles that are none. On a backend without a GPU,
 * and for whom they are not, they are refused. */
#include "client/gemmclient.h"
#include "client/gemmclient_cuda.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/status.h"
#include "tests/support/reference/checkpoint.h"
#include "tests/support/reference/oracle.h"
#include "tests/support/system/gpu.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { SIZE = 256, ROWS = 3, CLIENTS = 2, TURNS = 30, X_BYTES = ROWS * SIZE * 4, Y_AT = 65536, BYTES = 1 << 20 };

static const struct gemm_weight shape = {SIZE, SIZE, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0};
static struct daemon daemon_under_test, strict; /* strict: nobody may use legacy handles */
static struct oracle_weight weight_values;
static bool has_gpu;

static void load(const struct daemon *daemon) {
  gemmd_session *session = NULL;
  const char *path = daemon_path(&daemon_under_test, "model.safetensors");
  gemmd_load request = {.name = "w", .tensor = "w", .format = GEMMD_FORMAT_INT8, .device = -1};
  gemmd_daemon_info info;
  if (gemmd_connect(&session, daemon->socket, NULL) != GEMMD_OK ||
      gemmd_weight_load_file(session, path, &request, NULL) != GEMMD_OK ||
      gemmd_daemon_status(session, &info) != GEMMD_OK)
    fail_msg("%s", gemmd_error(session));
  has_gpu = strcmp(info.backend, "cuda") == 0;
  gemmd_disconnect(session);
}

static int start(void **state) {
  char options[128];
  snprintf(options, sizeof options, "tune = off\nipc_users = 4294967, %u\nevent_timeout_ms = 60000\n",
           (unsigned)getuid());
  daemon_make(&daemon_under_test, options);
  daemon_make(&strict, "event_timeout_ms = 50\n");
  oracle_weight_make(&weight_values, &shape, 1);
  checkpoint_write_one(daemon_path(&daemon_under_test, "model.safetensors"), "w", &weight_values);
  daemon_start(&daemon_under_test);
  daemon_start(&strict);
  load(&daemon_under_test);
  load(&strict);
  return 0;
}

static int stop(void **state) {
  daemon_stop(&strict);
  daemon_stop(&daemon_under_test);
  daemon_remove(&strict);
  daemon_remove(&daemon_under_test);
  oracle_weight_free(&weight_values);
  return 0;
}

/* ---- a client with a GPU of its own; for processes of their own */

struct client {
  gemmd_session *session;
  gemmd_weight *weight;
  float *x, *y, *expected; /* in the arena; `expected` is y of x */
};

static bool report(gemmd_session *session, int status) {
  if (status != GEMMD_OK)
    fprintf(stderr, "%s: %s; %s\n", gemmd_status_name(status), gemmd_error(session), gemmd_cuda_error());
  return status == GEMMD_OK;
}

static bool client_open(struct client *client, const struct daemon *daemon) {
  *client = (struct client){.session = NULL};
  if (!gpu_open() || !report(client->session, gemmd_connect(&client->session, daemon->socket, NULL)) ||
      !report(client->session, gemmd_weight_open(client->session, "w", &client->weight)))
    return false;
  client->x = gemmd_alloc(client->session, X_BYTES);
  client->y = gemmd_alloc(client->session, X_BYTES);
  client->expected = gemmd_alloc(client->session, X_BYTES);
  for (int i = 0; i < ROWS * SIZE; i++)
    client->x[i] = (float)((i * 7 + getpid()) % 13 - 6);
  gemmd_product product = {.m = ROWS, .x = client->x, .x_type = GEMMD_F32, .y = client->expected, .y_type = GEMMD_F32};
  return report(client->session, gemmd_matmul(client->weight, &product));
}

static gemmd_product product_from(const struct client *client, const void *x, const gemmd_event *after) {
  memset(client->y, 0xfd, X_BYTES);
  return (gemmd_product){.m = ROWS, .x = x, .x_type = GEMMD_F32, .y = client->y, .y_type = GEMMD_F32, .after = after};
}

static bool is_right(const struct client *client) {
  bool right = memcmp(client->y, client->expected, X_BYTES) == 0;
  if (!right)
    fprintf(stderr, "y is wrong\n");
  return right;
}

static bool serves(const struct client *client) {
  gemmd_product product = product_from(client, client->x, NULL);
  return report(client->session, gemmd_matmul(client->weight, &product)) && is_right(client);
}

static void run_clients(int count, int (*run)(int index, void *user), void *user) {
  if (!has_gpu)
    skip();
  clients_run(count, run, user);
}

/* ---- events */

/* x comes by a copy behind work that has not ended: the product waits for it, others of the session do not. */
static int run_behind_events(int index, void *user) {
  struct client client;
  gemmd_cuda_memory *memory;
  gemmd_cuda_event *event;
  if (!client_open(&client, &daemon_under_test) ||
      !report(client.session, gemmd_cuda_alloc(client.session, 0, 0, BYTES, &memory)) ||
      !report(client.session, gemmd_cuda_event_create(client.session, 0, &event)))
    return 1;
  void *x = gemmd_cuda_address(memory);
  bool good = true;
  for (int turn = 0; good && turn < TURNS; turn++) {
    uint64_t ticket = 0;
    float zeros[16] = {0};
    good = gpu_copy_in(x, zeros, sizeof zeros) && gpu_hold_and_copy(x, client.x, X_BYTES) &&
           report(client.session, gemmd_cuda_event_record(event, gpu_stream()));
    gemmd_product product = product_from(&client, x, gemmd_cuda_event_get(event));
    float *y = client.y;
    good = good && report(client.session, gemmd_submit(client.weight, &product, &ticket));
    client.y = gemmd_alloc(client.session, X_BYTES);
    good = good && serves(&client) && gemmd_wait(client.session, ticket, 0, NULL) == GEMMD_TIMEOUT &&
           gemmd_cuda_event_free(event) == GEMMD_BUSY;
    gemmd_free(client.session, client.y);
    client.y = y;
    gpu_go_on();
    good = good && report(client.session, gemmd_wait(client.session, ticket, -1, NULL)) && is_right(&client);
  }
  good = good && gemmd_cuda_event_free(event) == GEMMD_OK && gemmd_cuda_free(memory) == GEMMD_OK;
  gemmd_disconnect(client.session);
  return good ? 0 : 1;
}

static void products_begin_behind_events(void **state) {
  run_clients(CLIENTS, run_behind_events, NULL);
}

static int run_without_end(int index, void *user) {
  struct client client;
  gemmd_cuda_event *event;
  if (!client_open(&client, &strict) || !report(client.session, gemmd_cuda_event_create(client.session, 0, &event)))
    return 1;
  void *x = gpu_alloc(X_BYTES);
  bool good = x != NULL && gpu_hold_and_copy(x, client.x, X_BYTES) &&
              report(client.session, gemmd_cuda_event_record(event, gpu_stream()));
  gemmd_product product = product_from(&client, client.x, gemmd_cuda_event_get(event));
  good = good && gemmd_matmul(client.weight, &product) == GEMMD_TIMEOUT &&
         strstr(gemmd_error(client.session), "event") != NULL;
  product.deadline_us = 1000;
  good = good && gemmd_matmul(client.weight, &product) == GEMMD_TIMEOUT && serves(&client);
  gpu_go_on();
  gemmd_disconnect(client.session);
  return good ? 0 : 1;
}

static void an_event_that_never_comes_ends_in_time(void **state) {
  run_clients(CLIENTS, run_without_end, NULL);
}

/* The worker is killed under a product that waits: its successor opens event and memory, and goes on waiting. */
static int run_over_a_death(int index, void *user) {
  struct client client;
  gemmd_cuda_memory *memory;
  gemmd_cuda_event *event;
  uint64_t ticket = 0;
  if (!client_open(&client, &daemon_under_test) ||
      !report(client.session, gemmd_cuda_alloc(client.session, 0, 0, BYTES, &memory)) ||
      !report(client.session, gemmd_cuda_event_create(client.session, 0, &event)))
    return 1;
  void *x = gemmd_cuda_address(memory);
  bool good =
      gpu_hold_and_copy(x, client.x, X_BYTES) && report(client.session, gemmd_cuda_event_record(event, gpu_stream()));
  gemmd_product product = product_from(&client, x, gemmd_cuda_event_get(event));
  good = good && report(client.session, gemmd_submit(client.weight, &product, &ticket));
  device_kill_worker(client.session);
  good = good && gemmd_wait(client.session, ticket, 0, NULL) == GEMMD_TIMEOUT;
  gpu_go_on();
  good = good && report(client.session, gemmd_wait(client.session, ticket, -1, NULL)) && is_right(&client);
  gemmd_disconnect(client.session);
  return good ? 0 : 1;
}

static void the_worker_is_killed(void **state) {
  run_clients(1, run_over_a_death, NULL);
}

/* ---- memory by legacy handles */

/* x and y in memory of cuMemAlloc, not at its beginning. */
static int run_legacy(int index, void *user) {
  struct client client;
  gemmd_cuda_memory *memory;
  if (!client_open(&client, &daemon_under_test))
    return 1;
  uint8_t *own = gpu_alloc(BYTES);
  bool good = own != NULL && report(client.session, gemmd_cuda_open(client.session, 0, own + 512, &memory)) &&
              gpu_copy_in(own + 4096, client.x, X_BYTES);
  for (int turn = 0; good && turn < TURNS; turn++) {
    gemmd_product product = product_from(&client, own + 4096, NULL);
    product.y = own + Y_AT;
    good = report(client.session, gemmd_matmul(client.weight, &product)) &&
           gpu_copy_out(client.y, own + Y_AT, X_BYTES) && is_right(&client);
  }
  good = good && gemmd_cuda_free(memory) == GEMMD_OK && serves(&client);
  gpu_free(own);
  gemmd_disconnect(client.session);
  return good ? 0 : 1;
}

static void memory_by_legacy_handles(void **state) {
  run_clients(CLIENTS, run_legacy, NULL);
}

static int run_refused(int index, void *user) {
  struct client client;
  gemmd_cuda_memory *memory;
  if (!client_open(&client, &strict))
    return 1;
  void *own = gpu_alloc(BYTES);
  bool good = own != NULL && gemmd_cuda_open(client.session, 0, own, &memory) == GEMMD_PERMISSION &&
              strstr(gemmd_cuda_error(), "ipc_users") != NULL && serves(&client);
  gemmd_disconnect(client.session);
  return good ? 0 : 1;
}

static void legacy_handles_are_for_whom_the_option_names(void **state) {
  run_clients(1, run_refused, NULL);
}

/* ---- W in device memory */

/* Read in place, and copied where it begins or is laid out otherwise: the same bits as from the arena, as no tuner
 * changes the kernel in between. */
static int run_tensors(int index, void *user) {
  struct client client;
  gemmd_cuda_memory *memory;
  if (!client_open(&client, &daemon_under_test) ||
      !report(client.session, gemmd_cuda_alloc(client.session, 0, 0, BYTES, &memory)))
    return 1;
  enum { ROW = SIZE * 2, WIDE = ROW + 64, FAR = BYTES / 2 }; /* so far that both copies have room */
  uint8_t *own = gemmd_cuda_address(memory), *w = gemmd_alloc(client.session, SIZE * WIDE);
  uint16_t *x = (uint16_t *)client.x;
  for (int i = 0; i < SIZE * WIDE / 2; i++)
    ((uint16_t *)w)[i] = (uint16_t)(0x3000 + i * 2654435761u % 0x0c00); /* f16 of 1/8 and more */
  for (int i = 0; i < ROWS * SIZE; i++)
    x[i] = (uint16_t)(0x3800 + i % 512);
  const struct { size_t at, stride; } places[] = {{0, ROW}, {FAR, ROW}, {FAR + 16, ROW}, {FAR, WIDE}};
  bool good = gpu_copy_in(own, w, SIZE * WIDE) && gpu_copy_in(own + FAR, w, SIZE * WIDE);
  for (size_t i = 0; good && i < sizeof places / sizeof *places; i++) {
    gemmd_product product = product_from(&client, x, NULL);
    product.x_type = GEMMD_F16;
    gemmd_tensor tensor = {.data = w, .n = SIZE, .k = SIZE, .stride = places[i].stride};
    good = (places[i].at % 256 == 0 || gpu_copy_in(own + places[i].at, w, SIZE * WIDE)) &&
           report(client.session, gemmd_tensors_matmul(client.session, &tensor, &product));
    memcpy(client.expected, client.y, X_BYTES);
    product = product_from(&client, x, NULL);
    product.x_type = GEMMD_F16;
    tensor.data = own + places[i].at;
    good = good && report(client.session, gemmd_tensors_matmul(client.session, &tensor, &product)) && is_right(&client);
    if (places[i].at % 256 != 0)
      good = good && gpu_copy_in(own + FAR, w, SIZE * WIDE);
  }
  good = good && gemmd_cuda_free(memory) == GEMMD_OK;
  gemmd_disconnect(client.session);
  return good ? 0 : 1;
}

static void w_in_device_memory(void **state) {
  run_clients(1, run_tensors, NULL);
}

/* ---- clients that die */

struct death {
  _Atomic bool ready;
};

/* Products under way in legacy memory, one held for an event that will not come, and the end. */
static void die_at_work(struct death *death) {
  struct client client;
  gemmd_cuda_memory *memory;
  gemmd_cuda_event *event;
  uint64_t ticket;
  if (!client_open(&client, &daemon_under_test))
    _exit(1);
  uint8_t *own = gpu_alloc(BYTES);
  if (own == NULL || !report(client.session, gemmd_cuda_open(client.session, 0, own, &memory)) ||
      !report(client.session, gemmd_cuda_event_create(client.session, 0, &event)) ||
      !gpu_hold_and_copy(own, client.x, X_BYTES) ||
      !report(client.session, gemmd_cuda_event_record(event, gpu_stream())))
    _exit(1);
  gemmd_product product = product_from(&client, own, gemmd_cuda_event_get(event));
  product.y = own + Y_AT;
  for (int i = 0; i < 8; i++, product.after = NULL)
    if (!report(client.session, gemmd_submit(client.weight, &product, &ticket)))
      _exit(1);
  atomic_store(&death->ready, true);
  for (;;) {
    gemmd_result result;
    if (gemmd_wait_any(client.session, -1, &result) == GEMMD_OK)
      (void)gemmd_submit(client.weight, &product, &ticket);
  }
}

static int run_beside_deaths(int index, void *user) {
  struct client client;
  bool good = client_open(&client, &daemon_under_test);
  for (int turn = 0; good && turn < 100 * TURNS; turn++)
    good = serves(&client);
  gemmd_disconnect(client.session);
  return good ? 0 : 1;
}

static void clients_die_with_it_in_use(void **state) {
  gemmd_session *session = NULL;
  struct clients clients;
  if (!has_gpu)
    skip();
  assert_int_equal(gemmd_connect(&session, daemon_under_test.socket, NULL), GEMMD_OK);
  gemmd_device_info before = device_info(session);
  clients_start(&clients, 1, run_beside_deaths, NULL);
  for (int i = 0; i < 3; i++) {
    struct death *death = clients_share(sizeof *death);
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
      die_at_work(death);
    while (!atomic_load(&death->ready) && waitpid(pid, &status, WNOHANG) == 0)
      continue;
    assert_true(atomic_load(&death->ready));
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
  }
  clients_wait(&clients);
  assert_int_equal(device_info(session).restarts, before.restarts);
  gemmd_disconnect(session);
}

/* ---- refusals, with and without a GPU */

static void expect_refusal(gemmd_session *session, int status, int expected, const char *text) {
  assert_int_equal(status, expected);
  if (strstr(gemmd_error(session), text) == NULL)
    fail_msg("\"%s\" in place of \"... %s\"", gemmd_error(session), text);
}

static void handles_that_are_none(void **state) {
  gemmd_session *session = NULL;
  gemmd_memory *memory;
  gemmd_event *event;
  uint8_t junk[64], place[4096];
  int refused = has_gpu ? GEMMD_INVALID : GEMMD_UNSUPPORTED;
  memset(junk, 0x5a, sizeof junk);
  assert_int_equal(gemmd_connect(&session, daemon_under_test.socket, NULL), GEMMD_OK);
  expect_refusal(session, gemmd_memory_open_ipc(session, 0, junk, place, sizeof place, &memory), refused,
                 has_gpu ? "cannot be opened" : "the cpu backend has no CUDA IPC");
  assert_null(memory);
  expect_refusal(session, gemmd_event_open(session, 0, junk, &event), refused,
                 has_gpu ? "cannot be opened" : "the cpu backend has no CUDA IPC");
  assert_null(event);
  expect_refusal(session, gemmd_event_open(session, 7, junk, &event), GEMMD_INVALID, "device must be 0");
  expect_refusal(session, gemmd_memory_open_ipc(session, 7, junk, place, sizeof place, &memory), GEMMD_INVALID,
                 "device must be 0");
  expect_refusal(session, gemmd_memory_open_ipc(session, 0, junk, place, 0, &memory), GEMMD_INVALID,
                 "bytes must be 1..");
  expect_refusal(session, gemmd_memory_open_ipc(session, 0, junk, NULL, 4096, &memory), GEMMD_INVALID, "address");
  assert_int_equal(gemmd_event_close(NULL), GEMMD_OK);
  gemmd_disconnect(session);
  session = NULL;
  assert_int_equal(gemmd_connect(&session, strict.socket, NULL), GEMMD_OK);
  expect_refusal(session, gemmd_memory_open_ipc(session, 0, junk, place, sizeof place, &memory), GEMMD_PERMISSION,
                 "ipc_users");
  assert_null(memory);
  gemmd_disconnect(session);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products_begin_behind_events),
      cmocka_unit_test(an_event_that_never_comes_ends_in_time),
      cmocka_unit_test(the_worker_is_killed),
      cmocka_unit_test(memory_by_legacy_handles),
      cmocka_unit_test(legacy_handles_are_for_whom_the_option_names),
      cmocka_unit_test(w_in_device_memory),
      cmocka_unit_test(clients_die_with_it_in_use),
      cmocka_unit_test(handles_that_are_none),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
