/* What gemmd finds in the descriptor store after it was killed, where that is not what it should be: too much, too
 * little, or of no use to the configuration of now. */
#include "client/gemmclient.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/manager.h"
#include "tests/support/daemon/product.h"
#include "tests/support/daemon/status.h"
#include "tests/support/reference/checkpoint.h"
#include "tests/support/reference/oracle.h"
#include "tests/support/system/nap.h"

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

static const struct gemm_weight shape = {96, 256, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0};
static const struct gemm_weight more_than_a_slab = {2100, 1024, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0};
static struct oracle_weight weight;
static struct daemon daemon_under_test;
static struct manager *manager;

static void begin(const char *options) {
  daemon_make(&daemon_under_test, options);
  oracle_weight_make(&weight, &shape, 1);
  checkpoint_write_one(daemon_path(&daemon_under_test, "model.safetensors"), "w", &weight);
  manager = manager_start(&daemon_under_test);
}

static void end(void) {
  manager_stop(manager);
  daemon_remove(&daemon_under_test);
  oracle_weight_free(&weight);
}

static void load(gemmd_session *session, const char *name, int device) {
  const gemmd_load request = {.name = name, .tensor = "w", .format = GEMMD_FORMAT_INT8, .device = device};
  const char *path = daemon_path(&daemon_under_test, "model.safetensors");
  expect_ok(session, gemmd_weight_load_file(session, path, &request, NULL));
}

/* gemmd is killed, and there is another when this returns. */
static void lose_gemmd(void) {
  unsigned starts = atomic_load(&manager->starts);
  assert_int_equal(kill(atomic_load(&manager->gemmd), SIGKILL), 0);
  manager_await(manager, starts + 1);
}

/* The manager hears of what is parked later than the client of its load. Ends by the test's limit. */
static void await_stored(unsigned count) {
  while (atomic_load(&manager->stored) != count)
    nap_shortly();
}

static void expect_product(gemmd_session *session, const char *name) {
  const struct product_request request = {.weight = &weight, .m = 5, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 3};
  gemmd_weight *handle;
  expect_ok(session, gemmd_weight_open(session, name, &handle));
  assert_true(product_run(session, handle, &request));
  gemmd_weight_close(handle);
}

static uint32_t names_of(gemmd_session *session) {
  gemmd_daemon_info info;
  expect_ok(session, gemmd_daemon_status(session, &info));
  return info.names;
}

/* As where gemmd dies between parking a catalog and taking back the one before. */
static void of_two_catalogs_the_newer_counts(void **state) {
  begin("");
  atomic_store(&manager->mistakes, MANAGER_KEEPS);
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  load(session, "first", -1);
  load(session, "second", -1);
  await_stored(3); /* a slab, and the catalogs with one name and with two */
  gemmd_disconnect(session);
  atomic_store(&manager->mistakes, 0);
  lose_gemmd();
  session = daemon_join(&daemon_under_test, NULL);
  assert_int_equal(names_of(session), 2);
  expect_product(session, "second");
  await_stored(2); /* and the older is taken back */
  gemmd_disconnect(session);
  end();
}

/* The manager reads nothing until gemmd has given up to send it something; by then it has no room for more. */
static pid_t hold_manager(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", daemon_path(&daemon_under_test, "notify"));
  int to = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  assert_true(to >= 0);
  assert_int_equal(kill(manager->pid, SIGSTOP), 0);
  while (sendto(to, "X", 1, 0, (struct sockaddr *)&address, sizeof address) == 1)
    continue;
  close(to);
  pid_t pid = fork();
  assert_true(pid >= 0);
  while (pid == 0 && daemon_log_count(&daemon_under_test, "the service manager cannot be told") == 0)
    nap_shortly();
  if (pid == 0)
    _exit(kill(manager->pid, SIGCONT) != 0);
  return pid;
}

/* Of a catalog that cannot be parked, the one before is left. */
static void what_is_not_parked_takes_nothing_away(void **state) {
  int status;
  begin("");
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  load(session, "first", -1);
  await_stored(2);
  pid_t holder = hold_manager();
  load(session, "second", -1);
  assert_int_equal(waitpid(holder, &status, 0), holder);
  assert_int_equal(status, 0);
  gemmd_disconnect(session);
  lose_gemmd();
  session = daemon_join(&daemon_under_test, NULL);
  assert_int_equal(names_of(session), 1);
  expect_product(session, "first");
  load(session, "third", -1);
  await_stored(2);
  gemmd_disconnect(session);
  end();
}

static void a_slab_that_is_missing(void **state) {
  begin("");
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  load(session, "w", -1);
  await_stored(2);
  gemmd_disconnect(session);
  atomic_store(&manager->mistakes, MANAGER_LOSES_SLABS);
  lose_gemmd();
  atomic_store(&manager->mistakes, 0);
  assert_int_equal(daemon_log_count(&daemon_under_test, "is missing; 1 weight in it must be loaded again"), 1);
  session = daemon_join(&daemon_under_test, NULL);
  assert_int_equal(names_of(session), 0);
  load(session, "w", -1);
  expect_product(session, "w");
  gemmd_disconnect(session);
  end();
}

static void load_large(gemmd_session *session) {
  const gemmd_load request = {.name = "large", .tensor = "large", .format = GEMMD_FORMAT_INT8, .device = -1};
  expect_ok(session,
            gemmd_weight_load_file(session, daemon_path(&daemon_under_test, "large.safetensors"), &request, NULL));
}

/* Slabs of 2 MiB, "w" in the first and "large" in the second; all is parked. */
static gemmd_session *begin_with_two_slabs(void) {
  static struct oracle_weight large;
  begin("slab_bytes = 2M\n");
  oracle_weight_make(&large, &more_than_a_slab, 2);
  checkpoint_write_one(daemon_path(&daemon_under_test, "large.safetensors"), "large", &large);
  oracle_weight_free(&large);
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  load(session, "w", -1);
  load_large(session);
  await_stored(3); /* two slabs and a catalog */
  return session;
}

static void what_lies_in_other_slabs_than_a_missing_one_stays(void **state) {
  gemmd_disconnect(begin_with_two_slabs());
  atomic_store(&manager->mistakes, MANAGER_LOSES_LAST_SLAB);
  lose_gemmd();
  atomic_store(&manager->mistakes, 0);
  assert_int_equal(daemon_log_count(&daemon_under_test, "is missing; 1 weight in it must be loaded again"), 1);
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  assert_int_equal(names_of(session), 1);
  expect_product(session, "w");
  gemmd_disconnect(session);
  end();
}

/* As after an upgrade to a program that stores such weights in another way. */
static void a_weight_in_a_layout_that_is_not_known(void **state) {
  gemmd_weight *handle;
  gemmd_session *session = begin_with_two_slabs(), *user = daemon_join(&daemon_under_test, NULL);
  expect_ok(user, gemmd_weight_open(user, "large", &handle));
  atomic_store(&manager->aged_rows, more_than_a_slab.n);
  lose_gemmd();
  atomic_store(&manager->aged_rows, 0);
  expect_product(session, "w");
  await_stored(2); /* the slab of the other is given back */
  assert_int_equal(names_of(session), 1);
  assert_int_equal(device_info(session).restarts, 0);
  assert_int_equal(daemon_log_count(&daemon_under_test, "the weight \"large\" of user"), 1);
  assert_int_equal(daemon_log_count(&daemon_under_test, "is refused by worker 0"), 1);
  expect_ok(user, gemmd_ping(user, NULL));
  assert_int_equal(gemmd_matmul(handle, &(gemmd_product){.m = 1}), GEMMD_NOT_FOUND); /* before it is looked at */
  load_large(session);
  await_stored(3);
  lose_gemmd();
  expect_product(session, "w");
  assert_int_equal(names_of(session), 2);
  gemmd_disconnect(user);
  gemmd_disconnect(session);
  end();
}

/* The catalog that was parked last still names the slab that went after it. */
static void a_slab_that_was_freed_before(void **state) {
  gemmd_session *session = begin_with_two_slabs();
  expect_ok(session, gemmd_weight_unload(session, "large", NULL));
  await_stored(2);
  gemmd_disconnect(session);
  lose_gemmd();
  session = daemon_join(&daemon_under_test, NULL);
  assert_int_equal(names_of(session), 1);
  expect_product(session, "w");
  gemmd_disconnect(session);
  end();
}

/* Who has it open keeps it from being freed, and is gone with gemmd: nobody is left to free it later. */
static void a_slab_that_nothing_lies_in(void **state) {
  begin("");
  const gemmd_options here = {.reconnect_ms = (unsigned)-1};
  gemmd_session *session = daemon_join(&daemon_under_test, &here);
  gemmd_weight *handle;
  load(session, "w", -1);
  expect_ok(session, gemmd_weight_open(session, "w", &handle));
  expect_ok(session, gemmd_weight_unload(session, "w", NULL));
  assert_true(device_info(session).memory_slabs > 0);
  lose_gemmd();
  gemmd_disconnect(session);
  session = daemon_join(&daemon_under_test, NULL);
  assert_true(device_info(session).memory_slabs == 0);
  await_stored(1);
  gemmd_disconnect(session);
  end();
}

static void a_slab_that_is_freed(void **state) {
  begin("");
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  load(session, "w", -1);
  await_stored(2);
  expect_ok(session, gemmd_weight_unload(session, "w", NULL));
  await_stored(1); /* or the store fills up */
  gemmd_disconnect(session);
  end();
}

static void devices_that_are_not_there_any_more(void **state) {
  if (daemon_on_cuda())
    skip(); /* takes two devices */
  begin("devices = 2\n");
  gemmd_session *session = daemon_join(&daemon_under_test, NULL);
  load(session, "w", 1);
  await_stored(2);
  gemmd_disconnect(session);
  FILE *file = fopen(daemon_path(&daemon_under_test, "gemmd.conf"), "a");
  assert_non_null(file);
  fputs("devices = 1\n", file);
  assert_int_equal(fclose(file), 0);
  lose_gemmd();
  assert_int_equal(daemon_log_count(&daemon_under_test, "cannot be used by backend cpu with 1 devices"), 1);
  session = daemon_join(&daemon_under_test, NULL);
  assert_int_equal(names_of(session), 0);
  load(session, "w", -1);
  expect_product(session, "w");
  gemmd_disconnect(session);
  end();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(of_two_catalogs_the_newer_counts),
      cmocka_unit_test(what_is_not_parked_takes_nothing_away),
      cmocka_unit_test(a_slab_that_is_missing),
      cmocka_unit_test(what_lies_in_other_slabs_than_a_missing_one_stays),
      cmocka_unit_test(a_weight_in_a_layout_that_is_not_known),
      cmocka_unit_test(a_slab_that_was_freed_before),
      cmocka_unit_test(a_slab_that_nothing_lies_in),
      cmocka_unit_test(a_slab_that_is_freed),
      cmocka_unit_test(devices_that_are_not_there_any_more),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
