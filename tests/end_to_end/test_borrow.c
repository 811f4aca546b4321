/* Weights that processes borrow by the library, on the CPU backend: the bytes of what is mapped stay whatever becomes
 * of the worker, of gemmd and of other borrowers. */
#include "client/gemmclient.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/manager.h"
#include "tests/support/daemon/product.h"
#include "tests/support/daemon/shell.h"
#include "tests/support/daemon/status.h"
#include "tests/support/reference/checkpoint.h"
#include "tests/support/reference/oracle.h"
#include "tests/support/system/nap.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { WEIGHTS = 4 };
static const struct gemm_weight shape = {200, 512, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0};
static const char *const names[WEIGHTS] = {"a", "b", "c", "d"};
static struct oracle_weight weights[WEIGHTS];
static struct daemon daemon_under_test;

static void make(const char *options) {
  static struct checkpoint checkpoint;
  daemon_make(&daemon_under_test, options);
  for (int i = 0; i < WEIGHTS; i++) {
    oracle_weight_make(&weights[i], &shape, (uint64_t)i + 1);
    checkpoint_add_weight(&checkpoint, names[i], &weights[i]);
  }
  checkpoint_write(&checkpoint, daemon_path(&daemon_under_test, "model.safetensors"));
}

static void unmake(void) {
  daemon_remove(&daemon_under_test);
  for (int i = 0; i < WEIGHTS; i++)
    oracle_weight_free(&weights[i]);
}

static gemmd_session *begin(const char *options) {
  make(options);
  daemon_start(&daemon_under_test);
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  for (int i = 0; i < WEIGHTS; i++)
    daemon_load(session, &daemon_under_test, names[i], GEMMD_FORMAT_INT8);
  return session;
}

static void end(gemmd_session *session) {
  gemmd_disconnect(session);
  daemon_stop(&daemon_under_test);
  unmake();
}

/* ---- what a borrower has */

struct mapped {
  gemmd_borrowed *borrowed;
  gemmd_borrowed_part part;
  const uint8_t *base;
  uint8_t *copy; /* of the part, as it was when it was mapped */
  ino_t inode;
};

static struct mapped map(gemmd_session *session, const char *name) {
  struct mapped mapped;
  struct stat stat;
  unsigned count;
  expect_ok(session, gemmd_weight_borrow(session, name, &mapped.borrowed));
  const gemmd_borrowed_part *parts = gemmd_borrowed_parts(mapped.borrowed, &count);
  assert_int_equal(count, 1);
  mapped.part = parts[0];
  mapped.base = mmap(NULL, mapped.part.slab_bytes, PROT_READ, MAP_SHARED, mapped.part.fd, 0);
  assert_ptr_not_equal(mapped.base, MAP_FAILED);
  mapped.copy = malloc(mapped.part.bytes);
  assert_non_null(mapped.copy);
  memcpy(mapped.copy, mapped.base + mapped.part.offset, mapped.part.bytes);
  assert_int_equal(fstat(mapped.part.fd, &stat), 0);
  mapped.inode = stat.st_ino;
  return mapped;
}

static void expect_same(const struct mapped *mapped) {
  assert_memory_equal(mapped->base + mapped->part.offset, mapped->copy, mapped->part.bytes);
}

static void forget(struct mapped *mapped) {
  munmap((void *)(uintptr_t)mapped->base, mapped->part.slab_bytes);
  free(mapped->copy);
}

static void unmap(struct mapped *mapped) {
  expect_same(mapped);
  forget(mapped);
  gemmd_weight_return(mapped->borrowed);
}

static uint32_t borrows_of(gemmd_session *session, const char *name) {
  gemmd_weight_info info;
  expect_ok(session, gemmd_weight_stat(session, name, &info));
  return info.borrows;
}

static void await_borrows(gemmd_session *session, const char *name, uint32_t count) {
  while (borrows_of(session, name) != count)
    nap_shortly();
}

/* Everything that could take memory: under other names, a weight after the other comes and goes. */
static void load_and_unload(gemmd_session *session) {
  for (int round = 0; round < 3; round++)
    for (int i = 0; i < WEIGHTS; i++) {
      const gemmd_load request = {
          .name = "guest", .tensor = names[i], .format = GEMMD_FORMAT_FP8, .device = -1, .replace = true};
      const char *path = daemon_path(&daemon_under_test, "values.safetensors");
      expect_ok(session, gemmd_weight_load_file(session, path, &request, NULL));
      expect_ok(session, gemmd_weight_unload(session, "guest", NULL));
    }
}

/* The same values as numbers, to be loaded in another format. */
static void write_values(void) {
  static struct checkpoint checkpoint;
  for (int i = 0; i < WEIGHTS; i++)
    checkpoint_add_values(&checkpoint, names[i], &weights[i]);
  checkpoint_write(&checkpoint, daemon_path(&daemon_under_test, "values.safetensors"));
}

static void expect_product(gemmd_session *session, int weight) {
  const struct product_request request = {
      .weight = &weights[weight], .m = 5, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 3};
  gemmd_weight *handle;
  expect_ok(session, gemmd_weight_open(session, names[weight], &handle));
  assert_true(product_run(session, handle, &request));
  gemmd_weight_close(handle);
}

/* ---- tests */

static void a_session_has_each_slab_once(void **state) {
  if (daemon_on_cuda())
    skip();
  gemmd_session *session = begin("");
  gemmd_borrowed *borrowed[WEIGHTS];
  gemmd_weight_info info;
  unsigned count;
  for (int i = 0; i < WEIGHTS; i++) {
    expect_ok(session, gemmd_weight_borrow(session, names[i], &borrowed[i]));
    assert_int_equal(gemmd_borrowed_parts(borrowed[i], &count)->fd, gemmd_borrowed_parts(borrowed[0], &count)->fd);
    expect_ok(session, gemmd_weight_stat(session, names[i], &info));
    assert_string_equal(gemmd_borrowed_info(borrowed[i])->name, names[i]);
    assert_memory_equal(gemmd_borrowed_info(borrowed[i])->hash, info.hash, sizeof info.hash);
    assert_int_equal(gemmd_borrowed_info(borrowed[i])->bytes, info.bytes);
  }
  int fd = gemmd_borrowed_parts(borrowed[0], &count)->fd;
  for (int i = 0; i < WEIGHTS; i++) {
    assert_true(fcntl(fd, F_GETFD) >= 0);
    gemmd_weight_return(borrowed[i]);
    assert_int_equal(borrows_of(session, names[i]), 0);
  }
  assert_int_equal(fcntl(fd, F_GETFD), -1); /* or it alone would keep the memory */
  expect_ok(session, gemmd_weight_borrow(session, "a", &borrowed[0]));
  assert_true(fcntl(gemmd_borrowed_parts(borrowed[0], &count)->fd, F_GETFD) >= 0); /* given anew */
  end(session);
}

/* The descriptor is for reading, and who has it cannot open it otherwise, unless root or gemmd's own user. */
static void a_slab_on_cores_is_for_reading(void **state) {
  char path[64];
  int status;
  if (daemon_on_cuda() || geteuid() != 0)
    skip();
  gemmd_session *session = begin("");
  struct mapped mapped = map(session, "a");
  int fd = mapped.part.fd;
  assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
  assert_ptr_equal(mmap(NULL, mapped.part.slab_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  pid_t other = fork();
  if (other == 0)
    _exit(setgid(65534) != 0 || setuid(65534) != 0 || open(path, O_RDWR) >= 0 || open(path, O_WRONLY) >= 0);
  assert_int_equal(waitpid(other, &status, 0), other);
  assert_int_equal(status, 0);
  unmap(&mapped);
  end(session);
}

static void what_is_borrowed_is_not_overwritten(void **state) {
  if (daemon_on_cuda())
    skip();
  gemmd_session *session = begin(""), *other = daemon_join(&daemon_under_test, NULL);
  write_values();
  struct mapped a = map(other, "a"), b = map(other, "b");
  expect_ok(session, gemmd_weight_unload(session, "a", NULL));
  load_and_unload(session);
  expect_same(&a);
  expect_same(&b);
  gemmd_weight_return(a.borrowed); /* and still reads it, as a graph may */
  load_and_unload(session);
  expect_same(&a);
  gemmd_disconnect(other);
  load_and_unload(session);
  expect_same(&a);
  expect_same(&b);
  forget(&a);
  forget(&b);
  expect_product(session, 1);
  end(session);
}

static int borrow_and_wait(int index, void *user) {
  _Atomic int *stage = user;
  gemmd_borrowed *borrowed;
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  int status = gemmd_weight_borrow(session, names[index], &borrowed);
  atomic_fetch_add(stage, 1);
  while (status == GEMMD_OK && atomic_load(stage) >= 0)
    nap_shortly();
  gemmd_disconnect(session);
  return status == GEMMD_OK ? 0 : 1;
}

/* What gemmctl says of "b", which that process has borrowed. */
static void expect_shown(pid_t pid) {
  char line[128];
  shell_begin(&daemon_under_test);
  snprintf(line, sizeof line, "$T/gemmctl weights b | grep -q '^borrowed by process %d of user %d$'", (int)pid,
           (int)getuid());
  shell_expect(line, 0);
  shell_expect("$T/gemmctl weights c | grep -q '^borrowed'", 1);
  json_t *object = shell_expect_json("$T/gemmctl weights --json b", 0);
  const json_t *weight = json_array_get(json_object_get(object, "weights"), 0);
  assert_int_equal(shell_integer(weight, "borrows"), 1);
  assert_int_equal(shell_integer(json_array_get(json_object_get(weight, "borrowers"), 0), "pid"), pid);
  json_decref(object);
  object = shell_expect_json("$T/gemmctl status --json", 0);
  assert_true(shell_integer(json_array_get(json_object_get(object, "devices"), 0), "memory_lent") > 0);
  json_decref(object);
  shell_expect("$T/gemmctl metrics | grep -q '^gemmd_device_lent_bytes{.*} [1-9]'", 0);
  shell_expect("$T/gemmctl metrics | grep -q '^gemmd_weights_withdrawn_total 0$'", 0);
}

static void borrowers_are_shown_and_go_with_their_process(void **state) {
  struct clients clients;
  gemmd_borrower who[4];
  unsigned count;
  int status;
  if (daemon_on_cuda())
    skip();
  gemmd_session *session = begin("");
  _Atomic int *stage = clients_share(sizeof *stage);
  clients_start(&clients, 2, borrow_and_wait, (void *)stage);
  while (atomic_load(stage) < 2)
    nap_shortly();
  expect_ok(session, gemmd_weight_borrowers(session, "b", who, 4, &count, NULL));
  assert_int_equal(count, 1);
  assert_int_equal(who[0].pid, clients.pids[1]);
  assert_int_equal(who[0].user, getuid());
  assert_true(device_info(session).memory_lent > 0);
  expect_shown(clients.pids[1]);
  assert_int_equal(kill(clients.pids[0], SIGKILL), 0);
  assert_int_equal(waitpid(clients.pids[0], &status, 0), clients.pids[0]);
  await_borrows(session, "a", 0);
  assert_int_equal(borrows_of(session, "b"), 1);
  atomic_store(stage, -1);
  assert_int_equal(waitpid(clients.pids[1], &status, 0), clients.pids[1]);
  assert_int_equal(status, 0);
  await_borrows(session, "b", 0);
  end(session);
}

static void a_worker_that_dies_takes_nothing_from_a_borrower(void **state) {
  if (daemon_on_cuda())
    skip();
  gemmd_session *session = begin("");
  struct mapped a = map(session, "a");
  device_kill_worker(session);
  expect_same(&a);
  struct mapped b = map(session, "b"); /* whatever there is of a worker */
  assert_int_equal(b.inode, a.inode);
  assert_int_equal(gemmd_borrowed_look(a.borrowed), GEMMD_BORROWED_SHARED);
  expect_product(session, 0);
  unmap(&a);
  unmap(&b);
  end(session);
}

/* By gemmd's own descriptor: nobody else has one that can be written through, but root. */
static void plant(const struct mapped *mapped) {
  char path[64];
  struct stat stat;
  int found = -1;
  for (int fd = 3; fd < 1000 && found < 0; fd++) {
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)daemon_under_test.pid, fd);
    int own = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (own < 0)
      continue;
    if (fstat(own, &stat) == 0 && stat.st_ino == mapped->inode && S_ISREG(stat.st_mode))
      found = own;
    else
      close(own);
  }
  assert_true(found >= 0);
  const uint8_t byte = (uint8_t)~mapped->copy[7];
  assert_int_equal(pwrite(found, &byte, 1, (off_t)(mapped->part.offset + 7)), 1);
  close(found);
}

static void who_has_borrowed_what_was_damaged_is_told(void **state) {
  gemmd_weight_info info;
  if (daemon_on_cuda() || geteuid() != 0)
    skip();
  gemmd_session *session = begin(""), *other = daemon_join(&daemon_under_test, NULL);
  struct mapped a = map(session, "a"), b = map(session, "b"), again = map(other, "a");
  plant(&a);
  gemmd_weight_return(again.borrowed);
  while (gemmd_weight_stat(other, "a", &info) == GEMMD_OK)
    nap_shortly();
  expect_ok(session, gemmd_ping(session, NULL)); /* takes in what has come before */
  assert_int_equal(gemmd_borrowed_look(a.borrowed), GEMMD_BORROWED_WITHDRAWN);
  assert_int_equal(gemmd_borrowed_look(b.borrowed), GEMMD_BORROWED_SHARED);
  assert_int_equal(daemon_log_count(&daemon_under_test, "the weight \"a\" of user"), 1);
  daemon_load(session, &daemon_under_test, "a", GEMMD_FORMAT_INT8);
  struct mapped sound = map(session, "a");
  assert_memory_equal(sound.copy, a.copy, a.part.bytes);
  expect_product(session, 0);
  gemmd_weight_return(a.borrowed);
  forget(&a);
  forget(&again);
  unmap(&b);
  unmap(&sound);
  gemmd_disconnect(other);
  end(session);
}

/* The next gemmd has the same memory: a second borrower gets the very same. */
static void expect_shared(gemmd_session *session, struct mapped *a) {
  expect_ok(session, gemmd_ping(session, NULL));
  expect_same(a);
  assert_int_equal(gemmd_borrowed_look(a->borrowed), GEMMD_BORROWED_SHARED);
  assert_int_equal(borrows_of(session, "a"), 1);
  gemmd_session *other = daemon_join(&daemon_under_test, NULL);
  struct mapped second = map(other, "a");
  assert_int_equal(second.inode, a->inode);
  assert_int_equal(borrows_of(session, "a"), 2);
  unmap(&second);
  gemmd_disconnect(other);
}

static void an_upgrade_keeps_what_is_lent(void **state) {
  if (daemon_on_cuda())
    skip();
  gemmd_session *session = begin("");
  write_values();
  struct mapped a = map(session, "a");
  daemon_upgrade(&daemon_under_test);
  expect_shared(session, &a);
  expect_ok(session, gemmd_weight_unload(session, "a", NULL));
  load_and_unload(session); /* the rule outlives the gemmd that lent it */
  unmap(&a);
  load_and_unload(session);
  expect_product(session, 2);
  end(session);
}

static void a_restart_with_stored_descriptors_keeps_what_is_lent(void **state) {
  if (daemon_on_cuda())
    skip();
  make("");
  write_values();
  struct manager *manager = manager_start(&daemon_under_test);
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  for (int i = 0; i < WEIGHTS; i++)
    daemon_load(session, &daemon_under_test, names[i], GEMMD_FORMAT_INT8);
  struct mapped a = map(session, "a");
  for (unsigned starts = 1; starts < 3; starts++) {
    assert_int_equal(kill(atomic_load(&manager->gemmd), SIGKILL), 0);
    manager_await(manager, starts + 1);
    expect_shared(session, &a);
    load_and_unload(session);
  }
  unmap(&a);
  gemmd_disconnect(session);
  manager_stop(manager);
  unmake();
}

static void a_gemmd_that_comes_back_empty_leaves_the_borrower_alone(void **state) {
  if (daemon_on_cuda())
    skip();
  gemmd_session *session = begin("");
  struct mapped a = map(session, "a");
  daemon_kill(&daemon_under_test);
  daemon_start(&daemon_under_test);
  expect_ok(session, gemmd_ping(session, NULL));
  assert_int_equal(gemmd_borrowed_look(a.borrowed), GEMMD_BORROWED_ALONE);
  expect_same(&a);
  daemon_load(session, &daemon_under_test, "a", GEMMD_FORMAT_INT8);
  struct mapped anew = map(session, "a"); /* a slab of the same number, perhaps, and other memory */
  assert_true(anew.inode != a.inode);
  assert_memory_equal(anew.copy, a.copy, a.part.bytes);
  assert_int_equal(gemmd_borrowed_look(anew.borrowed), GEMMD_BORROWED_SHARED);
  unmap(&a);
  assert_int_equal(borrows_of(session, "a"), 1); /* the other is not gemmd's to count */
  unmap(&anew);
  end(session);
}

/* Room for so many more descriptors in this process. */
static rlim_t leave_descriptors(rlim_t more) {
  struct rlimit limit;
  int lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);
  assert_true(lowest >= 0);
  close(lowest);
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlim_t before = limit.rlim_cur;
  limit.rlim_cur = more == RLIM_INFINITY ? limit.rlim_max : (rlim_t)lowest + more;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
  return before;
}

static void a_full_table_of_descriptors_is_said(void **state) {
  gemmd_borrowed *borrowed;
  struct rlimit limit;
  if (daemon_on_cuda())
    skip();
  gemmd_session *session = begin("");
  rlim_t before = leave_descriptors(0);
  int status = gemmd_weight_borrow(session, "a", &borrowed);
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = before;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
  assert_int_equal(status, GEMMD_BUSY);
  assert_null(borrowed);
  assert_non_null(strstr(gemmd_error(session), "descriptors"));
  assert_int_equal(borrows_of(session, "a"), 0);
  struct mapped a = map(session, "a"); /* nothing is lost */
  unmap(&a);
  end(session);
}

static void there_is_nothing_to_borrow(void **state) {
  gemmd_borrowed *borrowed;
  if (daemon_on_cuda())
    skip();
  gemmd_session *session = begin("");
  assert_int_equal(gemmd_weight_borrow(session, "nothing", &borrowed), GEMMD_NOT_FOUND);
  assert_null(borrowed);
  assert_int_equal(gemmd_weight_borrow(session, "", &borrowed), GEMMD_INVALID);
  assert_int_equal(gemmd_weight_borrow(session, NULL, &borrowed), GEMMD_INVALID);
  gemmd_weight_return(NULL);
  end(session);
}

/* More parts than descriptors fit into a message. */
static void a_weight_in_sixteen_parts_comes_in_two_answers(void **state) {
  static const struct gemm_weight tall = {16 * 128, 64, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0};
  struct oracle_weight weight;
  gemmd_borrowed *borrowed;
  unsigned count;
  if (daemon_on_cuda())
    skip();
  make("devices = 16\ncpu_threads = 1\n");
  oracle_weight_make(&weight, &tall, 9);
  checkpoint_write_one(daemon_path(&daemon_under_test, "tall.safetensors"), "tall", &weight);
  oracle_weight_free(&weight);
  daemon_start(&daemon_under_test);
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  const gemmd_load request = {
      .name = "tall", .tensor = "tall", .format = GEMMD_FORMAT_INT8, .placement = GEMMD_PLACEMENT_SPLIT, .device = -1};
  expect_ok(session,
            gemmd_weight_load_file(session, daemon_path(&daemon_under_test, "tall.safetensors"), &request, NULL));
  expect_ok(session, gemmd_weight_borrow(session, "tall", &borrowed));
  const gemmd_borrowed_part *parts = gemmd_borrowed_parts(borrowed, &count);
  assert_int_equal(count, 16);
  for (unsigned i = 0; i < count; i++) {
    assert_int_equal(parts[i].n_begin, 128 * i);
    for (unsigned before = 0; before < i; before++)
      assert_true(parts[i].fd != parts[before].fd && parts[i].slab != parts[before].slab);
  }
  assert_int_equal(borrows_of(session, "tall"), 1);
  end(session);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_session_has_each_slab_once),
      cmocka_unit_test(a_slab_on_cores_is_for_reading),
      cmocka_unit_test(what_is_borrowed_is_not_overwritten),
      cmocka_unit_test(borrowers_are_shown_and_go_with_their_process),
      cmocka_unit_test(a_worker_that_dies_takes_nothing_from_a_borrower),
      cmocka_unit_test(who_has_borrowed_what_was_damaged_is_told),
      cmocka_unit_test(an_upgrade_keeps_what_is_lent),
      cmocka_unit_test(a_restart_with_stored_descriptors_keeps_what_is_lent),
      cmocka_unit_test(a_gemmd_that_comes_back_empty_leaves_the_borrower_alone),
      cmocka_unit_test(a_full_table_of_descriptors_is_said),
      cmocka_unit_test(there_is_nothing_to_borrow),
      cmocka_unit_test(a_weight_in_sixteen_parts_comes_in_two_answers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
