/* Many clients that misbehave, one that checks: see usage(). Everything that a client does is drawn from the seed; the
 * order in which processes run is not. */
#include "client/gemmclient.h"
#include "proto/clock.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/product.h"
#include "tests/support/messages/raw.h"
#include "tests/support/reference/checkpoint.h"
#include "tests/support/reference/oracle.h"

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { CROWD = 24, ACTS = 8, KEPT = 2, CONTROLS = 2 };

static const struct gemm_weight shapes[KEPT] = {{96, 256, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0},
                                                {128, 128, GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK, 0, 0}};
static const char *const names[KEPT] = {"kept.int8", "kept.fp8"};
static const char *const act_names[ACTS] = {"computed",  "died computing", "stopped for a while", "scribbled",
                                            "truncated", "reconnected",    "loaded and dropped",  "fell silent"};

static struct daemon daemon_under_test;
static struct oracle_weight weights[KEPT];

struct scene {
  _Atomic bool stop;
  _Atomic uint64_t checked, wrong, refused, acts[ACTS], kills, longest_ns;
};
static struct scene *scene;

static void nap(long ms) {
  const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
  nanosleep(&time, NULL);
}

/* ---- who checks */

/* Every product must be right, whatever the others do; what is refused for now is asked for again. */
static int control(int index) {
  gemmd_session *session = NULL;
  gemmd_weight *handles[KEPT];
  struct product products[KEPT];
  if (gemmd_connect(&session, daemon_under_test.socket, NULL) != GEMMD_OK)
    return 1;
  for (int i = 0; i < KEPT; i++) {
    struct product_request request = {.weight = &weights[i],
                                      .m = 1 + 6 * index + i,
                                      .x_type = GEMM_F16,
                                      .y_type = GEMM_F32,
                                      .seed = (uint64_t)(index * 10 + i)};
    if (gemmd_weight_open(session, names[i], &handles[i]) != GEMMD_OK || !product_make(&products[i], session, &request))
      return 1;
  }
  for (int i = 0; !atomic_load(&scene->stop); i = (i + 1) % KEPT) {
    uint64_t begin = clock_ns();
    memset(products[i].product.y, 0xfd, (size_t)(products[i].request.m * shapes[i].n) * sizeof(float));
    int status = gemmd_matmul(handles[i], &products[i].product);
    uint64_t ns = clock_ns() - begin, longest = atomic_load(&scene->longest_ns);
    while (ns > longest && !atomic_compare_exchange_weak(&scene->longest_ns, &longest, ns))
      continue;
    atomic_fetch_add(&scene->checked, 1);
    if (gemmd_status_retryable(status) && status != GEMMD_DISCONNECTED)
      atomic_fetch_add(&scene->refused, 1);
    else if (status != GEMMD_OK || !product_right(&products[i])) {
      fprintf(stderr, "control %d: %s: %s\n", index, gemmd_status_name(status), gemmd_error(session));
      atomic_fetch_add(&scene->wrong, 1);
      return 1;
    }
  }
  for (int i = 0; i < KEPT; i++)
    product_free(&products[i], session);
  gemmd_disconnect(session);
  return 0;
}

/* ---- who misbehaves */

struct rogue {
  uint64_t random;
  int index;
  gemmd_session *session;
  gemmd_weight *weight;
  float *x, *y;
};

static uint64_t draw(struct rogue *rogue, uint64_t below) {
  return oracle_random(&rogue->random) % below;
}

static bool meet(struct rogue *rogue) {
  const gemmd_options options = {.arena_bytes = 1 << 20, .entries = 8, .reconnect_ms = 1, .timeout_ms = 20000};
  if (gemmd_connect(&rogue->session, daemon_under_test.socket, &options) != GEMMD_OK ||
      gemmd_weight_open(rogue->session, names[0], &rogue->weight) != GEMMD_OK)
    return false;
  rogue->x = gemmd_alloc(rogue->session, 32 * 256 * sizeof(float));
  rogue->y = gemmd_alloc(rogue->session, 32 * 96 * sizeof(float));
  return rogue->x != NULL && rogue->y != NULL;
}

static void submit_some(struct rogue *rogue) {
  for (uint64_t i = 0, count = 1 + draw(rogue, 8); i < count; i++) {
    gemmd_product product = {
        .m = 1 + (uint32_t)draw(rogue, 32), .x = rogue->x, .x_type = GEMMD_F32, .y = rogue->y, .y_type = GEMMD_F32};
    uint64_t ticket;
    if (gemmd_submit(rogue->weight, &product, &ticket) != GEMMD_OK)
      return;
  }
}

/* From the first byte that is mapped: header, rings and tensors. */
static void scribble(struct rogue *rogue) {
  uint8_t *tensors = (uint8_t *)rogue->x;
  for (uint64_t i = 0, count = 200 + draw(rogue, 2000); i < count; i++) {
    if (i % 16 == 0)
      submit_some(rogue);
    tensors[-(int64_t)draw(rogue, 8192) - 1] = (uint8_t)draw(rogue, 256); /* the rings lie right before */
  }
}

static void truncate_messages(struct rogue *rogue) {
  uint8_t bytes[256];
  int socket = raw_connect(daemon_under_test.socket);
  for (size_t i = 0; i < sizeof bytes; i++)
    bytes[i] = (uint8_t)draw(rogue, 256);
  bytes[0] = 0x94;
  raw_send(socket, bytes, 1 + draw(rogue, sizeof bytes - 1), NULL, 0);
  close(socket);
}

static void load_and_drop(struct rogue *rogue) {
  char name[32], path[64];
  snprintf(name, sizeof name, "rogue.%d", rogue->index);
  snprintf(path, sizeof path, "model-%d.safetensors", (int)draw(rogue, 3));
  gemmd_load load = {.name = name,
                     .tensor = "t",
                     .format = draw(rogue, 2) == 0 ? GEMMD_FORMAT_INT8 : GEMMD_FORMAT_F16,
                     .replace = true,
                     .device = -1};
  (void)gemmd_weight_load_file(rogue->session, daemon_path(&daemon_under_test, path), &load, NULL);
  if (draw(rogue, 4) != 0) /* or the next round, or who clears up, does it */
    (void)gemmd_weight_unload(rogue->session, name, NULL);
}

static void act(struct rogue *rogue) {
  unsigned what = (unsigned)draw(rogue, ACTS);
  atomic_fetch_add(&scene->acts[what], 1);
  submit_some(rogue);
  switch (what) {
  case 0:
    while (gemmd_wait_any(rogue->session, 20000, NULL) == GEMMD_OK)
      continue;
    break;
  case 1:
    kill(getpid(), SIGKILL);
    break;
  case 2:
    raise(SIGSTOP);
    break;
  case 3:
    scribble(rogue);
    break;
  case 4:
    truncate_messages(rogue);
    break;
  case 5:
    gemmd_disconnect(rogue->session);
    if (!meet(rogue))
      exit(0);
    break;
  case 6:
    load_and_drop(rogue);
    break;
  default:
    nap((long)draw(rogue, 300));
  }
}

static int rogue_life(int index, uint64_t seed) {
  struct rogue rogue = {.random = seed, .index = index};
  if (!meet(&rogue))
    return 0; /* it was turned away */
  for (uint64_t i = 0, count = 1 + draw(&rogue, 12); i < count && !atomic_load(&scene->stop); i++)
    act(&rogue);
  gemmd_disconnect(rogue.session);
  return 0;
}

/* ---- what is there */

struct inventory {
  int descriptors, worker_descriptors, processes;
  uint32_t sessions, names, weights;
  uint64_t device_bytes, arena_bytes;
};

static int count_entries(const char *format, int pid) {
  char path[64];
  int count = 0;
  snprintf(path, sizeof path, format, pid);
  DIR *folder = opendir(path);
  while (folder != NULL && readdir(folder) != NULL)
    count++;
  if (folder != NULL)
    closedir(folder);
  return count;
}

static int count_children(pid_t pid) {
  char path[64];
  int count = 0, child;
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
  FILE *file = fopen(path, "r");
  while (file != NULL && fscanf(file, "%d", &child) == 1)
    count++;
  if (file != NULL)
    fclose(file);
  return count;
}

static void take_inventory(gemmd_session *session, struct inventory *out) {
  static gemmd_daemon_info info;
  assert_int_equal(gemmd_daemon_status(session, &info), GEMMD_OK);
  out->descriptors = count_entries("/proc/%d/fd", (int)daemon_under_test.pid);
  out->worker_descriptors = count_entries("/proc/%d/fd", (int)info.device[0].pid);
  out->processes = count_children(daemon_under_test.pid);
  out->sessions = info.sessions;
  out->names = info.names;
  out->weights = info.weights;
  out->device_bytes = info.device[0].memory_slabs;
  out->arena_bytes = info.arena_bytes;
}

/* Once it stays as it is: a worker that has just begun on a busy machine still opens and closes files. */
static void take_settled_inventory(gemmd_session *session, struct inventory *out) {
  enum { SAME = 4, TRIES = 100 };
  struct inventory next;
  memset(&next, 0, sizeof next);
  for (int same = 0, tries = 0; same < SAME && tries < TRIES; tries++, nap(500)) {
    take_inventory(session, &next);
    same = memcmp(&next, out, sizeof next) == 0 ? same + 1 : 0;
    *out = next;
  }
}

static void print_inventory(const char *when, const struct inventory *there) {
  printf("%s: descriptors %d and %d, children %d, sessions %u, names %u, weights %u, device bytes %llu, arena bytes "
         "%llu\n",
         when, there->descriptors, there->worker_descriptors, there->processes, there->sessions, there->names,
         there->weights, (unsigned long long)there->device_bytes, (unsigned long long)there->arena_bytes);
}

static bool drop_rogue(void *user, const gemmd_weight_info *info) {
  snprintf(user, 256, "%s", info->name);
  return false;
}

static void clear_up(gemmd_session *session) {
  char name[256];
  for (;;) {
    name[0] = '\0';
    assert_int_equal(gemmd_weight_list(session, "rogue.*", drop_rogue, name), GEMMD_OK);
    if (name[0] == '\0')
      return;
    (void)gemmd_weight_unload(session, name, NULL);
  }
}

/* ---- the play */

static pid_t start(int (*life)(int, uint64_t), int index, uint64_t seed) {
  fflush(NULL);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(life(index, seed));
  }
  return pid;
}

static int control_life(int index, uint64_t seed) {
  return control(index);
}

static void make_all(void) {
  static struct checkpoint checkpoint;
  daemon_make(&daemon_under_test, "worker_restarts_max = 1000\nuser_sessions_max = 0\n");
  for (int i = 0; i < KEPT; i++) {
    oracle_weight_make(&weights[i], &shapes[i], (uint64_t)i + 1);
    checkpoint_add_weight(&checkpoint, names[i], &weights[i]);
  }
  checkpoint_write(&checkpoint, daemon_path(&daemon_under_test, "kept.safetensors"));
  for (int i = 0; i < 3; i++) {
    struct oracle_weight weight;
    char name[32];
    const struct gemm_weight shape = {200 + i, 300, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0};
    oracle_weight_make(&weight, &shape, (uint64_t)i + 50);
    checkpoint_add_values(&checkpoint, "t", &weight);
    snprintf(name, sizeof name, "model-%d.safetensors", i);
    checkpoint_write(&checkpoint, daemon_path(&daemon_under_test, name));
    oracle_weight_free(&weight);
  }
}

static gemmd_session *watch(void) {
  gemmd_session *session = NULL;
  assert_int_equal(gemmd_connect(&session, daemon_under_test.socket, NULL), GEMMD_OK);
  return session;
}

static void load_kept(gemmd_session *session) {
  for (int i = 0; i < KEPT; i++) {
    gemmd_load load = {
        .name = names[i], .tensor = names[i], .format = (enum gemmd_format)shapes[i].format, .device = -1};
    assert_int_equal(gemmd_weight_load_file(session, daemon_path(&daemon_under_test, "kept.safetensors"), &load, NULL),
                     GEMMD_OK);
  }
}

static void kill_worker(gemmd_session *session, bool counted) {
  gemmd_daemon_info info;
  assert_int_equal(gemmd_daemon_status(session, &info), GEMMD_OK);
  if (info.device[0].pid > 1 && kill((pid_t)info.device[0].pid, SIGKILL) == 0 && counted)
    atomic_fetch_add(&scene->kills, 1);
}

/* One round over the crowd: those that stopped go on, those that ended have successors. */
static void stir(pid_t *crowd, uint64_t *seed) {
  for (int i = 0; i < CROWD; i++) {
    int status;
    pid_t changed = waitpid(crowd[i], &status, WNOHANG | WUNTRACED);
    if (changed == crowd[i] && WIFSTOPPED(status))
      kill(crowd[i], SIGCONT);
    else if (changed == crowd[i])
      crowd[i] = start(rogue_life, i, oracle_random(seed));
  }
}

static bool controls_live(const pid_t *controls) {
  for (int i = 0; i < CONTROLS; i++) {
    siginfo_t ended = {.si_pid = 0};
    if (waitid(P_PID, (id_t)controls[i], &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid != 0)
      return false;
  }
  return true;
}

static void play(long seconds, uint64_t seed, uint64_t kill_ms, gemmd_session *session) {
  pid_t crowd[CROWD], controls[CONTROLS];
  for (int i = 0; i < CONTROLS; i++)
    controls[i] = start(control_life, i, 0);
  for (int i = 0; i < CROWD; i++)
    crowd[i] = start(rogue_life, i, oracle_random(&seed));
  uint64_t end = clock_ns() + (uint64_t)seconds * 1000000000u, next_kill = clock_ns() + kill_ms * 1000000u;
  while (clock_ns() < end && controls_live(controls)) {
    stir(crowd, &seed);
    nap(5);
    if (clock_ns() > next_kill) {
      kill_worker(session, true);
      next_kill = clock_ns() + kill_ms * 1000000u;
    }
  }
  atomic_store(&scene->stop, true);
  for (int i = 0; i < CONTROLS; i++) {
    int status;
    assert_int_equal(waitpid(controls[i], &status, 0), controls[i]);
    assert_int_equal(status, 0);
  }
  for (int i = 0; i < CROWD; i++) {
    kill(crowd[i], SIGKILL);
    waitpid(crowd[i], NULL, 0);
  }
}

/* Until nothing is more than it was; what never goes shows in the numbers printed last. */
static bool back_to(const struct inventory *before, gemmd_session *session) {
  struct inventory after;
  memset(&after, 0, sizeof after);
  for (int i = 0; i < 3000; i++, nap(10)) {
    clear_up(session);
    take_inventory(session, &after);
    if (memcmp(&after, before, sizeof after) == 0)
      break;
  }
  print_inventory("after ", &after);
  return memcmp(&after, before, sizeof after) == 0;
}

/* The daemon makes it with the first kernel that is found, and keeps it. */
static void have_table_made(gemmd_session *session) {
  uint64_t bytes;
  int fd;
  assert_int_equal(gemmd_tunings_open(session, 0, &fd, &bytes), GEMMD_OK);
  close(fd);
}

static long seconds;
static uint64_t seed, kill_ms;

static void chaos(void **state) {
  make_all();
  daemon_start(&daemon_under_test);
  gemmd_session *session = watch();
  load_kept(session);
  have_table_made(session);
  kill_worker(session, false); /* what a successor holds is what is compared with */
  nap(1000);
  scene = clients_share(sizeof *scene);
  struct inventory before;
  memset(&before, 0, sizeof before); /* it is compared bytewise */
  take_settled_inventory(session, &before);
  print_inventory("before", &before);
  play(seconds, seed, kill_ms, session);
  bool clean = back_to(&before, session);
  for (int i = 0; i < ACTS; i++)
    printf("%8llu times a client %s\n", (unsigned long long)atomic_load(&scene->acts[i]), act_names[i]);
  printf("%8llu times the worker was killed\n%8llu products checked, %llu wrong, %llu refused for now; longest wait "
         "%.1f ms\n",
         (unsigned long long)atomic_load(&scene->kills), (unsigned long long)atomic_load(&scene->checked),
         (unsigned long long)atomic_load(&scene->wrong), (unsigned long long)atomic_load(&scene->refused),
         (double)atomic_load(&scene->longest_ns) / 1e6);
  assert_true(atomic_load(&scene->checked) > 0);
  assert_true(clean);
  gemmd_disconnect(session);
  daemon_end(&daemon_under_test);
  for (int i = 0; i < KEPT; i++)
    oracle_weight_free(&weights[i]);
}

int main(int count, char **words) {
  seconds = count > 1 ? strtol(words[1], NULL, 10) : 600;
  seed = count > 2 ? strtoull(words[2], NULL, 0) : 1;
  kill_ms = count > 3 ? strtoull(words[3], NULL, 0) : 4000;
  if (count > 4 || seconds < 1 || kill_ms < 1) {
    fprintf(stderr, "usage: chaos [SECONDS [SEED [KILL_MS]]]: the worker is killed every KILL_MS (4000)\n");
    return 2;
  }
  printf("chaos for %ld s with seed %llu, the worker is killed every %llu ms\n", seconds, (unsigned long long)seed,
         (unsigned long long)kill_ms);
  const struct CMUnitTest tests[] = {cmocka_unit_test(chaos)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
