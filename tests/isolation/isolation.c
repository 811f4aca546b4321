/* Asks for hostile products, one case of the table after the other, while a good client of another user asks for one
 * row at a time and is told how long it waited: isolation [FIRST [STEP [PATIENCE_MS [SECONDS [CLIENTS [ROUNDS
 * [TUNE]]]]]]]. Every STEP-th case from FIRST on, CLIENTS of them at a time (1), as many as SECONDS allow, all of it
 * ROUNDS times (1); what is not computed within PATIENCE_MS is dropped. Prints the longest waits with the cases that
 * were under way; exit 1 where an answer was wrong, a product failed, or the worker keeps memory that it had not
 * before. Times are printed, not judged. */
#include "client/gemmclient.h"
#include "proto/clock.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/hostile.h"
#include "tests/support/daemon/product.h"
#include "tests/support/reference/checkpoint.h"
#include "tests/support/reference/oracle.h"
#include "tests/support/system/nap.h"
#include "tests/support/system/private_bytes.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum {
  GOOD = 54331,
  BAD = 54332,
  WAITS_MOST = 1 << 20,
  WORST = 10,
  CLASSES = 2,
  CASES_MOST = 2048,
  CLIENTS_AT_ONCE = 16,
  KEPT_MOST = 8 << 20,
  STILL_MOST = 1 << 19, /* that it may change in a second when it is done */
  REST_S = 3,           /* in which the worker gives memory back */
  SETTLE_S = 60
};
static const struct gemm_weight shape = {256, 256, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0};
static const enum gemmd_priority classes[CLASSES] = {GEMMD_PRIORITY_URGENT, GEMMD_PRIORITY_NORMAL};
static const char *const class_names[CLASSES] = {"urgent", "normal"};

/* What all processes see. */
struct scene {
  _Atomic bool stop, wrong;
  int clients; /* hostile ones */
  int rounds;
  long first, step;
  int patience_ms;
  uint64_t seconds, until_ns;                  /* a round's */
  _Atomic int left;                            /* hostile clients that go on */
  _Atomic uint32_t next, asked, failed;        /* cases */
  _Atomic uint32_t current[CLIENTS_AT_ONCE];   /* cases under way; CASES_MOST: none */
  _Atomic uint64_t worst[CASES_MOST][CLASSES]; /* ns, by case */
  _Atomic uint32_t counts[CLASSES];
  uint32_t waits[CLASSES][WAITS_MOST]; /* us */
};

static struct daemon daemon_under_test;
static struct oracle_weight weight;

static void note(struct scene *scene, int class, uint64_t ns) {
  uint32_t at = atomic_fetch_add(&scene->counts[class], 1);
  if (at < WAITS_MOST)
    scene->waits[class][at] = (uint32_t)(ns / 1000);
  for (int i = 0; i < scene->clients; i++) {
    uint32_t now = scene->current[i];
    if (now < CASES_MOST && ns > scene->worst[now][class])
      scene->worst[now][class] = ns;
  }
}

/* One row at a time, urgent and normal in turn, with a millisecond between. */
static int be_good(int index, void *user) {
  struct scene *scene = user;
  const struct timespec pause = {.tv_nsec = 1000000};
  gemmd_session *session;
  gemmd_weight *handle;
  struct product product;
  struct product_request request = {.weight = &weight, .m = 1, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 3};
  if (geteuid() == 0 && (setgid(GOOD) != 0 || setuid(GOOD) != 0))
    return 1;
  if (gemmd_connect(&session, daemon_under_test.socket, NULL) != GEMMD_OK ||
      gemmd_weight_open(session, "good", &handle) != GEMMD_OK || !product_make(&product, session, &request)) {
    fprintf(stderr, "the good client: %s\n", gemmd_error(session));
    return 1;
  }
  for (int class = 0; !scene->stop; class = (class + 1) % CLASSES) {
    product.product.priority = classes[class];
    uint64_t begin = clock_ns();
    int status = gemmd_matmul(handle, &product.product);
    note(scene, class, clock_ns() - begin);
    if (status != GEMMD_OK || !product_right(&product)) {
      fprintf(stderr, "the good client: %s\n", status != GEMMD_OK ? gemmd_error(session) : "a wrong product");
      scene->wrong = true;
      break;
    }
    nanosleep(&pause, NULL);
  }
  gemmd_disconnect(session);
  return scene->wrong;
}

static void begin(const char *tune) {
  char options[128];
  gemmd_session *session;
  gemmd_load request = {
      .name = "good", .tensor = "good", .format = GEMMD_FORMAT_INT8, .device = -1, .mode = GEMMD_MODE_ALL};
  snprintf(options, sizeof options, "socket_mode = 0666\nlog_level = warning\ntune = %s\n", tune);
  daemon_make(&daemon_under_test, options);
  chmod(daemon_under_test.folder, 0755);
  oracle_weight_make(&weight, &shape, 1);
  checkpoint_write_one(daemon_path(&daemon_under_test, "good.safetensors"), "good", &weight);
  daemon_start(&daemon_under_test);
  if (gemmd_connect(&session, daemon_under_test.socket, NULL) != GEMMD_OK ||
      gemmd_weight_load_file(session, daemon_path(&daemon_under_test, "good.safetensors"), &request, NULL) !=
          GEMMD_OK) {
    fprintf(stderr, "%s\n", gemmd_error(session));
    exit(1);
  }
  gemmd_disconnect(session);
}

static pid_t worker_pid(void) {
  static gemmd_daemon_info info;
  gemmd_session *session;
  bool ok = gemmd_connect(&session, daemon_under_test.socket, NULL) == GEMMD_OK &&
            gemmd_daemon_status(session, &info) == GEMMD_OK;
  gemmd_disconnect(session);
  return ok ? (pid_t)info.device[0].pid : 0;
}

static bool attack(const struct hostile_case *what, int patience_ms) {
  struct hostile_result result;
  gemmd_session *session = hostile_join(daemon_under_test.socket, BAD, what);
  if (session == NULL)
    return false;
  bool asked = hostile_run(session, what, patience_ms, &result);
  gemmd_disconnect(session);
  if (asked && !result.wrong && result.status == GEMMD_OK)
    return true;
  printf("%s: %s\n", what->line, result.why);
  return false;
}

/* Takes the next case until there is none. */
static int be_hostile(int index, void *user) {
  struct scene *scene = user;
  struct hostile_case what;
  for (;;) {
    long at = scene->first + scene->step * (long)atomic_fetch_add(&scene->next, 1);
    if (at >= CASES_MOST || clock_ns() >= scene->until_ns || !hostile_read((size_t)at, &what))
      break;
    scene->current[index] = (uint32_t)at;
    scene->asked++;
    if (!attack(&what, scene->patience_ms))
      scene->failed++;
    fflush(stdout);
  }
  scene->current[index] = CASES_MOST;
  scene->left--;
  return 0;
}

static int compare(const void *a, const void *b) {
  uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
  return (left > right) - (left < right);
}

static void print_worst(struct scene *scene, int class) {
  struct hostile_case what;
  for (int rank = 0; rank < WORST; rank++) {
    uint32_t worst = 0;
    for (uint32_t i = 0; i < CASES_MOST; i++)
      worst = scene->worst[i][class] > scene->worst[worst][class] ? i : worst;
    if (scene->worst[worst][class] == 0 || !hostile_read(worst, &what))
      return;
    printf("  %8.1f ms beside %s\n", (double)scene->worst[worst][class] / 1e6, what.line);
    scene->worst[worst][class] = 0;
  }
}

static void report(struct scene *scene) {
  for (int class = 0; class < CLASSES; class ++) {
    uint32_t count = scene->counts[class] < WAITS_MOST ? scene->counts[class] : WAITS_MOST;
    if (count == 0)
      continue;
    qsort(scene->waits[class], count, sizeof scene->waits[class][0], compare);
    printf("%s: %u waits, median %.2f ms, p99 %.1f, p99.9 %.1f, maximum %.1f\n", class_names[class], count,
           scene->waits[class][count / 2] / 1e3, scene->waits[class][(uint64_t)count * 99 / 100] / 1e3,
           scene->waits[class][(uint64_t)count * 999 / 1000] / 1e3, scene->waits[class][count - 1] / 1e3);
    print_worst(scene, class);
  }
}

static bool read_words(int count, char **words, struct scene *scene) {
  scene->first = count > 1 ? atol(words[1]) : 0;
  scene->step = count > 2 ? atol(words[2]) : 1;
  scene->patience_ms = count > 3 ? atoi(words[3]) : 1000;
  scene->seconds = count > 4 ? strtoull(words[4], NULL, 10) : 1 << 20;
  scene->clients = count > 5 ? atoi(words[5]) : 1;
  scene->rounds = count > 6 ? atoi(words[6]) : 1;
  for (int i = 0; i < CLIENTS_AT_ONCE; i++)
    scene->current[i] = CASES_MOST;
  return scene->first >= 0 && scene->step >= 1 && scene->clients >= 1 && scene->clients <= CLIENTS_AT_ONCE;
}

/* What the worker has of its own when that stays the same for some seconds: a GPU's makes cuBLASLt's tables and loads
 * its kernels when it starts, beside what it serves. */
static uint64_t settled(void) {
  uint64_t bytes = private_bytes(worker_pid());
  for (int still = 0, waited = 0; still < REST_S && waited < SETTLE_S; waited++) {
    sleep(1);
    uint64_t now = private_bytes(worker_pid());
    still = now < bytes + STILL_MOST && bytes < now + STILL_MOST ? still + 1 : 0;
    bytes = now;
  }
  return bytes;
}

/* All cases once; what the worker has of its own after them, in bytes. */
static uint64_t round_of(struct scene *scene, int number) {
  struct clients good = {.count = 0}, bad = {.count = 0};
  scene->stop = false;
  scene->next = 0;
  scene->until_ns = clock_ns() + scene->seconds * 1000000000;
  scene->left = scene->clients;
  clients_start(&good, 1, be_good, scene);
  clients_start(&bad, scene->clients, be_hostile, scene);
  while (scene->left > 0) /* clients_wait gives them a minute */
    nap_shortly();
  clients_wait(&bad);
  scene->stop = true;
  clients_wait(&good);
  sleep(REST_S);
  uint64_t after = private_bytes(worker_pid());
  printf("round %d: %u cases and %u failed so far; the worker's own memory: %.1f MiB\n", number, scene->asked,
         scene->failed, (double)after / 1048576);
  fflush(stdout);
  return after;
}

int main(int count, char **words) {
  struct scene *scene = clients_share(sizeof *scene);
  const char *tune = count > 7 ? words[7] : "background";
  if (!read_words(count, words, scene))
    return 1;
  begin(tune);
  uint64_t before = settled(), after = 0;
  printf("the worker's own memory: %.1f MiB\n", (double)before / 1048576);
  fflush(stdout);
  for (int i = 1; i <= scene->rounds; i++)
    after = round_of(scene, i);
  report(scene);
  bool kept = strcmp(tune, "off") == 0 && after > before + KEPT_MOST;
  daemon_end(&daemon_under_test);
  return scene->failed > 0 || kept || scene->wrong;
}
