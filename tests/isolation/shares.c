/* Two users who ask for as much as they can, one by a session, the other by several, beside a third with one urgent row
 * at a time: shares [SECONDS [ROWS [SIZE]]]. Products of ROWS rows by weights of SIZE x SIZE, a weight a user. Prints
 * the rows that each of the two got and the third's waits, without the others and beside them; exit 1 where a product
 * was wrong. What they got is printed, not judged. */
#include "client/gemmclient.h"
#include "proto/clock.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/product.h"
#include "tests/support/reference/checkpoint.h"
#include "tests/support/reference/oracle.h"
#include "tests/support/system/nap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum {
  FIRST_USER = 54331, /* and those behind */
  USERS = 3,
  LAST = USERS - 1, /* who asks for a row at a time */
  SESSIONS = 4,     /* one of the first user, the others of the second */
  WINDOW = 32,      /* products of a session under way */
  SMALL = 256,
  WAITS_MOST = 1 << 20,
  SETTLE_NS = 500000000
};

struct scene {
  _Atomic bool stop, count;
  _Atomic int ready; /* processes that have begun */
  _Atomic uint64_t rows[LAST];
  _Atomic uint32_t waited;
  uint32_t waits[WAITS_MOST]; /* us */
};

static const char *const names[USERS] = {"one", "two", "three"};
static struct daemon daemon_under_test;
static struct oracle_weight weights[USERS];
static int64_t rows_at_once = 32;

static gemmd_session *join_as(int user, gemmd_weight **weight) {
  gemmd_session *session = NULL;
  gemmd_options options = {.arena_bytes = (size_t)128 << 20, .name = names[user]};
  uid_t uid = (uid_t)(FIRST_USER + user);
  if ((geteuid() == 0 && (setgid(uid) != 0 || setuid(uid) != 0)) ||
      gemmd_connect(&session, daemon_under_test.socket, &options) != GEMMD_OK ||
      gemmd_weight_open(session, names[user], weight) != GEMMD_OK) {
    fprintf(stderr, "user %s: %s\n", names[user], gemmd_error(session));
    exit(1);
  }
  return session;
}

static void make(struct product *out, gemmd_session *session, int user, int64_t m, enum gemmd_priority priority) {
  struct product_request request = {
      .weight = &weights[user], .m = m, .x_type = GEMM_F16, .y_type = GEMM_F16, .seed = 7 + (uint64_t)user};
  if (!product_make(out, session, &request))
    exit(1);
  out->product.priority = priority;
}

/* The same once more, with a y of its own. */
static void make_another(struct product *out, gemmd_session *session, const struct product *like) {
  size_t bytes = (size_t)(like->request.m * like->request.weight->shape.n) * sizeof(uint16_t);
  *out = *like;
  out->product.y = gemmd_alloc(session, bytes);
  if (out->product.y == NULL)
    exit(1);
  memset(out->product.y, 0xff, bytes);
}

/* As much as goes, WINDOW products at a time. */
static int be_busy(int index, void *argument) {
  struct scene *scene = argument;
  struct product products[WINDOW];
  int user = index > 0;
  gemmd_weight *weight;
  gemmd_session *session = join_as(user, &weight);
  bool right = true;
  for (int i = 0; i < WINDOW; i++) {
    if (i == 0)
      make(&products[i], session, user, rows_at_once, GEMMD_PRIORITY_NORMAL);
    else
      make_another(&products[i], session, &products[0]);
    right = right && gemmd_submit(weight, &products[i].product, &products[i].ticket) == GEMMD_OK;
  }
  scene->ready++;
  for (int i = 0; right && !scene->stop; i = (i + 1) % WINDOW) {
    right = gemmd_wait(session, products[i].ticket, -1, NULL) == GEMMD_OK;
    if (scene->count)
      scene->rows[user] += (uint64_t)rows_at_once;
    right = right && gemmd_submit(weight, &products[i].product, &products[i].ticket) == GEMMD_OK;
  }
  scene->ready++;
  for (int i = 0; i < WINDOW && right; i++)
    right = gemmd_wait(session, products[i].ticket, -1, NULL) == GEMMD_OK && product_right(&products[i]);
  if (!right)
    fprintf(stderr, "user %s: %s\n", names[user], gemmd_error(session));
  gemmd_disconnect(session);
  return right ? 0 : 1;
}

/* One urgent row, a millisecond later the next. */
static int be_small(int index, void *argument) {
  struct scene *scene = argument;
  const struct timespec pause = {.tv_nsec = 1000000};
  struct product product;
  gemmd_weight *weight;
  gemmd_session *session = join_as(LAST, &weight);
  bool right = true;
  make(&product, session, LAST, 1, GEMMD_PRIORITY_URGENT);
  scene->ready++;
  while (right && !scene->stop) {
    uint64_t begin = clock_ns();
    right = gemmd_matmul(weight, &product.product) == GEMMD_OK && product_right(&product);
    uint32_t us = (uint32_t)((clock_ns() - begin) / 1000);
    if (scene->count && scene->waited < WAITS_MOST)
      scene->waits[scene->waited++] = us;
    nanosleep(&pause, NULL);
  }
  gemmd_disconnect(session);
  return right ? 0 : 1;
}

static void begin(int64_t size) {
  static struct checkpoint checkpoint;
  gemmd_session *session;
  char options[128]; /* rows that went together would leave a user without any that wait */
  snprintf(options, sizeof options, "socket_mode = 0666\nlog_level = warning\ntune = off\nbatch_rows = %lld\n",
           (long long)rows_at_once);
  daemon_make(&daemon_under_test, options);
  chmod(daemon_under_test.folder, 0755);
  const char *file = daemon_path(&daemon_under_test, "weights.safetensors");
  for (int i = 0; i < USERS; i++) {
    int64_t side = i == LAST ? SMALL : size;
    oracle_weight_make(&weights[i], &(struct gemm_weight){side, side, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0},
                       1 + (uint64_t)i);
    checkpoint_add_weight(&checkpoint, names[i], &weights[i]);
  }
  checkpoint_write(&checkpoint, file);
  daemon_start(&daemon_under_test);
  int status = gemmd_connect(&session, daemon_under_test.socket, NULL);
  for (int i = 0; i < USERS && status == GEMMD_OK; i++) {
    gemmd_load request = {
        .name = names[i], .tensor = names[i], .format = GEMMD_FORMAT_INT8, .device = -1, .mode = GEMMD_MODE_ALL};
    status = gemmd_weight_load_file(session, file, &request, NULL);
  }
  if (status != GEMMD_OK) {
    fprintf(stderr, "%s\n", gemmd_error(session));
    exit(1);
  }
  gemmd_disconnect(session);
}

static int compare(const void *a, const void *b) {
  uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
  return (left > right) - (left < right);
}

/* What is counted for so long, once all have begun; returns the waits' p99 in ms. */
static double measure(struct scene *scene, int seconds, bool busy, const char *name) {
  const struct timespec settle = {.tv_nsec = SETTLE_NS};
  const int processes = 1 + (busy ? SESSIONS : 0);
  struct clients small, others = {.count = 0};
  scene->stop = scene->count = false;
  scene->waited = 0;
  scene->ready = 0;
  if (busy)
    clients_start(&others, SESSIONS, be_busy, scene);
  clients_start(&small, 1, be_small, scene);
  while (scene->ready < processes)
    nap_shortly();
  nanosleep(&settle, NULL);
  scene->count = true;
  sleep((unsigned)seconds);
  scene->count = false;
  scene->stop = true;
  clients_wait(&small);
  clients_wait(&others);
  uint32_t count = scene->waited;
  if (count == 0)
    return 0;
  qsort(scene->waits, count, sizeof *scene->waits, compare);
  double p99 = scene->waits[(uint64_t)count * 99 / 100] / 1e3;
  printf("an urgent row, %s: %u waits, median %.3f ms, p99 %.3f, maximum %.3f\n", name, count,
         scene->waits[count / 2] / 1e3, p99, scene->waits[count - 1] / 1e3);
  return p99;
}

int main(int count, char **words) {
  int seconds = count > 1 ? atoi(words[1]) : 10;
  int64_t size = count > 3 ? atoll(words[3]) : 1024;
  struct scene *scene = clients_share(sizeof *scene);
  rows_at_once = count > 2 ? atoll(words[2]) : 32;
  if (seconds < 1 || rows_at_once < 1 || size < 1)
    return 1;
  begin(size);
  double alone = measure(scene, seconds, false, "alone"), beside = measure(scene, seconds, true, "beside both");
  double one = (double)scene->rows[0], two = (double)scene->rows[1];
  printf("two users, %d s: %.0f rows by one session, %.0f by %d sessions, ratio %.3f\n", seconds, one, two,
         SESSIONS - 1, one / two);
  printf("the urgent row's p99 beside both is %.2f times that alone\n", beside / alone);
  daemon_end(&daemon_under_test);
  return one > 0 && two > 0 ? 0 : 1;
}
