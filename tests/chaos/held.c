/* Weights of many gigabytes stay on the device whatever happens to the worker: each fault under a load of many clients,
 * and the time until these get right products again, beside that of the first load. Their files are gone by then. On a
 * GPU some of the faults are kernels' own: see faulty.h. */
#include "client/gemmclient.h"
#include "pauses.h"
#include "proto/clock.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/status.h"
#include "tests/support/reference/oracle.h"
#include "tests/support/system/nap.h"
#include "vast.h"

#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { CLIENTS = 8, WEIGHTS = 24, OWN = WEIGHTS / CLIENTS, SAMPLE = 128, LOADS = 8 };

static struct daemon daemon_under_test;
static struct vast weights[WEIGHTS];
static struct pauses *pauses;
static gemmd_session *watcher;
static bool kernels_fail; /* on a GPU */
static int tries = 10;
static double gigabytes = 0.0625;
static const char *chosen = ""; /* a part of the names of the faults that are tried */

static const char *weight_name(int index) {
  static char names[WEIGHTS][16];
  snprintf(names[index], sizeof names[index], "w%d", index);
  return names[index];
}

/* ---- the first load */

static _Atomic int *files_made;

/* Each process makes the files of its weights; when all are there, they are loaded at the same time. */
static int load_some(int index, void *user) {
  int fds[WEIGHTS];
  for (int i = index; i < WEIGHTS; i += LOADS)
    if ((fds[i] = vast_file(&weights[i])) < 0)
      return 1;
  atomic_fetch_add(files_made, 1);
  while (atomic_load(files_made) <= LOADS) /* the last is who takes the time */
    sched_yield();
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  for (int i = index; i < WEIGHTS; i += LOADS) {
    const gemmd_load load = {.name = weight_name(i),
                             .tensor = "w",
                             .format = (enum gemmd_format)weights[i].shape.format,
                             .mode = GEMMD_MODE_ALL,
                             .device = -1};
    if (gemmd_weight_load(session, fds[i], &load, NULL) != GEMMD_OK) {
      fprintf(stderr, "%s\n", gemmd_error(session));
      return 1;
    }
    close(fds[i]);
  }
  gemmd_disconnect(session);
  return 0;
}

static void load_all(void) {
  struct clients clients;
  uint64_t bytes = 0;
  for (int i = 0; i < WEIGHTS; i++) {
    weights[i] = vast_make(i, (uint64_t)(gigabytes * 1e9 / WEIGHTS));
    bytes += vast_bytes(&weights[i]);
  }
  files_made = clients_share(sizeof *files_made);
  clients_start(&clients, LOADS, load_some, NULL);
  while (atomic_load(files_made) < LOADS)
    sched_yield();
  uint64_t begin = clock_ns();
  atomic_fetch_add(files_made, 1);
  clients_wait(&clients);
  double seconds = (double)(clock_ns() - begin) / 1e9;
  printf("first load of %d weights, %.2f GB, %d at a time: %.2f s\n", WEIGHTS, (double)bytes / 1e9, LOADS, seconds);
  fflush(stdout);
}

/* ---- clients */

struct subject {
  const struct vast *vast;
  gemmd_weight *handle;
  gemmd_product product;
  int64_t rows[SAMPLE];
  double reference[SAMPLE];
  float *first; /* y as it was before any fault */
};

static bool sample_right(const struct subject *subject) {
  const float *y = subject->product.y;
  float sample[SAMPLE];
  for (int i = 0; i < SAMPLE; i++)
    sample[i] = y[subject->rows[i]];
  double error = oracle_row_error(subject->vast->shape.format, subject->reference, sample, GEMM_F32, SAMPLE);
  if (error <= oracle_gate(subject->vast->shape.format, GEMM_F32))
    return true;
  fprintf(stderr, "w%d: error %g\n", subject->vast->index, error);
  return false;
}

/* A sample of y is compared with float64, all of it with what it was at first: other rows that were computed with it
 * may have changed the order of sums, nothing else. */
static bool right(const struct subject *subject) {
  const float *y = subject->product.y;
  double squares = 0, differences = 0;
  for (int64_t n = 0; n < subject->vast->shape.n; n++) {
    double difference = (double)y[n] - (double)subject->first[n];
    squares += (double)subject->first[n] * (double)subject->first[n];
    differences += difference * difference;
  }
  return differences <= squares * 1e-6 && sample_right(subject);
}

static bool prepare(struct subject *subject, gemmd_session *session, const struct vast *vast) {
  enum gemm_type x_type = vast->shape.format == GEMM_FORMAT_BF16 ? GEMM_BF16 : GEMM_F16;
  struct oracle_x x;
  size_t y_bytes = (size_t)vast->shape.n * sizeof(float);
  *subject = (struct subject){.vast = vast, .first = malloc(y_bytes)};
  oracle_x_make(&x, 1, VAST_K, x_type, 1, (uint64_t)vast->index + 1);
  void *rows = gemmd_alloc(session, VAST_K * sizeof(uint16_t)), *y = gemmd_alloc(session, y_bytes);
  if (rows == NULL || y == NULL || subject->first == NULL ||
      gemmd_weight_open(session, weight_name(vast->index), &subject->handle) != GEMMD_OK)
    return false;
  memcpy(rows, x.data, VAST_K * sizeof(uint16_t));
  subject->product = (gemmd_product){.m = 1, .x = rows, .x_type = (enum gemmd_type)x_type, .y = y, .y_type = GEMMD_F32};
  double *values = oracle_x_values(&x, &vast->shape, false);
  for (int i = 0; i < SAMPLE; i++) {
    subject->rows[i] = i * (vast->shape.n - 1) / (SAMPLE - 1);
    subject->reference[i] = vast_product(vast, subject->rows[i], values);
  }
  free(values);
  oracle_x_free(&x);
  if (gemmd_matmul(subject->handle, &subject->product) != GEMMD_OK)
    return false;
  memcpy(subject->first, y, y_bytes);
  return sample_right(subject);
}

static int client(int index, void *user) {
  struct subject subjects[OWN];
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  bool good = true;
  for (int i = 0; good && i < OWN; i++)
    good = prepare(&subjects[i], session, &weights[index * OWN + i]);
  if (!good) {
    fprintf(stderr, "client %d: %s\n", index, gemmd_error(session));
    pauses_note(pauses, index, 0, GEMMD_OK, false);
    return 1;
  }
  for (int i = 0; !atomic_load(&pauses->stop); i = (i + 1) % OWN) {
    struct subject *subject = &subjects[i];
    memset(subject->product.y, 0xfd, (size_t)subject->vast->shape.n * sizeof(float));
    uint64_t begin = clock_ns();
    int status = gemmd_matmul(subject->handle, &subject->product);
    uint64_t waited_ns = clock_ns() - begin;
    pauses_note(pauses, index, waited_ns, status, status == GEMMD_OK && right(subject));
  }
  for (int i = 0; i < OWN; i++)
    free(subjects[i].first);
  gemmd_disconnect(session);
  return 0;
}

/* ---- the faults */

static gemmd_device_info device(void) {
  gemmd_daemon_info info;
  assert_int_equal(gemmd_daemon_status(watcher, &info), GEMMD_OK);
  return info.device[0];
}

static uint32_t restarts;

static void await_successor(void) {
  gemmd_device_info info;
  do {
    nap_shortly();
    info = device();
  } while (info.restarts == restarts || strcmp(info.state, "ready") != 0);
  restarts = info.restarts;
}

static void nothing(void) {}

static void upgrade(void) {
  daemon_upgrade(&daemon_under_test);
}

static void await_upgraded(void) {
  while (strcmp(device().state, "ready") != 0)
    nap_shortly();
  restarts = 0;
}

static int spares_seen;

/* Until one more process stands by than when this was last asked. */
static void await_spare(void) {
  while (daemon_log_count(&daemon_under_test, "stands by") == spares_seen)
    sched_yield();
  spares_seen++;
}

static void await_successor_and_spare(void) {
  await_successor();
  await_spare();
}

static void kill_worker(void) {
  assert_int_equal(kill((pid_t)device().pid, SIGKILL), 0);
}

static void fault_worker(void) {
  assert_int_equal(kill((pid_t)device().pid, SIGSEGV), 0);
}

/* The next product of cuBLASLt's takes the file, and does what it says. */
static void fail_kernel(const char *how) {
  const char *path = daemon_path(&daemon_under_test, "faulty"), *whole = daemon_path(&daemon_under_test, "faulty.new");
  FILE *file = fopen(whole, "w");
  assert_non_null(file);
  fputs(how, file);
  assert_int_equal(fclose(file), 0);
  assert_int_equal(rename(whole, path), 0);
}

static void kernel_writes_nowhere(void) {
  fail_kernel("nowhere");
}

static void kernel_writes_into_weight(void) {
  fail_kernel("weight");
}

static void kernel_never_ends(void) {
  fail_kernel("forever");
}

struct held_fault {
  struct pauses_fault fault;
  bool kernel, verified; /* by a kernel; weights are verified afterwards */
};

static const struct held_fault faults[] = {
    {{"worker killed (SIGKILL)", kill_worker, await_successor, 0}, false, false},
    {{"worker faults (SIGSEGV), weights verified", fault_worker, await_successor, 0}, false, true},
    {{"a kernel writes to no memory, weights verified", kernel_writes_nowhere, await_successor, 0}, true, true},
    {{"a kernel writes into its weight, weights verified", kernel_writes_into_weight, await_successor, 0}, true, true},
    {{"a kernel never ends, device_timeout_s = 2", kernel_never_ends, await_successor, 0}, true, true},
    {{"gemmd upgraded in place (--upgrade)", upgrade, await_upgraded, 0}, false, true},
};

static const struct held_fault faults_with_spare[] = {
    {{"worker killed, worker_spare = 1", kill_worker, await_successor_and_spare, 0}, false, false},
    {{"a kernel writes to no memory, worker_spare = 1", kernel_writes_nowhere, await_successor_and_spare, 0},
     true,
     true},
};

static void try_fault(const struct held_fault *fault) {
  if ((fault->kernel && !kernels_fail) || strstr(fault->fault.name, chosen) == NULL)
    return;
  static const char verified[] = "agree with what was loaded";
  struct pauses_fault now = fault->fault;
  int before = daemon_log_count(&daemon_under_test, verified);
  now.rounds = tries;
  (void)pauses_try(pauses, &now);
  assert_int_equal(atomic_load(&pauses->wrong), 0);
  assert_int_equal(daemon_log_count(&daemon_under_test, verified) - before, fault->verified ? tries : 0);
}

/* From here on with another option; the weights stay. */
static void begin_sparing(void) {
  FILE *file = fopen(daemon_path(&daemon_under_test, "gemmd.conf"), "a");
  assert_non_null(file);
  fputs("worker_spare = 1\n", file);
  assert_int_equal(fclose(file), 0);
  upgrade();
  await_upgraded();
  await_spare();
}

/* A kernel that nobody has seen is compiled, tried in a process of its own, and fails there: the worker does not
 * notice, and does not use it. */
static void fail_on_trial(void) {
  const gemmd_tune_request request = {
      .weight = "w0", .m = 16, .x_type = GEMMD_F16, .y_type = GEMMD_F32, .kernel = "tile block_m=16"};
  gemmd_tune_report report;
  gemmd_device_info before = device();
  fail_kernel("compile");
  assert_int_equal(gemmd_tune(watcher, &request, &report), GEMMD_OK);
  printf("a kernel on trial writes to no memory: \"%s\"\n", report.why);
  assert_non_null(strstr(report.why, "it took its process along"));
  gemmd_device_info after = device();
  assert_int_equal(after.pid, before.pid);
  assert_int_equal(after.restarts, before.restarts);
}

/* ---- all of it */

static char state_folder[] = "/tmp/gemmd-held-XXXXXX";

/* The libraries whose kernels fail stand beside gemmd. */
static void start(void) {
  char options[2048], libraries[1400] = "";
  const char *backend = getenv("GEMMD_TEST_BACKEND"), *build = getenv("GEMMD_BUILD");
  kernels_fail = backend != NULL && strcmp(backend, "cuda") == 0;
  assert_non_null(mkdtemp(state_folder));
  if (kernels_fail)
    snprintf(libraries, sizeof libraries,
             "cublaslt = %.500s/libcublaslt-faulty.so\nnvrtc = %.500s/libnvrtc-faulty.so\n",
             build != NULL ? build : "build", build != NULL ? build : "build");
  /* With tuning off, y is computed the same way again and again. */
  snprintf(options, sizeof options,
           "tune = off\nstate_dir = %s\ndevice_timeout_s = 2\nworker_restarts_max = 1000\nloaders_max = %d\n%s",
           state_folder, LOADS, libraries);
  daemon_make(&daemon_under_test, options);
  setenv("GEMMD_FAULTY", daemon_path(&daemon_under_test, "faulty"), 1);
  daemon_start(&daemon_under_test);
  watcher = daemon_join(&daemon_under_test, NULL);
}

static void held(void **state) {
  struct clients clients;
  start();
  load_all();
  gemmd_daemon_info before, after;
  assert_int_equal(gemmd_daemon_status(watcher, &before), GEMMD_OK);
  pauses = clients_share(sizeof *pauses);
  pauses->clients = CLIENTS;
  clients_start(&clients, CLIENTS, client, NULL);
  pauses_head(pauses);
  (void)pauses_try(pauses, &(struct pauses_fault){"none, for comparison", nothing, NULL, tries});
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
    try_fault(&faults[i]);
  begin_sparing();
  for (size_t i = 0; i < sizeof faults_with_spare / sizeof *faults_with_spare; i++)
    try_fault(&faults_with_spare[i]);
  atomic_store(&pauses->stop, true);
  clients_wait(&clients);
  if (kernels_fail)
    fail_on_trial();
  assert_int_equal(gemmd_daemon_status(watcher, &after), GEMMD_OK);
  assert_int_equal(after.weights, before.weights);
  assert_true(after.weight_bytes == before.weight_bytes);
  assert_true(after.device[0].memory_slabs == before.device[0].memory_slabs);
  gemmd_disconnect(watcher);
  daemon_end(&daemon_under_test);
  char command[64];
  snprintf(command, sizeof command, "rm -r %s", state_folder);
  assert_int_equal(system(command), 0);
}

int main(int count, char **words) {
  if (count > 1)
    gigabytes = strtod(words[1], NULL);
  if (count > 2)
    tries = (int)strtol(words[2], NULL, 10);
  if (count > 3)
    chosen = words[3];
  if (count > 4 || !(gigabytes > 0) || tries < 1 || tries > PAUSES_ROUNDS) {
    fprintf(stderr, "usage: held [GIGABYTES of weights [TRIES of each fault [PART of the names of those to try]]]\n");
    return 2;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(held)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
