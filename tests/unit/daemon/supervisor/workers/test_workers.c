/* Workers over their lives: death, silence, damage; several devices. */
#include "tests/support/messages/life.h"
#include "tests/support/messages/peer.h"
#include "tests/support/system/hold.h"
#include "tests/support/system/nap.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void a_dead_worker_is_replaced_with_all_that_it_had(void **state) {
  struct message_weight_info info, opened;
  life_begin();
  int peer = life_client();
  peer_arena(peer, 4);
  assert_int_equal(life_load(peer, "a", 1, false, &info), STATUS_OK);
  assert_int_equal(life_ask_name(peer, COMMAND_weight_open, "a", &opened), STATUS_OK);
  uint32_t before = life_status(peer)->devices[0].pid;
  assert_int_equal(kill((pid_t)before, SIGKILL), 0);
  assert_int_not_equal(life_wait_for(peer, 0, 1, "ready")->pid, before);
  assert_int_equal(life.status.devices[0].memory_used, info.bytes);
  assert_int_equal(life.status.weights, 1);
  struct message_weight_close request = {.parts_count = 1, .parts = {opened.parts[0]}};
  assert_int_equal(peer_ask(peer, COMMAND_weight_close, &request, NULL, 0, NULL, &life.failure), STATUS_OK);
  assert_int_equal(life_ask_name(peer, COMMAND_weight_open, "a", &opened), STATUS_OK);
  assert_int_equal(life_load(peer, "b", 2, false, &info), STATUS_OK);
  assert_int_equal(life_ask_name(peer, COMMAND_weight_unload, "b", NULL), STATUS_OK);
  close(peer);
  life_end();
}

/* A loader that cannot even be started leaves nothing behind: the loop would otherwise write into its memory later,
 * when somebody else has it, and would not close in the end. */
static void what_cannot_be_started_costs_nobody_else_anything(void **state) {
  char program[64], own[4096] = "";
  struct message_weight_info info;
  snprintf(program, sizeof program, "%s/program", life.folder);
  assert_true(readlink("/proc/self/exe", own, sizeof own - 1) > 0);
  assert_int_equal(symlink(own, program), 0);
  peer_children(program);
  life_begin();
  peer_children(NULL);
  int peer = life_client();
  assert_int_equal(life_load(peer, "before", 1, false, &info), STATUS_OK);
  assert_int_equal(unlink(program), 0);
  for (uint32_t i = 0; i < 20; i++) {
    int other = life_client();
    peer_arena(other, 4);
    assert_int_equal(life_load(other, "never", i, false, &info), STATUS_SYSTEM);
    assert_non_null(strstr(life.failure.text, "cannot be started"));
    close(other);
  }
  assert_int_equal(symlink(own, program), 0);
  assert_int_equal(life_load(peer, "after", 2, false, &info), STATUS_OK);
  assert_int_equal(kill((pid_t)life_status(peer)->devices[0].pid, SIGKILL), 0);
  life_wait_for(peer, 0, 1, "ready");
  assert_int_equal(life.status.weights, 2);
  assert_int_equal(unlink(program), 0);
  assert_int_equal(life_load(peer, "never", 3, false, &info),
                   STATUS_SYSTEM); /* nobody takes its memory over before the end */
  close(peer);
  life_end();
}

/* A worker that hangs is as good as dead: what was asked of it meanwhile is answered by its successor. */
static void a_silent_worker_is_replaced(void **state) {
  struct message_weight_info info;
  life.config.worker_timeout_s = 1;
  life_begin();
  int peer = life_client();
  uint32_t before = life_wait_for(peer, 0, 0, "ready")->pid;
  hold_process((pid_t)before);
  peer_arena(peer, 4);
  assert_int_equal(life_load(peer, "a", 1, false, &info), STATUS_OK);
  assert_int_not_equal(life_wait_for(peer, 0, 1, "ready")->pid, before);
  assert_int_equal(life.status.devices[0].restarts, 1);
  assert_int_equal(life.status.devices[0].memory_used, info.bytes);
  close(peer);
  life_end();
}

/* The process neither opens a device nor ends: it is none of gemmd's. */
static void a_worker_that_does_not_start_is_given_up(void **state) {
  char program[64];
  snprintf(program, sizeof program, "%s/program", life.folder);
  int file = open(program, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
  assert_true(file >= 0 && dprintf(file, "#!/bin/sh\nexec sleep 1000\n") > 0);
  close(file);
  life.config.worker_timeout_s = 1;
  life.config.worker_restarts_max = 0;
  peer_children(program);
  pid_t daemon = peer_spawn(&life.config);
  peer_children(NULL);
  assert_int_equal(peer_wait(daemon), 1);
  assert_int_equal(unlink(program), 0);
}

static void a_hung_worker_does_not_keep_gemmd_from_ending(void **state) {
  life_begin();
  int peer = life_client();
  hold_process((pid_t)life_wait_for(peer, 0, 0, "ready")->pid);
  close(peer);
  life_end();
}

/* Its open file is the client's as well: whoever fills it and lets writes to it wait is not woken, and that is all. */
static void a_wakeup_that_blocks_holds_up_nobody(void **state) {
  const struct message_arena_request request = {.bytes = 1 << 16, .entries = 4};
  const uint64_t most = UINT64_MAX - 1;
  static struct peer_reply reply;
  life_begin();
  int hostile = life_client(), peer = life_client();
  peer_send(hostile, 1, COMMAND_arena_create, &message_arena_request_type, &request, NULL, 0);
  peer_receive(hostile, 1, NULL, NULL, &reply);
  assert_int_equal(reply.packet.fd_count, 2);
  int wakeup = packet_take_fd(&reply.packet, 1);
  packet_close(&reply.packet);
  uint64_t count;
  (void)!read(wakeup, &count, sizeof count);
  assert_int_equal(write(wakeup, &most, sizeof most), sizeof most);
  assert_int_equal(fcntl(wakeup, F_SETFL, 0), 0);
  assert_int_equal(kill((pid_t)life_wait_for(peer, 0, 0, "ready")->pid, SIGKILL), 0);
  life_wait_for(peer, 0, 1, "ready");
  close(wakeup);
  close(hostile);
  close(peer);
  life_end();
}

/* Spoils the memfd of the only slab, in which the supervisor keeps it. */
static void spoil_slab(void) {
  char folder_of[64], path[128], target[128];
  bool spoiled = false;
  snprintf(folder_of, sizeof folder_of, "/proc/%d/fd", (int)life.supervisor);
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
  life_begin();
  int user = life_client(), bystander = life_client();
  peer_arena(user, 4);
  assert_int_equal(life_load(bystander, "first", 1, false, &first), STATUS_OK);
  assert_int_equal(life_load(bystander, "again", 1, false, &first), STATUS_OK);
  assert_int_equal(life_load(bystander, "second", 2, false, &second), STATUS_OK);
  assert_int_equal(life_ask_name(user, COMMAND_weight_open, "first", NULL), STATUS_OK);
  spoil_slab();
  assert_int_equal(kill((pid_t)life_status(bystander)->devices[0].pid, SIGKILL), 0); /* does no harm, so nobody looks */
  life_wait_for(bystander, 0, 1, "ready");
  assert_int_equal(life_ask_name(bystander, COMMAND_weight_info, "first", NULL), STATUS_OK);
  assert_int_equal(kill((pid_t)life.status.devices[0].pid, SIGSEGV), 0);
  life_wait_for(bystander, 0, 2, "ready");
  peer_expect_end(user); /* would have computed with it */
  assert_int_equal(life_ask_name(bystander, COMMAND_weight_info, "first", NULL), STATUS_NOT_FOUND);
  assert_int_equal(life_ask_name(bystander, COMMAND_weight_info, "again", NULL), STATUS_NOT_FOUND);
  assert_int_equal(life_ask_name(bystander, COMMAND_weight_info, "second", NULL), STATUS_OK);
  while (life_status(bystander)->weights != 1)
    nap_shortly();
  assert_int_equal(life_load(bystander, "first", 1, false, &first), STATUS_OK);
  assert_false(first.shared);
  close(user);
  close(bystander);
  life_end();
}

/* Who loads the content again while the sessions that have it open still end must not get it. */
static void what_was_damaged_is_not_shared(void **state) {
  struct message_weight_load request = peer_load("again");
  struct message_weight_info info;
  static struct peer_reply reply;
  life_begin();
  int user = life_client(), bystander = life_client();
  peer_arena(user, 4);
  assert_int_equal(life_load(bystander, "first", 1, false, &info), STATUS_OK);
  assert_int_equal(life_ask_name(user, COMMAND_weight_open, "first", NULL), STATUS_OK);
  spoil_slab();
  pid_t worker = (pid_t)life_status(bystander)->devices[0].pid;
  int file = peer_file(300, 200, 1);
  assert_int_equal(kill(worker, SIGSEGV), 0);
  while (strcmp(life_status(bystander)->devices[0].state, "ready") == 0 && life.status.devices[0].restarts == 0)
    nap_shortly(); /* who loads before that is noticed shares what loses its names then */
  peer_send(bystander, 1, COMMAND_weight_load, &message_weight_load_type, &request, &file, 1);
  peer_receive(bystander, 1, &message_weight_info_type, &info, &reply);
  assert_int_equal(reply.status, STATUS_OK);
  assert_false(info.shared);
  peer_expect_end(user);
  close(file);
  close(user);
  close(bystander);
  life_end();
}

/* SIGKILL from outside does no harm, but leaves unsaid what the one before it did. */
static void who_dies_while_it_looks_clears_nothing(void **state) {
  struct message_weight_info info;
  life_begin();
  int peer = life_client();
  assert_int_equal(life_load(peer, "a", 1, false, &info), STATUS_OK);
  uint32_t first = life_wait_for(peer, 0, 0, "ready")->pid, second;
  spoil_slab();
  assert_int_equal(kill((pid_t)first, SIGSEGV), 0);
  do {
    nap_shortly();
    second = life_status(peer)->devices[0].pid;
  } while (second == first || second == 0);
  assert_int_equal(kill((pid_t)second, SIGKILL), 0);
  life_wait_for(peer, 0, 2, "ready");
  assert_int_equal(life_ask_name(peer, COMMAND_weight_info, "a", NULL), STATUS_NOT_FOUND);
  close(peer);
  life_end();
}

/* SIGKILL came from gemmd itself then, and says nothing of what the worker did before. */
static void what_a_hung_worker_has_damaged_is_not_served(void **state) {
  struct message_weight_info info;
  life.config.worker_timeout_s = 1;
  life_begin();
  int peer = life_client();
  assert_int_equal(life_load(peer, "a", 1, false, &info), STATUS_OK);
  uint32_t before = life_wait_for(peer, 0, 0, "ready")->pid;
  spoil_slab();
  hold_process((pid_t)before);
  life_wait_for(peer, 0, 1, "ready");
  assert_int_equal(life_ask_name(peer, COMMAND_weight_info, "a", NULL), STATUS_NOT_FOUND);
  close(peer);
  life_end();
}

/* A product under way may read a weight whose last name has gone: its place is nobody else's before the worker has let
 * go of it. */
static void a_place_is_free_when_the_worker_has_let_go(void **state) {
  struct message_weight_info info;
  struct message_weight_name name = {.name = "a"};
  static struct peer_reply reply;
  _Atomic bool *held = mmap(NULL, sizeof *held, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal((void *)held, MAP_FAILED);
  life_begin();
  int peer = life_client(), watcher = life_client();
  assert_int_equal(life_load(peer, "a", 1, false, &info), STATUS_OK);
  pid_t holder = hold_thread(hold_find((pid_t)life_wait_for(peer, 0, 0, "ready")->pid, "engine"), held);
  while (!atomic_load(held))
    assert_int_equal(waitpid(holder, NULL, WNOHANG), 0);
  peer_send(peer, 1, COMMAND_weight_unload, &message_weight_name_type, &name, NULL, 0);
  while (life_status(watcher)->names != 0)
    nap_shortly();
  assert_int_equal(life.status.devices[0].memory_used, info.bytes);
  assert_int_equal(kill(holder, SIGKILL), 0);
  assert_int_equal(waitpid(holder, NULL, 0), holder);
  peer_receive(peer, 1, NULL, NULL, &reply);
  assert_int_equal(reply.status, STATUS_OK);
  assert_int_equal(life_status(watcher)->devices[0].memory_used, 0);
  munmap((void *)held, sizeof *held);
  close(peer);
  close(watcher);
  life_end();
}

static void a_worker_that_keeps_dying_is_given_up(void **state) {
  struct message_weight_info info;
  life.config.worker_restarts_max = 1;
  life.config.worker_pause_s = 86400;
  life_begin();
  int peer = life_client();
  peer_arena(peer, 4);
  assert_int_equal(life_load(peer, "a", 1, false, &info), STATUS_OK);
  assert_int_equal(kill((pid_t)life_status(peer)->devices[0].pid, SIGKILL), 0);
  assert_int_equal(kill((pid_t)life_wait_for(peer, 0, 1, "ready")->pid, SIGKILL), 0);
  assert_int_equal(life_wait_for(peer, 0, 1, "failed")->pid, 0);
  assert_int_equal(life_load(peer, "b", 2, false, NULL), STATUS_DEVICE_LOST);
  assert_int_equal(life_ask_name(peer, COMMAND_weight_unload, "a", NULL), STATUS_OK); /* what needs no device goes on */
  close(peer);
  life_end();
}

static void loads_survive_the_death_of_a_worker(void **state) {
  struct message_weight_info info;
  static struct peer_reply reply;
  life.config.worker_restarts_max = 1000;
  life_begin();
  int peer = life_client(), watcher = life_client();
  for (int i = 0; i < 8; i++) {
    struct message_weight_load request = peer_load("a");
    request.replace = true;
    int file = peer_file(1000, 200, (uint32_t)i);
    peer_send(peer, 1, COMMAND_weight_load, &message_weight_load_type, &request, &file, 1);
    close(file);
    for (int trip = 0; trip < i * 20; trip++) /* the worker dies at different stages of the load */
      life_status(watcher);
    assert_int_equal(kill((pid_t)life_wait_for(watcher, 0, (uint32_t)i, "ready")->pid, SIGKILL), 0);
    peer_receive(peer, 1, &message_weight_info_type, &info, &reply);
    assert_int_equal(reply.status, STATUS_OK);
    life_wait_for(watcher, 0, (uint32_t)i + 1, "ready");
  }
  while (life_status(watcher)->devices[0].memory_used != info.bytes)
    nap_shortly();
  assert_int_equal(life.status.weights, 1);
  close(peer);
  close(watcher);
  life_end();
}

/* ---- several devices */

static void replicas_and_splits_lie_on_several_devices(void **state) {
  struct message_weight_info info, opened;
  life.config.devices = 3;
  life_begin();
  int peer = life_client(), file = peer_file(300, 200, 1);
  assert_int_equal(life_status(peer)->devices_count, 3);
  struct message_weight_load request = peer_load("copies");
  request.placement = PLACEMENT_REPLICAS;
  request.device = 1;
  request.devices = 2;
  assert_int_equal(peer_ask(peer, COMMAND_weight_load, &request, &file, 1, &info, &life.failure), STATUS_OK);
  assert_int_equal(info.parts_count, 2);
  assert_int_equal(info.parts[0].device, 1);
  assert_int_equal(info.parts[1].device, 2);
  assert_int_equal(info.parts[1].n_count, 300);
  close(file);
  file = peer_file(300, 200, 2);
  request = peer_load("ranges");
  request.placement = PLACEMENT_SPLIT;
  request.device = -1;
  assert_int_equal(peer_ask(peer, COMMAND_weight_load, &request, &file, 1, &info, &life.failure), STATUS_OK);
  close(file);
  assert_int_equal(info.parts_count, 3);
  assert_int_equal(info.parts[0].device, 0); /* the one with most room, the others hold a copy */
  assert_int_equal(info.parts[2].n_begin, 256);
  assert_int_equal(info.parts[2].n_count, 44);
  peer_arena(peer, 4);
  assert_int_equal(life_ask_name(peer, COMMAND_weight_open, "ranges", &opened), STATUS_OK);
  assert_int_equal(opened.parts_count, 3);
  assert_int_equal(kill((pid_t)life_status(peer)->devices[2].pid, SIGKILL), 0);
  life_wait_for(peer, 2, 1, "ready");
  assert_int_equal(life.status.devices[0].restarts, 0);
  struct message_weight_close close_all = {.parts_count = 3};
  memcpy(close_all.parts, opened.parts, sizeof close_all.parts);
  assert_int_equal(peer_ask(peer, COMMAND_weight_close, &close_all, NULL, 0, NULL, &life.failure), STATUS_OK);
  assert_int_equal(life_ask_name(peer, COMMAND_weight_unload, "ranges", NULL), STATUS_OK);
  assert_int_equal(life_ask_name(peer, COMMAND_weight_unload, "copies", NULL), STATUS_OK);
  for (uint32_t i = 0; i < 3; i++)
    assert_int_equal(life_status(peer)->devices[i].memory_slabs, 0);
  close(peer);
  life_end();
}

/* A handle is given back while the worker of its other part stands still; the successor of the one that has forgotten
 * it already must not be told of it. */
static void what_is_being_closed_is_not_opened_again(void **state) {
  struct message_weight_info opened;
  struct peer_reply reply;
  life.config.devices = 2;
  life_begin();
  int peer = life_client(), other = life_client(), file = peer_file(300, 200, 1);
  struct message_weight_load request = peer_load("copies");
  request.placement = PLACEMENT_REPLICAS;
  assert_int_equal(peer_ask(peer, COMMAND_weight_load, &request, &file, 1, NULL, &life.failure), STATUS_OK);
  peer_arena(peer, 4);
  assert_int_equal(life_ask_name(peer, COMMAND_weight_open, "copies", &opened), STATUS_OK);
  assert_int_equal(opened.parts_count, 2);
  uint32_t dies = opened.parts[0].device;
  pid_t dead = (pid_t)life_status(peer)->devices[dies].pid;
  pid_t still = (pid_t)life.status.devices[opened.parts[1].device].pid;
  assert_int_equal(kill(still, SIGSTOP), 0);
  struct message_weight_close body = {.parts_count = 2};
  memcpy(body.parts, opened.parts, sizeof body.parts);
  peer_send(peer, 1000, COMMAND_weight_close, &message_weight_close_type, &body, NULL, 0);
  assert_int_equal(kill(dead, SIGKILL), 0);
  request = peer_load("by the successor");
  request.device = dies;
  assert_int_equal(peer_ask(other, COMMAND_weight_load, &request, &file, 1, NULL, &life.failure), STATUS_OK);
  close(file);
  assert_int_equal(kill(still, SIGCONT), 0);
  peer_receive(peer, 1000, &message_empty_type, NULL, &reply);
  assert_int_equal(reply.status, STATUS_OK);
  assert_int_equal(life_ask_name(peer, COMMAND_weight_open, "copies", &opened), STATUS_OK);
  close(peer);
  close(other);
  life_end();
}

/* Equal content that nobody can compute with is no reason not to load it again. */
static void what_a_failed_device_holds_is_loaded_to_another(void **state) {
  struct message_weight_info info;
  life.config.devices = 2;
  life.config.worker_restarts_max = 0;
  life.config.worker_pause_s = 86400;
  life_begin();
  int peer = life_client(), file = peer_file(300, 200, 1);
  struct message_weight_load request = peer_load("a");
  request.device = 1;
  assert_int_equal(peer_ask(peer, COMMAND_weight_load, &request, &file, 1, &info, &life.failure), STATUS_OK);
  assert_int_equal(info.parts[0].device, 1);
  assert_int_equal(kill((pid_t)life_status(peer)->devices[1].pid, SIGKILL), 0);
  life_wait_for(peer, 1, 0, "failed");
  request.device = -1;
  assert_int_equal(peer_ask(peer, COMMAND_weight_load, &request, &file, 1, &info, &life.failure), STATUS_OK);
  close(file);
  assert_false(info.shared);
  assert_int_equal(info.parts[0].device, 0);
  assert_int_equal(life_status(peer)->weights, 1); /* the one before has lost its name, and its place */
  assert_int_equal(life.status.devices[1].memory_used, 0);
  close(peer);
  life_end();
}

/* As where the driver of one GPU hangs: its worker is killed, and never gone. */
static void a_worker_that_cannot_end_holds_up_no_other_device(void **state) {
  struct message_weight_info info;
  _Atomic bool *held = mmap(NULL, sizeof *held, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal((void *)held, MAP_FAILED);
  life.config.devices = 2;
  life_begin();
  int peer = life_client(), watcher = life_client(), file = peer_file(300, 200, 1);
  pid_t stuck = (pid_t)life_status(watcher)->devices[1].pid, holder = hold_corpse(stuck, held);
  while (!atomic_load(held))
    assert_int_equal(waitpid(holder, NULL, WNOHANG), 0);
  assert_int_equal(kill(stuck, SIGKILL), 0);
  life_wait_for(watcher, 1, 0, "starting");
  peer_arena(peer, 4);
  struct message_weight_load request = peer_load("a");
  for (request.device = -1; request.device < 1; request.device++) { /* wherever there is room, and where it goes on */
    assert_int_equal(peer_ask(peer, COMMAND_weight_load, &request, &file, 1, &info, &life.failure), STATUS_OK);
    assert_int_equal(info.parts[0].device, 0);
  }
  assert_int_equal(life_ask_name(peer, COMMAND_weight_open, "a", NULL), STATUS_OK);
  request = peer_load("b");
  request.device = 1;
  assert_int_equal(peer_ask(peer, COMMAND_weight_load, &request, &file, 1, NULL, &life.failure), STATUS_DEVICE_LOST);
  assert_int_equal(kill(holder, SIGKILL), 0);
  assert_int_equal(waitpid(holder, NULL, 0), holder);
  life_wait_for(watcher, 1, 1, "ready");
  assert_int_equal(peer_ask(peer, COMMAND_weight_load, &request, &file, 1, &info, &life.failure), STATUS_OK);
  assert_int_equal(info.parts[0].device, 1);
  munmap((void *)held, sizeof *held);
  close(file);
  close(peer);
  close(watcher);
  life_end();
}

int main(int count, char **words) {
  peer_main(count, words);
#define LIFE(test) cmocka_unit_test_setup_teardown(test, life_configure, life_clean)
  const struct CMUnitTest tests[] = {
      LIFE(what_cannot_be_started_costs_nobody_else_anything),
      LIFE(a_dead_worker_is_replaced_with_all_that_it_had),
      LIFE(a_silent_worker_is_replaced),
      LIFE(a_worker_that_does_not_start_is_given_up),
      LIFE(a_hung_worker_does_not_keep_gemmd_from_ending),
      LIFE(a_wakeup_that_blocks_holds_up_nobody),
      LIFE(what_a_fault_has_damaged_is_not_served),
      LIFE(what_was_damaged_is_not_shared),
      LIFE(who_dies_while_it_looks_clears_nothing),
      LIFE(what_a_hung_worker_has_damaged_is_not_served),
      LIFE(a_place_is_free_when_the_worker_has_let_go),
      LIFE(a_worker_that_keeps_dying_is_given_up),
      LIFE(loads_survive_the_death_of_a_worker),
      LIFE(what_is_being_closed_is_not_opened_again),
      LIFE(replicas_and_splits_lie_on_several_devices),
      LIFE(what_a_failed_device_holds_is_loaded_to_another),
      LIFE(a_worker_that_cannot_end_holds_up_no_other_device),
  };
#undef LIFE
  return cmocka_run_group_tests(tests, NULL, NULL);
}
