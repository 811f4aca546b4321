/* Weights, workers and daemons over their lives: sharing, replacing and freeing; death of a worker; several devices;
 * two daemons on one socket. */
#include "proto/gemm.h"
#include "tests/support/peer.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct config config;
static pid_t supervisor;
static struct error failure;
static struct message_status_reply status_of;
static char folder[] = "/tmp/gemmd-test-life-XXXXXX";

static int configure(void **state) {
  (void)state;
  strcpy(folder + strlen(folder) - 6, "XXXXXX");
  if (mkdtemp(folder) == NULL)
    return -1;
  peer_config(&config);
  snprintf(config.socket, sizeof config.socket, "%s/sock", folder);
  return 0;
}

static int clean(void **state) {
  char path[64];
  (void)state;
  snprintf(path, sizeof path, "%s/sock.lock", folder);
  unlink(path);
  return rmdir(folder); /* fails where the socket is left behind */
}

static void begin(void) {
  supervisor = peer_start(&config);
}

static void end(void) {
  assert_int_equal(kill(supervisor, SIGTERM), 0);
  assert_int_equal(peer_wait(supervisor), 0);
}

static int client(void) {
  int peer = peer_connect(&config);
  peer_hello(peer);
  return peer;
}

static enum status load(int peer, const char *name, uint32_t seed, bool replace, struct message_weight_info *info) {
  struct message_weight_load request = peer_load(name);
  request.replace = replace;
  int file = peer_file(300, 200, seed);
  enum status status = peer_ask(peer, COMMAND_weight_load, &request, &file, 1, info, &failure);
  close(file);
  return status;
}

static enum status ask_name(int peer, enum command command, const char *name, void *out) {
  struct message_weight_name request;
  snprintf(request.name, sizeof request.name, "%s", name);
  return peer_ask(peer, command, &request, NULL, 0, out, &failure);
}

static const struct message_status_reply *status(int peer) {
  const struct message_empty request = {.reserved = 0};
  assert_int_equal(peer_ask(peer, COMMAND_status, &request, NULL, 0, &status_of, NULL), STATUS_OK);
  return &status_of;
}

/* Asks until the worker of `device` has been started `restarts` times and is in `state`. */
static const struct message_device_status *wait_for(int peer, uint32_t device, uint32_t restarts, const char *state) {
  for (;;) {
    const struct message_device_status *now = &status(peer)->devices[device];
    if (now->restarts >= restarts && strcmp(now->state, state) == 0)
      return now;
  }
}

/* Its codes alone: what else there is is the backend's business. */
static uint64_t bytes_of_weight(void) {
  return 300 * 200;
}

/* ---- names and contents */

static void equal_content_is_stored_once_and_freed_at_the_last_name(void **state) {
  struct message_weight_info first, second;
  struct message_weight_unload_reply left;
  (void)state;
  begin();
  int peer = client();
  assert_int_equal(load(peer, "a", 1, false, &first), STATUS_OK);
  assert_false(first.shared);
  assert_int_equal(first.n, 300);
  assert_int_equal(first.k, 200);
  assert_true(first.bytes >= bytes_of_weight());
  assert_int_equal(load(peer, "b", 1, false, &second), STATUS_OK);
  assert_true(second.shared);
  assert_int_equal(second.references, 2);
  assert_memory_equal(first.hash, second.hash, sizeof first.hash);
  assert_int_equal(status(peer)->names, 2);
  assert_int_equal(status_of.weights, 1);
  assert_int_equal(status_of.weight_bytes, first.bytes);
  assert_int_equal(status_of.devices[0].memory_used, first.bytes);
  assert_int_equal(status_of.devices[0].memory_slabs, 2 << 20);
  assert_int_equal(ask_name(peer, COMMAND_weight_unload, "a", &left), STATUS_OK);
  assert_int_equal(left.references, 1);
  assert_int_equal(left.freed, 0);
  assert_int_equal(ask_name(peer, COMMAND_weight_unload, "b", &left), STATUS_OK);
  assert_int_equal(left.references, 0);
  assert_int_equal(left.freed, first.bytes);
  assert_int_equal(status(peer)->weights, 0);
  assert_int_equal(status_of.devices[0].memory_used, 0);
  assert_int_equal(status_of.devices[0].memory_slabs, 0);
  assert_int_equal(ask_name(peer, COMMAND_weight_unload, "b", NULL), STATUS_NOT_FOUND);
  close(peer);
  end();
}

static void other_content_under_a_name_needs_replace(void **state) {
  struct message_weight_info first, second;
  (void)state;
  begin();
  int peer = client();
  assert_int_equal(load(peer, "a", 1, false, &first), STATUS_OK);
  assert_int_equal(load(peer, "a", 1, false, &second), STATUS_OK); /* the same again */
  assert_true(second.shared);
  assert_int_equal(second.references, 1);
  assert_int_equal(load(peer, "a", 2, false, NULL), STATUS_EXISTS);
  assert_int_equal(status(peer)->weights, 1);
  assert_int_equal(status_of.devices[0].memory_used, first.bytes); /* nothing of the refused one is left */
  assert_int_equal(load(peer, "a", 2, true, &second), STATUS_OK);
  assert_memory_not_equal(first.hash, second.hash, sizeof first.hash);
  assert_int_equal(status(peer)->names, 1);
  assert_int_equal(ask_name(peer, COMMAND_weight_info, "a", &first), STATUS_OK);
  assert_memory_equal(first.hash, second.hash, sizeof first.hash);
  close(peer);
  end();
}

static void open_handles_keep_a_content(void **state) {
  struct message_weight_info info, opened;
  struct message_weight_unload_reply left;
  (void)state;
  begin();
  int peer = client(), other = client();
  assert_int_equal(load(peer, "a", 1, false, &info), STATUS_OK);
  peer_arena(peer, 4);
  peer_arena(other, 4);
  assert_int_equal(ask_name(peer, COMMAND_weight_open, "a", &opened), STATUS_OK);
  assert_int_equal(opened.parts_count, 1);
  struct message_weight_close request = {.parts_count = 1, .parts = {opened.parts[0]}};
  assert_int_equal(ask_name(other, COMMAND_weight_open, "a", &opened), STATUS_OK);
  assert_int_equal(ask_name(other, COMMAND_weight_unload, "a", &left), STATUS_OK);
  assert_int_equal(left.references, 0);
  assert_int_equal(left.freed, 0);
  assert_int_equal(status(peer)->weights, 1);
  assert_int_equal(peer_ask(peer, COMMAND_weight_close, &request, NULL, 0, NULL, &failure), STATUS_OK);
  assert_int_equal(peer_ask(peer, COMMAND_weight_close, &request, NULL, 0, NULL, &failure), STATUS_NOT_FOUND);
  assert_int_equal(status(peer)->weights, 1); /* the other session's handle */
  close(other);
  while (status(peer)->weights != 0) /* as soon as the daemon has seen it go */
    continue;
  while (status(peer)->devices[0].memory_slabs != 0)
    continue;
  close(peer);
  end();
}

static void lists_come_in_pages_by_name(void **state) {
  enum { COUNT = 150 };
  static struct message_weight_list_reply page;
  char name[16];
  unsigned seen = 0;
  (void)state;
  begin();
  int peer = client();
  for (unsigned i = 0; i < COUNT; i++) {
    snprintf(name, sizeof name, "w.%03u", i * 7 % COUNT);
    assert_int_equal(load(peer, name, 1, false, NULL), STATUS_OK);
  }
  struct message_weight_list_request request = {.after = ""};
  do {
    assert_int_equal(peer_ask(peer, COMMAND_weight_list, &request, NULL, 0, &page, NULL), STATUS_OK);
    assert_in_range(page.weights_count, 1, LIMIT_PAGE_ITEMS);
    for (uint32_t i = 0; i < page.weights_count; i++, seen++) {
      snprintf(name, sizeof name, "w.%03u", seen);
      assert_string_equal(page.weights[i].name, name);
    }
    strcpy(request.after, page.weights[page.weights_count - 1].name);
  } while (page.more);
  assert_int_equal(seen, COUNT);
  request = (struct message_weight_list_request){.pattern = "w.1[0-2]5"};
  assert_int_equal(peer_ask(peer, COMMAND_weight_list, &request, NULL, 0, &page, NULL), STATUS_OK);
  assert_int_equal(page.weights_count, 3);
  assert_false(page.more);
  close(peer);
  end();
}

static void loads_of_one_name_at_once_end_consistently(void **state) {
  static struct peer_reply reply;
  struct message_weight_info info;
  int files[4], loaded = 0, shared = 0, refused = 0;
  (void)state;
  config.loaders_max = 4;
  begin();
  int peer = client();
  for (uint32_t i = 0; i < 4; i++) { /* two contents, twice each */
    struct message_weight_load request = peer_load("a");
    files[i] = peer_file(300, 200, i % 2);
    peer_send(peer, 1, COMMAND_weight_load, &message_weight_load_type, &request, &files[i], 1);
    close(files[i]);
  }
  for (int i = 0; i < 4; i++) {
    peer_receive(peer, 1, &message_weight_info_type, &info, &reply);
    refused += reply.status == STATUS_EXISTS;
    loaded += reply.status == STATUS_OK && !info.shared;
    shared += reply.status == STATUS_OK && info.shared;
  }
  assert_int_equal(loaded, 1);
  assert_int_equal(shared, 1);
  assert_int_equal(refused, 2);
  assert_int_equal(status(peer)->weights, 1);
  close(peer);
  end();
}

static void a_client_that_leaves_takes_its_load_along(void **state) {
  (void)state;
  begin();
  int watcher = client();
  for (int i = 0; i < 10; i++) {
    int leaver = client(), file = peer_file(2000, 500, 3);
    struct message_weight_load request = peer_load("gone");
    peer_send(leaver, 1, COMMAND_weight_load, &message_weight_load_type, &request, &file, 1);
    close(file);
    for (int trip = 0; trip < i * 20; trip++) /* leaves at different stages of the load */
      status(watcher);
    close(leaver);
  }
  int peer = watcher;
  struct message_weight_info info;
  assert_int_equal(load(peer, "kept", 1, false, &info), STATUS_OK);
  enum status there = ask_name(peer, COMMAND_weight_info, "gone", &info);
  if (there == STATUS_OK) /* one of them was faster than its client */
    assert_int_equal(ask_name(peer, COMMAND_weight_unload, "gone", NULL), STATUS_OK);
  while (status(peer)->sessions > 1 || status_of.weights > 1 ||
         status_of.devices[0].memory_used > bytes_of_weight() * 2)
    continue;
  close(peer);
  end();
}

/* ---- who may */

static void only_owners_unload(void **state) {
  (void)state;
  if (geteuid() != 0)
    skip(); /* to be another user takes root */
  config.socket_mode = 0666;
  assert_int_equal(chmod(folder, 0755), 0);
  begin();
  int peer = client();
  assert_int_equal(load(peer, "roots", 1, false, NULL), STATUS_OK);
  pid_t pid = fork();
  if (pid == 0) {
    struct message_weight_info info;
    if (setgid(65534) != 0 || setuid(65534) != 0)
      _exit(9);
    int mine = client();
    if (ask_name(mine, COMMAND_weight_unload, "roots", NULL) != STATUS_PERMISSION)
      _exit(1);
    if (load(mine, "roots", 2, true, NULL) != STATUS_PERMISSION)
      _exit(2);
    if (load(mine, "theirs", 1, false, &info) != STATUS_OK || info.owner != 65534 || !info.shared)
      _exit(3);
    _exit(0);
  }
  assert_int_equal(peer_wait(pid), 0);
  assert_int_equal(ask_name(peer, COMMAND_weight_unload, "theirs", NULL), STATUS_OK); /* root may */
  close(peer);
  end();
}

/* ---- workers */

static void a_dead_worker_is_replaced_with_all_that_it_had(void **state) {
  struct message_weight_info info, opened;
  (void)state;
  begin();
  int peer = client();
  peer_arena(peer, 4);
  assert_int_equal(load(peer, "a", 1, false, &info), STATUS_OK);
  assert_int_equal(ask_name(peer, COMMAND_weight_open, "a", &opened), STATUS_OK);
  uint32_t before = status(peer)->devices[0].pid;
  assert_int_equal(kill((pid_t)before, SIGKILL), 0);
  assert_int_not_equal(wait_for(peer, 0, 1, "ready")->pid, before);
  assert_int_equal(status_of.devices[0].memory_used, info.bytes);
  assert_int_equal(status_of.weights, 1);
  struct message_weight_close request = {.parts_count = 1, .parts = {opened.parts[0]}};
  assert_int_equal(peer_ask(peer, COMMAND_weight_close, &request, NULL, 0, NULL, &failure), STATUS_OK);
  assert_int_equal(ask_name(peer, COMMAND_weight_open, "a", &opened), STATUS_OK);
  assert_int_equal(load(peer, "b", 2, false, &info), STATUS_OK);
  assert_int_equal(ask_name(peer, COMMAND_weight_unload, "b", NULL), STATUS_OK);
  close(peer);
  end();
}

/* A loader that cannot even be started leaves nothing behind: the loop would otherwise write into its memory later,
 * when somebody else has it, and would not close in the end. */
static void what_cannot_be_started_costs_nobody_else_anything(void **state) {
  char program[64], own[4096] = "";
  struct message_weight_info info;
  (void)state;
  snprintf(program, sizeof program, "%s/program", folder);
  assert_true(readlink("/proc/self/exe", own, sizeof own - 1) > 0);
  assert_int_equal(symlink(own, program), 0);
  peer_children(program);
  begin();
  peer_children(NULL);
  int peer = client();
  assert_int_equal(load(peer, "before", 1, false, &info), STATUS_OK);
  assert_int_equal(unlink(program), 0);
  for (uint32_t i = 0; i < 20; i++) {
    int other = client();
    peer_arena(other, 4);
    assert_int_equal(load(other, "never", i, false, &info), STATUS_SYSTEM);
    assert_non_null(strstr(failure.text, "cannot be started"));
    close(other);
  }
  assert_int_equal(symlink(own, program), 0);
  assert_int_equal(load(peer, "after", 2, false, &info), STATUS_OK);
  assert_int_equal(kill((pid_t)status(peer)->devices[0].pid, SIGKILL), 0);
  wait_for(peer, 0, 1, "ready");
  assert_int_equal(status_of.weights, 2);
  assert_int_equal(unlink(program), 0);
  assert_int_equal(load(peer, "never", 3, false, &info),
                   STATUS_SYSTEM); /* nobody takes its memory over before the end */
  close(peer);
  end();
}

/* A worker that hangs is as good as dead: what was asked of it meanwhile is answered by its successor. */
static void a_silent_worker_is_replaced(void **state) {
  struct message_weight_info info;
  (void)state;
  config.worker_timeout_s = 1;
  begin();
  int peer = client();
  uint32_t before = wait_for(peer, 0, 0, "ready")->pid;
  assert_int_equal(kill((pid_t)before, SIGSTOP), 0);
  peer_arena(peer, 4);
  assert_int_equal(load(peer, "a", 1, false, &info), STATUS_OK);
  assert_int_not_equal(wait_for(peer, 0, 1, "ready")->pid, before);
  assert_int_equal(status_of.devices[0].restarts, 1);
  assert_int_equal(status_of.devices[0].memory_used, info.bytes);
  close(peer);
  end();
}

static void a_hung_worker_does_not_keep_gemmd_from_ending(void **state) {
  (void)state;
  begin();
  int peer = client();
  assert_int_equal(kill((pid_t)wait_for(peer, 0, 0, "ready")->pid, SIGSTOP), 0);
  close(peer);
  end();
}

/* Its open file is the client's as well: whoever fills it and lets writes to it wait is not woken, and that is all. */
static void a_wakeup_that_blocks_holds_up_nobody(void **state) {
  const struct message_arena_request request = {.bytes = 1 << 16, .entries = 4};
  const uint64_t most = UINT64_MAX - 1;
  static struct peer_reply reply;
  (void)state;
  begin();
  int hostile = client(), peer = client();
  peer_send(hostile, 1, COMMAND_arena_create, &message_arena_request_type, &request, NULL, 0);
  peer_receive(hostile, 1, NULL, NULL, &reply);
  assert_int_equal(reply.packet.fd_count, 2);
  int wakeup = packet_take_fd(&reply.packet, 1);
  packet_close(&reply.packet);
  uint64_t count;
  (void)!read(wakeup, &count, sizeof count);
  assert_int_equal(write(wakeup, &most, sizeof most), sizeof most);
  assert_int_equal(fcntl(wakeup, F_SETFL, 0), 0);
  assert_int_equal(kill((pid_t)wait_for(peer, 0, 0, "ready")->pid, SIGKILL), 0);
  wait_for(peer, 0, 1, "ready");
  close(wakeup);
  close(hostile);
  close(peer);
  end();
}

/* Spoils the memfd of the only slab, in which the supervisor keeps it. */
static void spoil_slab(void) {
  char folder_of[64], path[128], target[128];
  bool spoiled = false;
  snprintf(folder_of, sizeof folder_of, "/proc/%d/fd", (int)supervisor);
  for (int fd = 3; fd < 256; fd++) {
    snprintf(path, sizeof path, "%s/%d", folder_of, fd);
    ssize_t length = readlink(path, target, sizeof target - 1);
    target[length > 0 ? length : 0] = '\0';
    if (strstr(target, "memfd:gemmd-weights") == NULL)
      continue;
    int slab = open(path, O_RDWR | O_CLOEXEC);
    assert_true(slab >= 0);
    assert_int_equal(pwrite(slab, "!", 1, 1000), 1); /* the first weight lies at 0 */
    close(slab);
    spoiled = true;
  }
  assert_true(spoiled);
}

static void what_a_fault_has_damaged_is_not_served(void **state) {
  struct message_weight_info first, second;
  (void)state;
  begin();
  int user = client(), bystander = client();
  peer_arena(user, 4);
  assert_int_equal(load(bystander, "first", 1, false, &first), STATUS_OK);
  assert_int_equal(load(bystander, "again", 1, false, &first), STATUS_OK);
  assert_int_equal(load(bystander, "second", 2, false, &second), STATUS_OK);
  assert_int_equal(ask_name(user, COMMAND_weight_open, "first", NULL), STATUS_OK);
  spoil_slab();
  assert_int_equal(kill((pid_t)status(bystander)->devices[0].pid, SIGKILL), 0); /* does no harm, so nobody looks */
  wait_for(bystander, 0, 1, "ready");
  assert_int_equal(ask_name(bystander, COMMAND_weight_info, "first", NULL), STATUS_OK);
  assert_int_equal(kill((pid_t)status_of.devices[0].pid, SIGSEGV), 0);
  wait_for(bystander, 0, 2, "ready");
  peer_expect_end(user); /* would have computed with it */
  assert_int_equal(ask_name(bystander, COMMAND_weight_info, "first", NULL), STATUS_NOT_FOUND);
  assert_int_equal(ask_name(bystander, COMMAND_weight_info, "again", NULL), STATUS_NOT_FOUND);
  assert_int_equal(ask_name(bystander, COMMAND_weight_info, "second", NULL), STATUS_OK);
  while (status(bystander)->weights != 1)
    continue;
  assert_int_equal(load(bystander, "first", 1, false, &first), STATUS_OK);
  assert_false(first.shared);
  close(user);
  close(bystander);
  end();
}

static void a_worker_that_keeps_dying_is_given_up(void **state) {
  struct message_weight_info info;
  (void)state;
  config.worker_restarts_max = 1;
  begin();
  int peer = client();
  peer_arena(peer, 4);
  assert_int_equal(load(peer, "a", 1, false, &info), STATUS_OK);
  assert_int_equal(kill((pid_t)status(peer)->devices[0].pid, SIGKILL), 0);
  assert_int_equal(kill((pid_t)wait_for(peer, 0, 1, "ready")->pid, SIGKILL), 0);
  assert_int_equal(wait_for(peer, 0, 1, "failed")->pid, 0);
  assert_int_equal(load(peer, "b", 2, false, NULL), STATUS_DEVICE_LOST);
  assert_int_equal(ask_name(peer, COMMAND_weight_unload, "a", NULL), STATUS_OK); /* what needs no device goes on */
  close(peer);
  end();
}

static void loads_survive_the_death_of_a_worker(void **state) {
  struct message_weight_info info;
  static struct peer_reply reply;
  (void)state;
  config.worker_restarts_max = 1000;
  begin();
  int peer = client(), watcher = client();
  for (int i = 0; i < 8; i++) {
    struct message_weight_load request = peer_load("a");
    request.replace = true;
    int file = peer_file(1000, 200, (uint32_t)i);
    peer_send(peer, 1, COMMAND_weight_load, &message_weight_load_type, &request, &file, 1);
    close(file);
    for (int trip = 0; trip < i * 20; trip++) /* the worker dies at different stages of the load */
      status(watcher);
    assert_int_equal(kill((pid_t)wait_for(watcher, 0, (uint32_t)i, "ready")->pid, SIGKILL), 0);
    peer_receive(peer, 1, &message_weight_info_type, &info, &reply);
    assert_int_equal(reply.status, STATUS_OK);
    wait_for(watcher, 0, (uint32_t)i + 1, "ready");
  }
  while (status(watcher)->devices[0].memory_used != info.bytes)
    continue;
  assert_int_equal(status_of.weights, 1);
  close(peer);
  close(watcher);
  end();
}

/* ---- several devices */

static void replicas_and_splits_lie_on_several_devices(void **state) {
  struct message_weight_info info, opened;
  (void)state;
  config.devices = 3;
  begin();
  int peer = client(), file = peer_file(300, 200, 1);
  assert_int_equal(status(peer)->devices_count, 3);
  struct message_weight_load request = peer_load("copies");
  request.placement = PLACEMENT_REPLICAS;
  request.device = 1;
  request.devices = 2;
  assert_int_equal(peer_ask(peer, COMMAND_weight_load, &request, &file, 1, &info, &failure), STATUS_OK);
  assert_int_equal(info.parts_count, 2);
  assert_int_equal(info.parts[0].device, 1);
  assert_int_equal(info.parts[1].device, 2);
  assert_int_equal(info.parts[1].n_count, 300);
  close(file);
  file = peer_file(300, 200, 2);
  request = peer_load("ranges");
  request.placement = PLACEMENT_SPLIT;
  request.device = -1;
  assert_int_equal(peer_ask(peer, COMMAND_weight_load, &request, &file, 1, &info, &failure), STATUS_OK);
  close(file);
  assert_int_equal(info.parts_count, 3);
  assert_int_equal(info.parts[0].device, 0); /* the one with most room, the others hold a copy */
  assert_int_equal(info.parts[2].n_begin, 256);
  assert_int_equal(info.parts[2].n_count, 44);
  peer_arena(peer, 4);
  assert_int_equal(ask_name(peer, COMMAND_weight_open, "ranges", &opened), STATUS_OK);
  assert_int_equal(opened.parts_count, 3);
  assert_int_equal(kill((pid_t)status(peer)->devices[2].pid, SIGKILL), 0);
  wait_for(peer, 2, 1, "ready");
  assert_int_equal(status_of.devices[0].restarts, 0);
  struct message_weight_close close_all = {.parts_count = 3};
  memcpy(close_all.parts, opened.parts, sizeof close_all.parts);
  assert_int_equal(peer_ask(peer, COMMAND_weight_close, &close_all, NULL, 0, NULL, &failure), STATUS_OK);
  assert_int_equal(ask_name(peer, COMMAND_weight_unload, "ranges", NULL), STATUS_OK);
  assert_int_equal(ask_name(peer, COMMAND_weight_unload, "copies", NULL), STATUS_OK);
  for (uint32_t i = 0; i < 3; i++)
    assert_int_equal(status(peer)->devices[i].memory_slabs, 0);
  close(peer);
  end();
}

/* ---- daemons and sockets */

static void a_second_daemon_refuses_and_the_first_goes_on(void **state) {
  (void)state;
  begin();
  int peer = client();
  assert_int_equal(peer_wait(peer_spawn(&config)), 1);
  assert_int_equal(status(peer)->pid, supervisor);
  close(peer);
  end();
}

static void a_stale_socket_is_replaced(void **state) {
  (void)state;
  begin();
  assert_int_equal(kill(supervisor, SIGKILL), 0);
  assert_int_equal(peer_wait(supervisor), 128 + SIGKILL);
  assert_int_equal(access(config.socket, F_OK), 0);
  begin();
  int peer = client();
  close(peer);
  end();
  assert_int_not_equal(access(config.socket, F_OK), 0);
}

static void a_socket_has_the_mode_that_was_asked_for(void **state) {
  struct stat there;
  (void)state;
  config.socket_mode = 0600;
  begin();
  assert_int_equal(stat(config.socket, &there), 0);
  assert_int_equal(there.st_mode & 0777, 0600);
  end();
}

static void too_many_sessions_are_told_to_come_back(void **state) {
  static struct peer_reply reply;
  const struct message_hello_request hello = {.version_min = 1, .version_max = 1, .client = "test"};
  (void)state;
  config.sessions_max = 2;
  begin();
  int first = client(), second = client(), third = peer_connect(&config);
  peer_send(third, 1, COMMAND_hello, &message_hello_request_type, &hello, NULL, 0);
  peer_receive(third, 1, NULL, NULL, &reply);
  assert_int_equal(reply.status, STATUS_BUSY);
  assert_int_not_equal(reply.retry_ms, 0);
  peer_expect_end(third);
  close(third);
  close(second);
  while (status(first)->sessions > 1)
    continue;
  second = client(); /* there is room again */
  close(first);
  close(second);
  end();
}

int main(int count, char **words) {
  peer_main(count, words);
#define LIFE(test) cmocka_unit_test_setup_teardown(test, configure, clean)
  const struct CMUnitTest tests[] = {
      LIFE(equal_content_is_stored_once_and_freed_at_the_last_name),
      LIFE(other_content_under_a_name_needs_replace),
      LIFE(open_handles_keep_a_content),
      LIFE(lists_come_in_pages_by_name),
      LIFE(loads_of_one_name_at_once_end_consistently),
      LIFE(a_client_that_leaves_takes_its_load_along),
      LIFE(only_owners_unload),
      LIFE(what_cannot_be_started_costs_nobody_else_anything),
      LIFE(a_dead_worker_is_replaced_with_all_that_it_had),
      LIFE(a_silent_worker_is_replaced),
      LIFE(a_hung_worker_does_not_keep_gemmd_from_ending),
      LIFE(a_wakeup_that_blocks_holds_up_nobody),
      LIFE(what_a_fault_has_damaged_is_not_served),
      LIFE(a_worker_that_keeps_dying_is_given_up),
      LIFE(loads_survive_the_death_of_a_worker),
      LIFE(replicas_and_splits_lie_on_several_devices),
      LIFE(a_second_daemon_refuses_and_the_first_goes_on),
      LIFE(a_stale_socket_is_replaced),
      LIFE(a_socket_has_the_mode_that_was_asked_for),
      LIFE(too_many_sessions_are_told_to_come_back),
  };
#undef LIFE
  return cmocka_run_group_tests(tests, NULL, NULL);
}
