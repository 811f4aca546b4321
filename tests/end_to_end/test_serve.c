/* Client processes get right products from the real daemon: every format, type and scale mode, from memory that they
 * share with it. */
#include "client/gemmclient.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/layers.h"
#include "tests/support/daemon/product.h"
#include "tests/support/daemon/status.h"
#include "tests/support/reference/oracle.h"
#include "tests/support/system/nap.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static const enum gemm_type real_types[] = {GEMM_F32, GEMM_F16, GEMM_BF16};
static const enum gemm_type all_types[] = {GEMM_F32, GEMM_F16, GEMM_BF16, GEMM_INT8, GEMM_E4M3, GEMM_S32};

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
  static const int64_t rows[] = {1, 2, 7, 33};
  gemmd_session *session = daemon_join(&layers.daemon, NULL);
  bool good = true;
  for (int i = 0; good && i < layers.count; i++) {
    int number = (i + index * 3) % layers.count;
    gemmd_weight *handle;
    good = gemmd_weight_open(session, layers_name(number), &handle) == GEMMD_OK;
    if (!good)
      fprintf(stderr, "open: %s\n", gemmd_error(session));
    for (int j = 0; good && j < COUNT(rows); j++)
      good = all_products(session, handle, &layers.weights[number], rows[(j + index) % COUNT(rows)],
                          (uint64_t)(index * 100000 + i * 1000 + j * 50));
    if (good)
      gemmd_weight_close(handle);
  }
  gemmd_disconnect(session);
  return good ? 0 : 1;
}

static void several_processes_all_formats(void **state) {
  clients_run(4, client_of_all_weights, NULL);
}

enum { IN_FLIGHT = 24 };

/* Many in flight at once, for several weights, taken as they finish. */
static int client_of_many(int index, void *user) {
  gemmd_options options = {.entries = 32};
  gemmd_session *session = NULL;
  gemmd_weight *handles[LAYERS];
  struct product products[IN_FLIGHT];
  bool good = gemmd_connect(&session, layers.daemon.socket, &options) == GEMMD_OK;
  for (int i = 0; good && i < layers.count; i++)
    good = gemmd_weight_open(session, layers_name(i), &handles[i]) == GEMMD_OK;
  for (int round = 0; good && round < 6; round++) {
    for (int i = 0; good && i < IN_FLIGHT; i++) {
      int number = (i + round) % layers.count;
      bool bf16 = layers_shapes[number].format == GEMM_FORMAT_BF16;
      struct product_request request = {.weight = &layers.weights[number],
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
  clients_run(3, client_of_many, NULL);
}

/* As a program with an event loop does it: it sleeps in poll, never in the library. */
static void an_event_loop(void **state) {
  gemmd_session *session = daemon_join(&layers.daemon, NULL);
  gemmd_weight *handle;
  expect_ok(session, gemmd_weight_open(session, layers_name(2), &handle));
  struct pollfd loop = {.fd = gemmd_fd(session), .events = POLLIN};
  for (int round = 0; round < 50; round++) {
    struct product products[3];
    int open = COUNT(products);
    for (int i = 0; i < open; i++) {
      struct product_request request = {.weight = &layers.weights[2],
                                        .m = 1 + i * 4,
                                        .x_type = GEMM_F32,
                                        .y_type = GEMM_F32,
                                        .seed = (uint64_t)round};
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
  gemmd_session *session = daemon_join(&layers.daemon, NULL);
  gemmd_weight *handle;
  struct product product;
  struct product_request request = {
      .weight = &layers.weights[5], .m = 9, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 4711};
  bool good = gemmd_weight_open(session, layers_name(5), &handle) == GEMMD_OK &&
              product_make(&product, session, &request) && gemmd_matmul(handle, &product.product) == GEMMD_OK;
  if (good) {
    memcpy(shared + index * 9 * 200, product.product.y, 9 * 200 * sizeof *shared);
    product_free(&product, session);
  }
  gemmd_disconnect(session);
  return good ? 0 : 1;
}

static void the_same_bits_for_everybody(void **state) {
  float *shared = clients_share(2 * 9 * 200 * sizeof *shared);
  clients_run(2, client_of_bits, shared);
  assert_memory_equal(shared, shared + 9 * 200, 9 * 200 * sizeof *shared);
}

/* The answer to the load is there while its progress is reported. */
struct reported {
  gemmd_session *session, *other;
  gemmd_weight *weight;
  bool right;
};

static void compute_meanwhile(void *user, uint64_t done, uint64_t total) {
  struct product_request request = {
      .weight = &layers.weights[2], .m = 3, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 2};
  struct reported *reported = user;
  gemmd_weight_info info;
  int status;
  do {
    nap_shortly();
    status = gemmd_weight_stat(reported->other, "meanwhile", &info);
  } while (status == GEMMD_NOT_FOUND);
  assert_int_equal(status, GEMMD_OK);
  reported->right =
      product_run(reported->session, reported->weight, &request) && gemmd_dispatch(reported->session, 0) == GEMMD_OK;
}

static void products_during_a_load(void **state) {
  struct reported reported = {.session = daemon_join(&layers.daemon, NULL), .other = daemon_join(&layers.daemon, NULL)};
  expect_ok(reported.session, gemmd_weight_open(reported.session, layers_name(2), &reported.weight));
  gemmd_load request = {.name = "meanwhile",
                        .tensor = layers_name(0),
                        .format = (enum gemmd_format)layers_shapes[0].format,
                        .device = -1,
                        .progress = compute_meanwhile,
                        .user = &reported};
  expect_ok(reported.session, gemmd_weight_load_file(reported.session, layers_model(), &request, NULL));
  assert_true(reported.right);
  expect_ok(reported.session, gemmd_weight_unload(reported.session, "meanwhile", NULL));
  gemmd_disconnect(reported.other);
  gemmd_disconnect(reported.session);
}

static void status_counts(void **state) {
  gemmd_session *session = daemon_join(&layers.daemon, NULL);
  gemmd_daemon_info before, after;
  gemmd_weight *handle;
  expect_ok(session, gemmd_daemon_status(session, &before));
  expect_ok(session, gemmd_weight_open(session, layers_name(2), &handle));
  struct product_request request = {
      .weight = &layers.weights[2], .m = 5, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 1};
  for (int i = 0; i < 3; i++)
    assert_true(product_run(session, handle, &request));
  expect_ok(session, gemmd_daemon_status(session, &after));
  assert_int_equal(after.pid, layers.daemon.pid);
  assert_int_equal(after.names, layers.count);
  assert_int_equal(after.weights, layers.count);
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

/* Whether the process maps a file whose path contains `text`. */
static bool maps(pid_t pid, const char *text) {
  char path[64], line[512];
  bool seen = false;
  snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  while (fgets(line, sizeof line, file) != NULL)
    seen |= strstr(line, text) != NULL;
  fclose(file);
  return seen;
}

/* Its worker does: what can crash there is not what remembers. Who has a CUDA context maps the device of unified
 * memory; NVML, which tells the supervisor a device's load, opens that device and maps nothing of it. */
static void the_supervisor_starts_no_cuda(void **state) {
  gemmd_session *session = daemon_join(&layers.daemon, NULL);
  gemmd_daemon_info info;
  assert_true(maps(layers.daemon.pid, "libc.so"));
  assert_false(maps(layers.daemon.pid, "libcublas"));
  assert_false(maps(layers.daemon.pid, "/dev/nvidia-uvm"));
  expect_ok(session, gemmd_daemon_status(session, &info));
  assert_int_equal(maps((pid_t)info.device[0].pid, "/dev/nvidia-uvm"), daemon_on_cuda());
  gemmd_disconnect(session);
}

/* Of a file in memory that the process maps: bytes, where its number is the one given or that is 0, which then becomes
 * that of the first one. */
static uint64_t mapped(pid_t pid, const char *name, unsigned long *number) {
  char path[64], line[512];
  uint64_t bytes = 0;
  snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  while (fgets(line, sizeof line, file) != NULL) {
    unsigned long begin, finish, of;
    if (strstr(line, name) == NULL || sscanf(line, "%lx-%lx %*s %*s %*s %lu", &begin, &finish, &of) != 3)
      continue;
    *number = *number == 0 ? of : *number;
    bytes += of == *number ? finish - begin : 0;
  }
  fclose(file);
  return bytes;
}

/* Of users' data it has descriptors: of an arena it maps the rings, of weights nothing. */
static void the_supervisor_maps_no_data(void **state) {
  enum { TENSOR_BYTES = 16 << 20 };
  const gemmd_options options = {.arena_bytes = TENSOR_BYTES};
  gemmd_session *session = daemon_join(&layers.daemon, &options);
  gemmd_daemon_info info;
  gemmd_weight *handle;
  unsigned long arena = 0, weights = 0;
  expect_ok(session, gemmd_weight_open(session, layers_name(2), &handle));
  struct product_request request = {
      .weight = &layers.weights[2], .m = 5, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 1};
  assert_true(product_run(session, handle, &request));
  expect_ok(session, gemmd_daemon_status(session, &info));
  pid_t worker = (pid_t)info.device[0].pid;
  uint64_t all = mapped(getpid(), "memfd:gemmd-arena", &arena);
  assert_true(all > TENSOR_BYTES);
  assert_int_equal(mapped(worker, "memfd:gemmd-arena", &arena), all);
  uint64_t rings = mapped(layers.daemon.pid, "memfd:gemmd-arena", &arena);
  assert_true(rings > 0 && rings <= all - TENSOR_BYTES);
  assert_int_equal(mapped(worker, "memfd:gemmd-weights", &weights) > 0, !daemon_on_cuda());
  weights = 0;
  assert_int_equal(mapped(layers.daemon.pid, "memfd:gemmd-weights", &weights), 0);
  gemmd_disconnect(session);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(several_processes_all_formats),
      cmocka_unit_test(several_processes_many_in_flight),
      cmocka_unit_test(an_event_loop),
      cmocka_unit_test(the_same_bits_for_everybody),
      cmocka_unit_test(products_during_a_load),
      cmocka_unit_test(status_counts),
      cmocka_unit_test(the_supervisor_starts_no_cuda),
      cmocka_unit_test(the_supervisor_maps_no_data),
  };
  return cmocka_run_group_tests(tests, layers_start, layers_stop);
}
