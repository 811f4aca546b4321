/* Memory of the host that ends, in a control group of gemmd's own, under clients that compute and look at every
 * product: who is ended by the kernel, what a load or a product is told, that no weight is lost, and that gemmd goes on
 * when there is memory again. And one weight beyond 4 GiB. A table, as `make faults` prints. On the cpu backend, whose
 * devices are the host's memory. */
#include "client/gemmclient.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/product.h"
#include "tests/support/daemon/status.h"
#include "tests/support/reference/checkpoint.h"
#include "tests/support/system/cgroup.h"
#include "tests/support/system/nap.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
  CLIENTS = 2,
  LOADERS = 6, /* processes that load at a time */
  EACH = 4,    /* weights of each */
  WEIGHTS = LOADERS * EACH,
  N = 512,
  K = 8192, /* INT8: 4 MiB a weight */
  ROUNDS = 5
};
#define MIB ((uint64_t)1 << 20)

static const struct gemm_weight shape = {.n = N, .k = K, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW};
static struct oracle_weight values[2]; /* what is served; and what loads bring, another each */
static struct daemon daemon_under_test;
static struct cgroup group;
static gemmd_session *watcher;

/* In memory that all processes see. */
static struct scene {
  _Atomic bool stop;
  _Atomic uint64_t right, wrong, refused, lost;
  _Atomic int loaded[WEIGHTS]; /* what the load of each said; -1: not asked for */
  char why[128];               /* of a load that was refused, the last one's */
} * scene;

/* ---- clients */

static int compute(int index, void *user) {
  struct product product;
  struct product_request request = {
      .weight = &values[0], .m = 3, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = (uint64_t)index};
  gemmd_weight *handle;
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  if (gemmd_weight_open(session, "served", &handle) != GEMMD_OK || !product_make(&product, session, &request))
    return 1;
  while (!scene->stop) {
    memset(product.product.y, 0xfd, 3 * N * sizeof(float));
    int status = gemmd_matmul(handle, &product.product);
    if (status == GEMMD_OK)
      *(product_right(&product) ? &scene->right : &scene->wrong) += 1;
    else
      scene->refused++;
  }
  product_free(&product, session);
  gemmd_disconnect(session);
  return 0;
}

/* A safetensors file of one weight, which is that of all but for its first row. */
static int weight_file(int index) {
  char path[64];
  int8_t *codes = (int8_t *)values[1].canonical;
  snprintf(path, sizeof path, "/tmp/gemmd-starved-%ld.safetensors", (long)getpid());
  memset(codes, index + 1, K);
  checkpoint_write_one(path, "w", &values[1]);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  unlink(path);
  return fd;
}

static int load(int index, void *user) {
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  for (int i = index * EACH; i < (index + 1) * EACH; i++) {
    char name[16];
    snprintf(name, sizeof name, "w%d", i);
    gemmd_load request = {.name = name, .tensor = "w", .format = GEMMD_FORMAT_INT8, .device = -1, .replace = true};
    int fd = weight_file(i);
    scene->loaded[i] = gemmd_weight_load(session, fd, &request, NULL);
    if (scene->loaded[i] != GEMMD_OK)
      snprintf(scene->why, sizeof scene->why, "%s", gemmd_error(session));
    close(fd);
  }
  gemmd_disconnect(session);
  return 0;
}

/* A product of two tensors takes memory of the worker's own. */
static int multiply_tensors(int index, void *user) {
  enum { ROWS = 4096, LONG = 8192 };
  gemmd_options options = {.arena_bytes = (uint64_t)ROWS * LONG * 2 + 4 * MIB};
  gemmd_session *session = daemon_join(&daemon_under_test, &options);
  uint16_t *w = gemmd_alloc(session, (size_t)ROWS * LONG * 2), *x = gemmd_alloc(session, LONG * 2);
  float *y = gemmd_alloc(session, ROWS * sizeof *y);
  if (w == NULL || x == NULL || y == NULL)
    return 1;
  for (int i = 0; i < LONG; i++)
    x[i] = 0x3c00; /* ones, in f16 */
  for (size_t i = 0; i < (size_t)ROWS * LONG; i++)
    w[i] = 0x3c00;
  gemmd_tensor tensor = {.data = w, .n = ROWS, .k = LONG};
  gemmd_product product = {.m = 1, .x = x, .x_type = GEMMD_F16, .y = y, .y_type = GEMMD_F32};
  int status = gemmd_tensors_matmul(session, &tensor, &product);
  if (status == GEMMD_OK)
    scene->wrong += y[0] != LONG || y[ROWS - 1] != LONG;
  else
    scene->lost++;
  gemmd_disconnect(session);
  return status == GEMMD_OK || status == GEMMD_DEVICE_LOST || status == GEMMD_NOMEM ? 0 : 1;
}

/* ---- what is there behind a fault */

/* As gemmd serves it: ones times W are the sums of its rows. */
static void expect_weight(const char *name, int index) {
  gemmd_weight *handle;
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  float *x = gemmd_alloc(session, K * sizeof *x), *y = gemmd_alloc(session, N * sizeof *y);
  gemmd_product product = {.m = 1, .x = x, .x_type = GEMMD_F32, .y = y, .y_type = GEMMD_F32};
  for (int i = 0; i < K; i++)
    x[i] = 1;
  expect_ok(session, gemmd_weight_open(session, name, &handle));
  expect_ok(session, gemmd_matmul(handle, &product));
  const float *scales = (const float *)(const void *)(values[1].canonical + values[1].layout.scales_offset);
  double expected = (double)(index + 1) * K * (double)scales[0];
  assert_true((double)y[0] > 0.999 * expected && (double)y[0] < 1.001 * expected);
  gemmd_disconnect(session);
}

/* What was said to be loaded is there and right, and nothing else is. */
static int expect_loaded(void) {
  int there = 0;
  for (int i = 0; i < WEIGHTS; i++) {
    char name[16];
    gemmd_weight_info info;
    snprintf(name, sizeof name, "w%d", i);
    int status = gemmd_weight_stat(watcher, name, &info);
    assert_int_equal(status, scene->loaded[i] == GEMMD_OK ? GEMMD_OK : GEMMD_NOT_FOUND);
    if (status == GEMMD_OK)
      expect_weight(name, i);
    there += status == GEMMD_OK;
  }
  return there;
}

static void await_products(void) {
  uint64_t before = scene->right;
  while (scene->right < before + 10)
    nap_shortly();
}

static void unload_all(void) {
  for (int i = 0; i < WEIGHTS; i++) {
    char name[16];
    snprintf(name, sizeof name, "w%d", i);
    if (scene->loaded[i] == GEMMD_OK)
      expect_ok(watcher, gemmd_weight_unload(watcher, name, NULL));
    scene->loaded[i] = -1;
  }
}

/* ---- the faults */

static void say(const char *what, uint64_t killed, uint32_t restarts, const char *more) {
  printf("%-58s %3llu killed %3u restarts of the worker  %s\n", what,
         (unsigned long long)(cgroup_killed(&group) - killed), device_info(watcher).restarts - restarts, more);
  fflush(stdout);
}

static void tight(uint64_t room) {
  assert_true(cgroup_limit(&group, cgroup_used(&group) + room));
}

static void loads_beyond_memory(void) {
  uint64_t killed = cgroup_killed(&group);
  uint32_t restarts = device_info(watcher).restarts;
  int there = 0, rounds = 0;
  char more[256];
  for (; rounds < ROUNDS; rounds++) {
    tight(32 * MIB); /* for a third of them */
    clients_run(LOADERS, load, NULL);
    assert_true(cgroup_limit(&group, UINT64_MAX));
    there += expect_loaded();
    unload_all();
    await_products();
  }
  snprintf(more, sizeof more, "%d of %d loaded; \"%.100s\"", there, rounds * WEIGHTS, scene->why);
  assert_true(there > 0 && there < rounds * WEIGHTS);
  say("loads, 6 at a time, three times what there is memory for", killed, restarts, more);
}

static void a_product_beyond_memory(void) {
  uint64_t killed = cgroup_killed(&group), lost = scene->lost;
  uint32_t restarts = device_info(watcher).restarts;
  char more[64];
  for (int round = 0; round < ROUNDS; round++) {
    tight(4 * MIB);
    clients_run(1, multiply_tensors, NULL);
    assert_true(cgroup_limit(&group, UINT64_MAX));
    await_products();
  }
  snprintf(more, sizeof more, "%llu of %d products lost", (unsigned long long)(scene->lost - lost), ROUNDS);
  say("a product that takes 32 MiB, with memory for 4", killed, restarts, more);
}

/* Whoever connects waits for the device, or is refused: its worker may not be able to live before there is memory. */
static int connect_many(int index, void *user) {
  enum { SESSIONS = 20 };
  gemmd_session *sessions[SESSIONS];
  for (int i = 0; i < SESSIONS; i++)
    while (gemmd_connect(&sessions[i], daemon_under_test.socket, NULL) != GEMMD_OK) {
      gemmd_disconnect(sessions[i]);
      nap_shortly();
    }
  for (int i = 0; i < SESSIONS; i++)
    gemmd_disconnect(sessions[i]);
  return 0;
}

/* Sessions cost the supervisor, and it is the last whom the kernel takes. */
static void sessions_beyond_memory(void) {
  struct clients connecting;
  uint64_t killed = cgroup_killed(&group);
  uint32_t restarts = device_info(watcher).restarts;
  for (int round = 0; round < ROUNDS; round++) {
    tight(MIB / 4);
    clients_start(&connecting, 3, connect_many, NULL);
    for (int i = 0; i < 2000; i++)
      nap_shortly();
    assert_true(cgroup_limit(&group, UINT64_MAX));
    clients_wait(&connecting);
    await_products();
  }
  say("sessions, 60 at a time, with memory for a quarter of a MiB", killed, restarts, "all connected");
}

static void in_a_group(void **state) {
  struct clients clients;
  char why[128];
  if (!cgroup_make(&group, why)) {
    print_message("skipped: %s\n", why);
    skip();
  }
  daemon_make(&daemon_under_test, "tune = off\nslab_bytes = 8388608\nloaders_max = 6\nworker_restarts_max = 1000\n"
                                  "worker_pause_s = 1\n");
  oracle_weight_make(&values[0], &shape, 1);
  oracle_weight_make(&values[1], &shape, 2);
  scene = clients_share(sizeof *scene);
  for (int i = 0; i < WEIGHTS; i++)
    scene->loaded[i] = -1;
  checkpoint_write_one(daemon_path(&daemon_under_test, "model.safetensors"), "served", &values[0]);
  assert_true(cgroup_enter(&group));
  daemon_start(&daemon_under_test);
  assert_true(cgroup_leave(&group));
  watcher = daemon_join(&daemon_under_test, NULL);
  daemon_load(watcher, &daemon_under_test, "served", GEMMD_FORMAT_INT8);
  clients_start(&clients, CLIENTS, compute, NULL);
  await_products();
  loads_beyond_memory();
  a_product_beyond_memory();
  sessions_beyond_memory();
  scene->stop = true;
  clients_wait(&clients);
  printf("products: %llu right, %llu wrong, %llu refused\n", (unsigned long long)scene->right,
         (unsigned long long)scene->wrong, (unsigned long long)scene->refused);
  assert_int_equal(scene->wrong, 0);
  gemmd_disconnect(watcher);
  daemon_stop(&daemon_under_test); /* the same process all the time: it ends with 0 */
  daemon_remove(&daemon_under_test);
  cgroup_remove(&group);
  oracle_weight_free(&values[0]);
  oracle_weight_free(&values[1]);
}

/* ---- a weight beyond 4 GiB, of a file that is nothing but a hole up to its last rows */

static uint64_t memory_available(void) {
  char line[128];
  unsigned long long kib = 0;
  FILE *file = fopen("/proc/meminfo", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
      break;
  if (file != NULL)
    fclose(file);
  return (uint64_t)kib << 10;
}

enum { VAST_ROWS = (1 << 19) + 1024, ROWS_OF_ONES = 2 };

static int vast_file(void) {
  char head[256];
  uint64_t bytes = (uint64_t)VAST_ROWS * K;
  int length =
      snprintf(head + 8, sizeof head - 8,
               "{\"w\":{\"dtype\":\"I8\",\"shape\":[%d,%d],\"data_offsets\":[0,%llu]},\"w_scale\":{\"dtype\":"
               "\"F32\",\"shape\":[1],\"data_offsets\":[%llu,%llu]}}",
               VAST_ROWS, K, (unsigned long long)bytes, (unsigned long long)bytes, (unsigned long long)bytes + 4);
  while (length % 8 != 0)
    head[8 + length++] = ' ';
  uint64_t begin = 8 + (uint64_t)length, at = begin + bytes - (uint64_t)ROWS_OF_ONES * K;
  memcpy(head, &(uint64_t){(uint64_t)length}, 8);
  static int8_t ones[ROWS_OF_ONES * K];
  const float scale = 1;
  memset(ones, 1, sizeof ones);
  int fd = memfd_create("vast", MFD_CLOEXEC);
  assert_true(fd >= 0 && pwrite(fd, head, begin, 0) == (ssize_t)begin);
  assert_int_equal(pwrite(fd, ones, sizeof ones, (off_t)at), sizeof ones);
  assert_int_equal(pwrite(fd, &scale, sizeof scale, (off_t)(begin + bytes)), sizeof scale);
  return fd;
}

static void beyond_four_gib(void **state) {
  enum { GIB_NEEDED = 11 };
  gemmd_weight *handle;
  gemmd_weight_info info;
  if (memory_available() < (uint64_t)GIB_NEEDED << 30) {
    print_message("skipped: a weight beyond 4 GiB takes %d GiB of free memory\n", GIB_NEEDED);
    skip();
  }
  daemon_make(&daemon_under_test, "tune = off\n");
  daemon_start(&daemon_under_test);
  gemmd_session *session = daemon_join(&daemon_under_test, &(gemmd_options){.arena_bytes = 16 * MIB});
  gemmd_load request = {.name = "vast", .tensor = "w", .format = GEMMD_FORMAT_INT8, .device = -1};
  int fd = vast_file();
  expect_ok(session, gemmd_weight_load(session, fd, &request, &info));
  close(fd);
  assert_true(info.bytes > (uint64_t)4 << 30);
  expect_ok(session, gemmd_weight_open(session, "vast", &handle));
  float *x = gemmd_alloc(session, K * sizeof *x), *y = gemmd_alloc(session, VAST_ROWS * sizeof *y);
  gemmd_product product = {.m = 1, .x = x, .x_type = GEMMD_F32, .y = y, .y_type = GEMMD_F32};
  for (int i = 0; i < K; i++)
    x[i] = 1;
  for (int life = 0; life < 2; life++) {
    memset(y, 0xfd, VAST_ROWS * sizeof *y);
    expect_ok(session, gemmd_matmul(handle, &product));
    for (int i = 0; i < VAST_ROWS; i++)
      assert_true(y[i] == (i < VAST_ROWS - ROWS_OF_ONES ? 0 : K));
    if (life == 0)
      device_kill_worker(session);
  }
  printf("a weight of %.2f GiB: right, before its worker is killed and behind it\n",
         (double)info.bytes / (double)((uint64_t)1 << 30));
  gemmd_disconnect(session);
  daemon_stop(&daemon_under_test);
  daemon_remove(&daemon_under_test);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(in_a_group),
      cmocka_unit_test(beyond_four_gib),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
