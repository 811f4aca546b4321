/* Client processes get right products from the real daemon: every format, type and scale mode, from memory that they
 * share with it. */
#include "client/gemmclient.h"
#include "tests/support/checkpoint.h"
#include "tests/support/daemon.h"
#include "tests/support/hold.h"
#include "tests/support/nap.h"
#include "tests/support/oracle.h"
#include "tests/support/product.h"
#include "tests/support/status.h"

#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* Sizes on no boundary, and on some. */
static const struct gemm_weight shapes[] = {
    {1, 1, GEMM_FORMAT_INT8, GEMM_SCALE_ONE},      {33, 77, GEMM_FORMAT_INT8, GEMM_SCALE_ONE},
    {96, 200, GEMM_FORMAT_INT8, GEMM_SCALE_ROW},   {64, 130, GEMM_FORMAT_FP8, GEMM_SCALE_ROW},
    {40, 48, GEMM_FORMAT_FP8, GEMM_SCALE_ONE},     {200, 300, GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK},
    {48, 260, GEMM_FORMAT_INT2, GEMM_SCALE_GROUP}, {17, 132, GEMM_FORMAT_INT2, GEMM_SCALE_ROW},
    {31, 65, GEMM_FORMAT_F16, GEMM_SCALE_NONE},    {65, 31, GEMM_FORMAT_BF16, GEMM_SCALE_NONE},
};
enum { WEIGHTS = COUNT(shapes) };

static const enum gemm_type real_types[] = {GEMM_F32, GEMM_F16, GEMM_BF16};
static const enum gemm_type all_types[] = {GEMM_F32, GEMM_F16, GEMM_BF16, GEMM_INT8, GEMM_E4M3, GEMM_S32};

static struct daemon daemon_under_test;
static struct oracle_weight weights[WEIGHTS]; /* as in the file; client processes inherit them */

static const char *weight_name(int index) {
  static char names[4][32];
  static unsigned next;
  char *name = names[next++ % 4];
  snprintf(name, sizeof names[0], "layer.%d", index);
  return name;
}

static int load(gemmd_session *session, const char *tensor, const char *name, enum gemm_format format) {
  gemmd_load request = {.name = name, .tensor = tensor, .format = (enum gemmd_format)format, .device = -1};
  return gemmd_weight_load_file(session, daemon_path(&daemon_under_test, "model.safetensors"), &request, NULL);
}

static int start(void **state) {
  (void)state;
  static struct checkpoint checkpoint;
  daemon_make(&daemon_under_test, "");
  for (int i = 0; i < WEIGHTS; i++) {
    oracle_weight_make(&weights[i], &shapes[i], (uint64_t)i + 1);
    checkpoint_add_weight(&checkpoint, weight_name(i), &weights[i]);
  }
  checkpoint_add_values(&checkpoint, "real", &weights[2]);
  checkpoint_write(&checkpoint, daemon_path(&daemon_under_test, "model.safetensors"));
  checkpoint_free(&checkpoint);
  daemon_start(&daemon_under_test);
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  for (int i = 0; i < WEIGHTS; i++)
    expect_ok(session, load(session, weight_name(i), weight_name(i), shapes[i].format));
  gemmd_disconnect(session);
  return 0;
}

static int stop(void **state) {
  (void)state;
  daemon_stop(&daemon_under_test);
  daemon_remove(&daemon_under_test);
  for (int i = 0; i < WEIGHTS; i++)
    oracle_weight_free(&weights[i]);
  return 0;
}

/* ---- what was loaded */

static void weights_are_what_the_file_says(void **state) {
  (void)state;
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  for (int i = 0; i < WEIGHTS; i++) {
    gemmd_weight_info info;
    expect_ok(session, gemmd_weight_stat(session, weight_name(i), &info));
    assert_string_equal(info.name, weight_name(i));
    assert_true(info.n == shapes[i].n && info.k == shapes[i].k);
    assert_int_equal(info.format, shapes[i].format);
    assert_int_equal(info.scale, shapes[i].scale);
    assert_int_equal(info.references, 1);
    assert_int_equal(info.devices, 1);
    assert_int_equal(info.owner, getuid());
    assert_true(info.bytes * 8 >= (uint64_t)(shapes[i].n * shapes[i].k) * (gemm_is_int2(shapes[i].format) ? 2 : 8));
  }
  gemmd_disconnect(session);
}

static bool append_name(void *user, const gemmd_weight_info *info) {
  strcat(user, info->name);
  strcat(user, " ");
  return strlen(user) < 200;
}

static void weights_are_listed_in_order(void **state) {
  (void)state;
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  char names[512] = "";
  expect_ok(session, gemmd_weight_list(session, NULL, append_name, names));
  assert_string_equal(names, "layer.0 layer.1 layer.2 layer.3 layer.4 layer.5 layer.6 layer.7 layer.8 layer.9 ");
  names[0] = '\0';
  expect_ok(session, gemmd_weight_list(session, "*.[57]", append_name, names));
  assert_string_equal(names, "layer.5 layer.7 ");
  gemmd_disconnect(session);
}

/* ---- products */

/* Every pair of types that the weight takes; bias and strides in turn. Returns false at the first wrong one. */
static bool all_products(gemmd_session *session, gemmd_weight *handle, const struct oracle_weight *weight, int64_t m,
                         uint64_t seed) {
  enum gemm_format format = weight->shape.format;
  for (int x = 0; x < COUNT(all_types); x++)
    for (int y = 0; y < COUNT(all_types); y++) {
      if (!gemm_takes_y(format, all_types[x], all_types[y]))
        continue;
      struct product_request request = {
          .weight = weight, .m = m, .x_type = all_types[x], .y_type = all_types[y], .seed = ++seed};
      if (seed % 2 == 0 && all_types[y] != GEMM_S32)
        request.bias_type = real_types[seed / 2 % 3];
      if (seed % 3 == 0) {
        request.x_extra = 5;
        request.y_extra = 3;
      }
      if (!product_run(session, handle, &request))
        return false;
    }
  return true;
}

/* Each client has rows and an order of its own, so that the daemon serves different weights at the same time. */
static int client_of_all_weights(int index, void *user) {
  (void)user;
  static const int64_t rows[] = {1, 2, 7, 33};
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  bool good = true;
  for (int i = 0; good && i < WEIGHTS; i++) {
    int number = (i + index * 3) % WEIGHTS;
    gemmd_weight *handle;
    good = gemmd_weight_open(session, weight_name(number), &handle) == GEMMD_OK;
    if (!good)
      fprintf(stderr, "open: %s\n", gemmd_error(session));
    for (int j = 0; good && j < COUNT(rows); j++)
      good = all_products(session, handle, &weights[number], rows[(j + index) % COUNT(rows)],
                          (uint64_t)(index * 100000 + i * 1000 + j * 50));
    if (good)
      gemmd_weight_close(handle);
  }
  gemmd_disconnect(session);
  return good ? 0 : 1;
}

static void several_processes_all_formats(void **state) {
  (void)state;
  struct clients clients;
  clients_start(&clients, 4, client_of_all_weights, NULL);
  clients_wait(&clients);
}

enum { IN_FLIGHT = 24 };

/* Many in flight at once, for several weights, taken as they finish. */
static int client_of_many(int index, void *user) {
  (void)user;
  gemmd_options options = {.entries = 32};
  gemmd_session *session = NULL;
  gemmd_weight *handles[WEIGHTS];
  struct product products[IN_FLIGHT];
  bool good = gemmd_connect(&session, daemon_under_test.socket, &options) == GEMMD_OK;
  for (int i = 0; good && i < WEIGHTS; i++)
    good = gemmd_weight_open(session, weight_name(i), &handles[i]) == GEMMD_OK;
  for (int round = 0; good && round < 6; round++) {
    for (int i = 0; good && i < IN_FLIGHT; i++) {
      int number = (i + round) % WEIGHTS;
      bool bf16 = shapes[number].format == GEMM_FORMAT_BF16;
      struct product_request request = {.weight = &weights[number],
                                        .m = 1 + (i * 5 + index) % 19,
                                        .x_type = bf16 ? GEMM_BF16 : GEMM_F16,
                                        .y_type = GEMM_F32,
                                        .seed = (uint64_t)(index * 1000 + round * 100 + i)};
      good = product_make(&products[i], session, &request) &&
             gemmd_submit(handles[number], &products[i].product, &products[i].ticket) == GEMMD_OK;
    }
    for (int taken = 0; good && taken < IN_FLIGHT; taken++) {
      gemmd_result result;
      good = gemmd_wait_any(session, -1, &result) == GEMMD_OK && result.status == GEMMD_OK;
      int found = 0;
      while (good && found < IN_FLIGHT && products[found].ticket != result.ticket)
        found++;
      good = good && found < IN_FLIGHT && product_right(&products[found]);
      if (good)
        product_free(&products[found], session);
    }
    gemmd_result none;
    good = good && gemmd_wait_any(session, 0, &none) == GEMMD_NOT_FOUND;
  }
  if (!good)
    fprintf(stderr, "client %d: %s\n", index, gemmd_error(session));
  gemmd_disconnect(session);
  return good ? 0 : 1;
}

static void several_processes_many_in_flight(void **state) {
  (void)state;
  struct clients clients;
  clients_start(&clients, 3, client_of_many, NULL);
  clients_wait(&clients);
}

/* As a program with an event loop does it: it sleeps in poll, never in the library. */
static void an_event_loop(void **state) {
  (void)state;
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  gemmd_weight *handle;
  expect_ok(session, gemmd_weight_open(session, weight_name(2), &handle));
  struct pollfd loop = {.fd = gemmd_fd(session), .events = POLLIN};
  for (int round = 0; round < 50; round++) {
    struct product products[3];
    int open = COUNT(products);
    for (int i = 0; i < open; i++) {
      struct product_request request = {
          .weight = &weights[2], .m = 1 + i * 4, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = (uint64_t)round};
      assert_true(product_make(&products[i], session, &request));
      expect_ok(session, gemmd_submit(handle, &products[i].product, &products[i].ticket));
    }
    while (open > 0) {
      gemmd_result result;
      assert_int_equal(poll(&loop, 1, 60000), 1);
      expect_ok(session, gemmd_dispatch(session, 0));
      while (gemmd_wait_any(session, 0, &result) == GEMMD_OK) {
        assert_int_equal(result.status, GEMMD_OK);
        open--;
      }
    }
    for (int i = 0; i < COUNT(products); i++) {
      assert_true(product_right(&products[i]));
      product_free(&products[i], session);
    }
  }
  gemmd_disconnect(session);
}

/* The same bits for the same request, from whichever process. */
static int client_of_bits(int index, void *user) {
  float *shared = user;
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  gemmd_weight *handle;
  struct product product;
  struct product_request request = {
      .weight = &weights[5], .m = 9, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 4711};
  bool good = gemmd_weight_open(session, weight_name(5), &handle) == GEMMD_OK &&
              product_make(&product, session, &request) && gemmd_matmul(handle, &product.product) == GEMMD_OK;
  if (good) {
    memcpy(shared + index * 9 * 200, product.product.y, 9 * 200 * sizeof *shared);
    product_free(&product, session);
  }
  gemmd_disconnect(session);
  return good ? 0 : 1;
}

static void the_same_bits_for_everybody(void **state) {
  (void)state;
  struct clients clients;
  float *shared = clients_share(2 * 9 * 200 * sizeof *shared);
  clients_start(&clients, 2, client_of_bits, shared);
  clients_wait(&clients);
  assert_memory_equal(shared, shared + 9 * 200, 9 * 200 * sizeof *shared);
}

/* ---- names and content */

static void weights_and_bytes(gemmd_session *session, uint32_t *count, uint64_t *bytes) {
  gemmd_daemon_info info;
  expect_ok(session, gemmd_daemon_status(session, &info));
  *count = info.weights;
  *bytes = info.weight_bytes;
}

static void equal_content_is_stored_once(void **state) {
  (void)state;
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  gemmd_weight_info info;
  uint32_t count, count_after;
  uint64_t bytes, bytes_after, freed = 99;
  weights_and_bytes(session, &count, &bytes);
  gemmd_load request = {.name = "again", .tensor = weight_name(3), .format = GEMMD_FORMAT_FP8, .device = -1};
  expect_ok(session,
            gemmd_weight_load_file(session, daemon_path(&daemon_under_test, "model.safetensors"), &request, &info));
  assert_true(info.shared);
  assert_int_equal(info.references, 2);
  weights_and_bytes(session, &count_after, &bytes_after);
  assert_int_equal(count_after, count);
  assert_true(bytes_after == bytes);
  expect_ok(session, gemmd_weight_unload(session, "again", &freed));
  assert_true(freed == 0);
  expect_ok(session, gemmd_weight_stat(session, weight_name(3), &info));
  assert_int_equal(info.references, 1);
  gemmd_disconnect(session);
}

/* Real numbers whose absmax quantization is exact become the stored codes again, bit for bit, hence the same content.
 */
static void quantized_while_loading(void **state) {
  (void)state;
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  gemmd_weight *handle;
  expect_ok(session, load(session, "real", "quantized", GEMM_FORMAT_INT8));
  expect_ok(session, gemmd_weight_open(session, "quantized", &handle));
  assert_int_equal(gemmd_weight_get_info(handle)->scale, GEMMD_SCALE_ROW);
  assert_int_equal(gemmd_weight_get_info(handle)->format, GEMMD_FORMAT_INT8);
  /* Quantized once more, the values differ from the stored ones by half a step at most: an independent bound. */
  enum { M = 4 };
  const struct oracle_weight *weight = &weights[2];
  struct product_request request = {.weight = weight, .m = M, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 5};
  struct product product;
  assert_true(product_make(&product, session, &request));
  float *x = (float *)product.product.x;
  memset(x, 0, M * 200 * sizeof *x);
  for (int row = 0; row < M; row++)
    x[row * 200 + row * 3] = 1; /* y is then a column of W, exactly as stored */
  expect_ok(session, gemmd_matmul(handle, &product.product));
  for (int row = 0; row < M; row++)
    for (int n = 0; n < 96; n++) {
      double largest = 0, stored = weight->values[n * 200 + row * 3];
      for (int k = 0; k < 200; k++)
        largest = fmax(largest, fabs(weight->values[n * 200 + k]));
      assert_true(fabs((double)((float *)product.product.y)[row * 96 + n] - stored) <= largest / 127 / 2 * 1.0001);
    }
  product_free(&product, session);
  gemmd_weight_close(handle);
  expect_ok(session, gemmd_weight_unload(session, "quantized", NULL));
  gemmd_disconnect(session);
}

static void an_open_weight_outlives_its_name(void **state) {
  (void)state;
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  gemmd_weight *old;
  uint64_t freed = 1;
  uint32_t count, count_after;
  uint64_t bytes, bytes_after;
  expect_ok(session, load(session, "real", "moving", GEMM_FORMAT_F16));
  weights_and_bytes(session, &count, &bytes);
  expect_ok(session, gemmd_weight_open(session, "moving", &old));
  gemmd_load other = {
      .name = "moving", .tensor = weight_name(8), .format = GEMMD_FORMAT_F16, .device = -1, .replace = true};
  expect_ok(session,
            gemmd_weight_load_file(session, daemon_path(&daemon_under_test, "model.safetensors"), &other, NULL));
  assert_true(gemmd_weight_get_info(old)->n == 96);
  struct product product;
  struct product_request request = {.weight = &weights[2], .m = 2, .x_type = GEMM_F16, .y_type = GEMM_F32, .seed = 1};
  assert_true(product_make(&product, session, &request));
  expect_ok(session, gemmd_matmul(old, &product.product)); /* still 96 x 200 */
  product_free(&product, session);
  gemmd_weight_close(old);
  weights_and_bytes(session, &count_after, &bytes_after);
  assert_int_equal(count_after, count - 1); /* the old content went with its last handle */
  assert_true(bytes_after < bytes);
  expect_ok(session, gemmd_weight_unload(session, "moving", &freed));
  assert_true(freed == 0); /* layer.8 has it */
  gemmd_disconnect(session);
}

/* Its answer comes when nobody waits for it any more; the handle goes back by itself. */
static void a_weight_that_is_not_opened_in_time(void **state) {
  (void)state;
  gemmd_session *session = daemon_join(&daemon_under_test, &(gemmd_options){.timeout_ms = 500});
  gemmd_session *patient = daemon_join(&daemon_under_test, NULL);
  gemmd_weight *handle;
  uint64_t freed = 0, bytes, bytes_after;
  uint32_t count, count_after;
  weights_and_bytes(patient, &count, &bytes);
  expect_ok(patient, load(patient, "real", "late", GEMM_FORMAT_F16));
  pid_t worker = (pid_t)device_info(patient).pid;
  hold_process(worker);
  int status = gemmd_weight_open(session, "late", &handle);
  assert_int_equal(kill(worker, SIGCONT), 0);
  assert_int_equal(status, GEMMD_TIMEOUT);
  assert_null(handle);
  /* The first answer comes behind the late one, the second behind that of the handle given back. */
  for (int answers = 0; answers < 2; answers += status == GEMMD_OK)
    if ((status = gemmd_ping(session, NULL)) != GEMMD_TIMEOUT)
      expect_ok(session, status);
  expect_ok(patient, gemmd_weight_unload(patient, "late", &freed));
  assert_true(freed > 0);
  weights_and_bytes(patient, &count_after, &bytes_after);
  assert_int_equal(count_after, count);
  assert_true(bytes_after == bytes);
  expect_ok(session, gemmd_weight_open(session, weight_name(2), &handle));
  gemmd_weight_close(handle);
  gemmd_disconnect(patient);
  gemmd_disconnect(session);
}

/* ---- sessions that end badly */

/* Submits and never looks again. */
static int client_that_stalls(int index, void *user) {
  _Atomic int *ready = user;
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  gemmd_weight *handle;
  struct product product;
  struct product_request request = {
      .weight = &weights[5], .m = 64, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = (uint64_t)index};
  if (gemmd_weight_open(session, weight_name(5), &handle) != GEMMD_OK || !product_make(&product, session, &request))
    return 1;
  for (uint64_t ticket; gemmd_submit(handle, &product.product, &ticket) == GEMMD_OK;)
    ;
  atomic_fetch_add(ready, 1);
  for (;;)
    pause();
}

static void killed_clients_leave_nothing_behind(void **state) {
  (void)state;
  enum { VICTIMS = 3 };
  struct clients clients;
  gemmd_daemon_info before, info;
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  _Atomic int *ready = clients_share(sizeof *ready);
  expect_ok(session, gemmd_daemon_status(session, &before));
  clients_start(&clients, VICTIMS, client_that_stalls, (void *)ready);
  for (; atomic_load(ready) < VICTIMS; nap_shortly())
    expect_ok(session, gemmd_ping(session, NULL));
  expect_ok(session, gemmd_daemon_status(session, &info));
  assert_int_equal(info.sessions, before.sessions + VICTIMS);
  assert_true(info.arena_bytes > before.arena_bytes);
  for (int i = 0; i < VICTIMS; i++) {
    assert_int_equal(kill(clients.pids[i], SIGKILL), 0);
    assert_int_equal(waitpid(clients.pids[i], NULL, 0), clients.pids[i]);
  }
  do {
    nap_shortly();
    expect_ok(session, gemmd_daemon_status(session, &info));
  } while (info.sessions > before.sessions || info.arena_bytes > before.arena_bytes); /* ends unless something leaks */
  gemmd_weight *handle;
  struct product_request request = {.weight = &weights[5], .m = 3, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 8};
  expect_ok(session, gemmd_weight_open(session, weight_name(5), &handle));
  assert_true(product_run(session, handle, &request));
  gemmd_disconnect(session);
}

static void status_counts(void **state) {
  (void)state;
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  gemmd_daemon_info before, after;
  gemmd_weight *handle;
  expect_ok(session, gemmd_daemon_status(session, &before));
  expect_ok(session, gemmd_weight_open(session, weight_name(2), &handle));
  struct product_request request = {.weight = &weights[2], .m = 5, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 1};
  for (int i = 0; i < 3; i++)
    assert_true(product_run(session, handle, &request));
  expect_ok(session, gemmd_daemon_status(session, &after));
  assert_int_equal(after.pid, daemon_under_test.pid);
  assert_int_equal(after.names, WEIGHTS);
  assert_int_equal(after.weights, WEIGHTS);
  assert_true(after.devices >= 1);
  assert_string_equal(after.device[0].state, "ready");
  assert_int_equal(after.device[0].restarts, 0);
  assert_true(after.device[0].requests - before.device[0].requests == 3);
  assert_true(after.device[0].rows - before.device[0].rows == 15);
  assert_true(after.device[0].device_ns > before.device[0].device_ns);
  assert_true(after.device[0].memory_used <= after.device[0].memory_slabs);
  assert_true(after.weight_bytes <= after.device[0].memory_used);
  gemmd_disconnect(session);
}

/* The answer to the load is there while its progress is reported. */
struct reported {
  gemmd_session *session, *other;
  gemmd_weight *weight;
  bool right;
};

static void compute_meanwhile(void *user, uint64_t done, uint64_t total) {
  struct product_request request = {.weight = &weights[2], .m = 3, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 2};
  struct reported *reported = user;
  gemmd_weight_info info;
  int status;
  (void)done;
  (void)total;
  do {
    nap_shortly();
    status = gemmd_weight_stat(reported->other, "meanwhile", &info);
  } while (status == GEMMD_NOT_FOUND);
  assert_int_equal(status, GEMMD_OK);
  reported->right =
      product_run(reported->session, reported->weight, &request) && gemmd_dispatch(reported->session, 0) == GEMMD_OK;
}

static void products_during_a_load(void **state) {
  (void)state;
  struct reported reported = {.session = daemon_join(&daemon_under_test, NULL),
                              .other = daemon_join(&daemon_under_test, NULL)};
  expect_ok(reported.session, gemmd_weight_open(reported.session, weight_name(2), &reported.weight));
  gemmd_load request = {.name = "meanwhile",
                        .tensor = weight_name(0),
                        .format = (enum gemmd_format)shapes[0].format,
                        .device = -1,
                        .progress = compute_meanwhile,
                        .user = &reported};
  expect_ok(
      reported.session,
      gemmd_weight_load_file(reported.session, daemon_path(&daemon_under_test, "model.safetensors"), &request, NULL));
  assert_true(reported.right);
  expect_ok(reported.session, gemmd_weight_unload(reported.session, "meanwhile", NULL));
  gemmd_disconnect(reported.other);
  gemmd_disconnect(reported.session);
}

/* A fork of this process gives back what it has of the session; that goes on. */
static void expect_right_after_a_fork(gemmd_session *session, gemmd_weight *weight) {
  struct product_request request = {.weight = &weights[2], .m = 3, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 2};
  int status;
  assert_true(product_run(session, weight, &request));
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    gemmd_disconnect(session);
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  assert_true(product_run(session, weight, &request));
  expect_ok(session, gemmd_ping(session, NULL));
}

static void a_child_lets_go_of_the_session(void **state) {
  (void)state;
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  gemmd_weight *handle;
  expect_ok(session, gemmd_weight_open(session, weight_name(2), &handle));
  expect_right_after_a_fork(session, handle);
  gemmd_disconnect(session);
}

/* ---- a daemon of its own */

/* What the service manager of this process would hear by. */
static int notify_open(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", daemon_path(&daemon_under_test, "manager"));
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  assert_true(fd >= 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
  assert_int_equal(setenv("NOTIFY_SOCKET", address.sun_path, 1), 0);
  return fd;
}

static void an_embedded_daemon(void **state) {
  (void)state;
  char said;
  int manager = notify_open();
  const char *build = getenv("GEMMD_BUILD");
  char program[512];
  snprintf(program, sizeof program, "%s/gemmd", build != NULL ? build : "build");
  assert_int_equal(setenv("GEMMD_BINARY", program, 1), 0);
  FILE *file = fopen(daemon_path(&daemon_under_test, "embedded.conf"), "w");
  assert_non_null(file);
  fprintf(file, "backend = cpu\nlog_level = error\n");
  assert_int_equal(fclose(file), 0);
  char address[256];
  snprintf(address, sizeof address, "embedded:%s", daemon_path(&daemon_under_test, "embedded.conf"));
  gemmd_session *session = NULL;
  gemmd_weight *handle;
  expect_ok(session, gemmd_connect(&session, address, NULL));
  expect_ok(session, load(session, weight_name(2), "own", GEMM_FORMAT_INT8));
  expect_ok(session, gemmd_weight_open(session, "own", &handle));
  expect_right_after_a_fork(session, handle);
  gemmd_disconnect(session);
  assert_int_equal(recv(manager, &said, 1, MSG_DONTWAIT), -1); /* as that it stops */
  assert_int_equal(unsetenv("NOTIFY_SOCKET"), 0);
  close(manager);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(weights_are_what_the_file_says),
      cmocka_unit_test(weights_are_listed_in_order),
      cmocka_unit_test(several_processes_all_formats),
      cmocka_unit_test(several_processes_many_in_flight),
      cmocka_unit_test(an_event_loop),
      cmocka_unit_test(the_same_bits_for_everybody),
      cmocka_unit_test(equal_content_is_stored_once),
      cmocka_unit_test(quantized_while_loading),
      cmocka_unit_test(an_open_weight_outlives_its_name),
      cmocka_unit_test(a_weight_that_is_not_opened_in_time),
      cmocka_unit_test(killed_clients_leave_nothing_behind),
      cmocka_unit_test(status_counts),
      cmocka_unit_test(products_during_a_load),
      cmocka_unit_test(a_child_lets_go_of_the_session),
      cmocka_unit_test(an_embedded_daemon),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
