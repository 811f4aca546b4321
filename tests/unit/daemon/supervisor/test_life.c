/* Weights and daemons over their lives: sharing, replacing and freeing; two daemons on one socket. */
#include "tests/support/messages/life.h"
#include "tests/support/messages/peer.h"
#include "tests/support/system/nap.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* Its codes alone: what else there is is the backend's business. */
static uint64_t bytes_of_weight(void) {
  return 300 * 200;
}

/* ---- names and contents */

static void equal_content_is_stored_once_and_freed_at_the_last_name(void **state) {
  struct message_weight_info first, second;
  struct message_weight_unload_reply left;
  life_begin();
  int peer = life_client();
  assert_int_equal(life_load(peer, "a", 1, false, &first), STATUS_OK);
  assert_false(first.shared);
  assert_int_equal(first.n, 300);
  assert_int_equal(first.k, 200);
  assert_true(first.bytes >= bytes_of_weight());
  assert_int_equal(life_load(peer, "b", 1, false, &second), STATUS_OK);
  assert_true(second.shared);
  assert_int_equal(second.references, 2);
  assert_memory_equal(first.hash, second.hash, sizeof first.hash);
  assert_int_equal(life_status(peer)->names, 2);
  assert_int_equal(life.status.weights, 1);
  assert_int_equal(life.status.weight_bytes, first.bytes);
  assert_int_equal(life.status.devices[0].memory_used, first.bytes);
  assert_int_equal(life.status.devices[0].memory_slabs, 2 << 20);
  assert_int_equal(life_ask_name(peer, COMMAND_weight_unload, "a", &left), STATUS_OK);
  assert_int_equal(left.references, 1);
  assert_int_equal(left.freed, 0);
  assert_int_equal(life_ask_name(peer, COMMAND_weight_unload, "b", &left), STATUS_OK);
  assert_int_equal(left.references, 0);
  assert_int_equal(left.freed, first.bytes);
  assert_int_equal(life_status(peer)->weights, 0);
  assert_int_equal(life.status.devices[0].memory_used, 0);
  assert_int_equal(life.status.devices[0].memory_slabs, 0);
  assert_int_equal(life_ask_name(peer, COMMAND_weight_unload, "b", NULL), STATUS_NOT_FOUND);
  close(peer);
  life_end();
}

static void other_content_under_a_name_needs_replace(void **state) {
  struct message_weight_info first, second;
  life_begin();
  int peer = life_client();
  assert_int_equal(life_load(peer, "a", 1, false, &first), STATUS_OK);
  assert_int_equal(life_load(peer, "a", 1, false, &second), STATUS_OK); /* the same again */
  assert_true(second.shared);
  assert_int_equal(second.references, 1);
  assert_int_equal(life_load(peer, "a", 2, false, NULL), STATUS_EXISTS);
  assert_int_equal(life_status(peer)->weights, 1);
  assert_int_equal(life.status.devices[0].memory_used, first.bytes); /* nothing of the refused one is left */
  assert_int_equal(life_load(peer, "a", 2, true, &second), STATUS_OK);
  assert_memory_not_equal(first.hash, second.hash, sizeof first.hash);
  assert_int_equal(life_status(peer)->names, 1);
  assert_int_equal(life_ask_name(peer, COMMAND_weight_info, "a", &first), STATUS_OK);
  assert_memory_equal(first.hash, second.hash, sizeof first.hash);
  close(peer);
  life_end();
}

static enum status stage(int peer, const char *name, uint32_t seed) {
  struct message_weight_load request = peer_load(name);
  request.staged = true;
  int file = peer_file(300, 200, seed);
  enum status status = peer_ask(peer, COMMAND_weight_load, &request, &file, 1, NULL, &life.failure);
  close(file);
  return status;
}

static void staged_weights_get_their_names_together_or_not_at_all(void **state) {
  const struct message_weight_commit all = {.instead_of = ""};
  const struct message_empty nothing = {.reserved = 0};
  struct message_weight_commit_reply reply;
  life_begin();
  int peer = life_client(), other = life_client();
  assert_int_equal(stage(peer, "a", 1), STATUS_OK);
  assert_int_equal(stage(peer, "b", 2), STATUS_OK);
  assert_int_equal(stage(peer, "b", 3), STATUS_EXISTS);
  assert_int_equal(life_status(other)->names, 0);
  assert_int_equal(life_ask_name(peer, COMMAND_weight_info, "a", NULL), STATUS_NOT_FOUND); /* not even who loaded it */
  assert_int_equal(life_load(other, "b", 4, false, NULL), STATUS_OK);
  assert_int_equal(peer_ask(peer, COMMAND_weight_commit, &all, NULL, 0, &reply, &life.failure), STATUS_EXISTS);
  assert_int_equal(life_ask_name(peer, COMMAND_weight_info, "a", NULL), STATUS_NOT_FOUND);
  assert_int_equal(life_status(other)->names, 1);
  assert_int_equal(life_ask_name(other, COMMAND_weight_unload, "b", NULL), STATUS_OK);
  assert_int_equal(peer_ask(peer, COMMAND_weight_commit, &all, NULL, 0, &reply, &life.failure), STATUS_OK);
  assert_int_equal(reply.named, 2);
  assert_int_equal(life_status(other)->names, 2);
  assert_int_equal(stage(peer, "c", 5), STATUS_OK);
  assert_int_equal(life_status(other)->weights, 3);
  assert_int_equal(peer_ask(peer, COMMAND_weight_abandon, &nothing, NULL, 0, NULL, &life.failure), STATUS_OK);
  while (life_status(other)->weights != 2)
    nap_shortly();
  assert_int_equal(stage(peer, "c", 5), STATUS_OK);
  close(peer);
  while (life_status(other)->weights != 2) /* it goes with its session */
    nap_shortly();
  close(other);
  life_end();
}

static void open_handles_keep_a_content(void **state) {
  struct message_weight_info info, opened;
  struct message_weight_unload_reply left;
  life_begin();
  int peer = life_client(), other = life_client();
  assert_int_equal(life_load(peer, "a", 1, false, &info), STATUS_OK);
  peer_arena(peer, 4);
  peer_arena(other, 4);
  assert_int_equal(life_ask_name(peer, COMMAND_weight_open, "a", &opened), STATUS_OK);
  assert_int_equal(opened.parts_count, 1);
  struct message_weight_close request = {.parts_count = 1, .parts = {opened.parts[0]}};
  assert_int_equal(life_ask_name(other, COMMAND_weight_open, "a", &opened), STATUS_OK);
  assert_int_equal(life_ask_name(other, COMMAND_weight_unload, "a", &left), STATUS_OK);
  assert_int_equal(left.references, 0);
  assert_int_equal(left.freed, 0);
  assert_int_equal(life_status(peer)->weights, 1);
  assert_int_equal(peer_ask(peer, COMMAND_weight_close, &request, NULL, 0, NULL, &life.failure), STATUS_OK);
  assert_int_equal(peer_ask(peer, COMMAND_weight_close, &request, NULL, 0, NULL, &life.failure), STATUS_NOT_FOUND);
  assert_int_equal(life_status(peer)->weights, 1); /* the other session's handle */
  close(other);
  while (life_status(peer)->weights != 0) /* as soon as the daemon has seen it go */
    nap_shortly();
  while (life_status(peer)->devices[0].memory_slabs != 0)
    nap_shortly();
  close(peer);
  life_end();
}

/* A place that is used again is another handle: whoever kept the old one reaches nothing by it. */
static void a_handle_that_was_given_back_names_nothing(void **state) {
  struct message_weight_info first, second;
  life_begin();
  int peer = life_client();
  peer_arena(peer, 4);
  assert_int_equal(life_load(peer, "a", 1, false, NULL), STATUS_OK);
  assert_int_equal(life_load(peer, "b", 2, false, NULL), STATUS_OK);
  assert_int_equal(life_ask_name(peer, COMMAND_weight_open, "a", &first), STATUS_OK);
  const struct message_weight_close old = {.parts_count = 1, .parts = {first.parts[0]}};
  assert_int_equal(peer_ask(peer, COMMAND_weight_close, &old, NULL, 0, NULL, &life.failure), STATUS_OK);
  assert_int_equal(life_ask_name(peer, COMMAND_weight_open, "b", &second), STATUS_OK);
  const struct message_weight_close new = {.parts_count = 1, .parts = {second.parts[0]}};
  assert_int_equal(peer_ask(peer, COMMAND_weight_close, &old, NULL, 0, NULL, &life.failure), STATUS_NOT_FOUND);
  assert_int_equal(peer_ask(peer, COMMAND_weight_close, &new, NULL, 0, NULL, &life.failure), STATUS_OK);
  close(peer);
  life_end();
}

/* To match it takes so long that the names are looked at in several turns; other requests come after it all the same.
 */
static void find_by_a_slow_pattern(int peer) {
  enum { COUNT = 100, LONG = 240 };
  static struct message_weight_list_reply page;
  static struct peer_reply reply;
  const struct message_ping ping = {.payload = 3};
  char name[LIMIT_NAME_BYTES];
  struct message_weight_list_request request = {.pattern = ""};
  memset(name, 'a', LONG);
  for (int i = 0; i < COUNT; i++) {
    snprintf(name + LONG, sizeof name - LONG, i == 90 ? "b%02d" : "%02d", i);
    assert_int_equal(life_load(peer, name, 1, false, NULL), STATUS_OK);
  }
  for (int i = 0; i < 20; i++)
    strcat(request.pattern, "*[[:alpha:]]");
  strcat(request.pattern, "b90");
  peer_send(peer, 5, COMMAND_weight_list, &message_weight_list_request_type, &request, NULL, 0);
  peer_send(peer, 6, COMMAND_ping, &message_ping_type, &ping, NULL, 0);
  peer_receive(peer, 5, &message_weight_list_reply_type, &page, &reply);
  assert_int_equal(reply.status, STATUS_OK);
  assert_int_equal(page.weights_count, 1);
  assert_string_equal(page.weights[0].name + LONG, "b90");
  assert_false(page.more);
  peer_receive(peer, 6, NULL, NULL, &reply);
}

static void lists_come_in_pages_by_name(void **state) {
  enum { COUNT = 150 };
  static struct message_weight_list_reply page;
  char name[16];
  unsigned seen = 0;
  life_begin();
  int peer = life_client();
  for (unsigned i = 0; i < COUNT; i++) {
    snprintf(name, sizeof name, "w.%03u", i * 7 % COUNT);
    assert_int_equal(life_load(peer, name, 1, false, NULL), STATUS_OK);
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
  find_by_a_slow_pattern(peer);
  close(peer);
  life_end();
}

static void loads_of_one_name_at_once_end_consistently(void **state) {
  static struct peer_reply reply;
  struct message_weight_info info;
  int files[4], loaded = 0, shared = 0, refused = 0;
  life.config.loaders_max = 4;
  life_begin();
  int peer = life_client();
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
  assert_int_equal(life_status(peer)->weights, 1);
  close(peer);
  life_end();
}

static void a_client_that_leaves_takes_its_load_along(void **state) {
  life_begin();
  int watcher = life_client();
  for (int i = 0; i < 10; i++) {
    int leaver = life_client(), file = peer_file(2000, 500, 3);
    struct message_weight_load request = peer_load("gone");
    peer_send(leaver, 1, COMMAND_weight_load, &message_weight_load_type, &request, &file, 1);
    close(file);
    for (int trip = 0; trip < i * 20; trip++) /* leaves at different stages of the load */
      life_status(watcher);
    close(leaver);
  }
  int peer = watcher;
  struct message_weight_info info;
  assert_int_equal(life_load(peer, "kept", 1, false, &info), STATUS_OK);
  enum status there = life_ask_name(peer, COMMAND_weight_info, "gone", &info);
  if (there == STATUS_OK) /* one of them was faster than its client */
    assert_int_equal(life_ask_name(peer, COMMAND_weight_unload, "gone", NULL), STATUS_OK);
  while (life_status(peer)->sessions > 1 || life.status.weights > 1 ||
         life.status.devices[0].memory_used > bytes_of_weight() * 2)
    nap_shortly();
  close(peer);
  life_end();
}

/* ---- who may */

static void only_owners_unload(void **state) {
  if (geteuid() != 0)
    skip(); /* to be another user takes root */
  life.config.socket_mode = 0666;
  assert_int_equal(chmod(life.folder, 0755), 0);
  life_begin();
  int peer = life_client();
  assert_int_equal(life_load(peer, "roots", 1, false, NULL), STATUS_OK);
  pid_t pid = fork();
  if (pid == 0) {
    struct message_weight_info info;
    if (setgid(65534) != 0 || setuid(65534) != 0)
      _exit(9);
    int mine = life_client();
    if (life_ask_name(mine, COMMAND_weight_unload, "roots", NULL) != STATUS_PERMISSION)
      _exit(1);
    if (life_load(mine, "roots", 2, true, NULL) != STATUS_PERMISSION)
      _exit(2);
    if (life_load(mine, "theirs", 1, false, &info) != STATUS_OK || info.owner != 65534 || !info.shared)
      _exit(3);
    _exit(0);
  }
  assert_int_equal(peer_wait(pid), 0);
  assert_int_equal(life_ask_name(peer, COMMAND_weight_unload, "theirs", NULL), STATUS_OK); /* root may */
  close(peer);
  life_end();
}

/* ---- daemons and sockets */

static void a_second_daemon_refuses_and_the_first_goes_on(void **state) {
  life_begin();
  int peer = life_client();
  assert_int_equal(peer_wait(peer_spawn(&life.config)), 1);
  assert_int_equal(life_status(peer)->pid, life.supervisor);
  close(peer);
  life_end();
}

static void a_stale_socket_is_replaced(void **state) {
  life_begin();
  assert_int_equal(kill(life.supervisor, SIGKILL), 0);
  assert_int_equal(peer_wait(life.supervisor), 128 + SIGKILL);
  assert_int_equal(access(life.config.socket, F_OK), 0);
  life_begin();
  int peer = life_client();
  close(peer);
  life_end();
  assert_int_not_equal(access(life.config.socket, F_OK), 0);
}

static void a_socket_has_the_mode_that_was_asked_for(void **state) {
  struct stat there;
  life.config.socket_mode = 0600;
  life_begin();
  assert_int_equal(stat(life.config.socket, &there), 0);
  assert_int_equal(there.st_mode & 0777, 0600);
  life_end();
}

static void too_many_sessions_are_told_to_come_back(void **state) {
  static struct peer_reply reply;
  const struct message_hello_request hello = {.version_min = 1, .version_max = 1, .client = "test"};
  life.config.sessions_max = 2;
  life_begin();
  int first = life_client(), second = life_client(), third = peer_connect(&life.config);
  peer_send(third, 1, COMMAND_hello, &message_hello_request_type, &hello, NULL, 0);
  peer_receive(third, 1, NULL, NULL, &reply);
  assert_int_equal(reply.status, STATUS_BUSY);
  assert_int_not_equal(reply.retry_ms, 0);
  peer_expect_end(third);
  close(third);
  close(second);
  while (life_status(first)->sessions > 1)
    nap_shortly();
  second = life_client(); /* there is room again */
  close(first);
  close(second);
  life_end();
}

int main(int count, char **words) {
  peer_main(count, words);
#define LIFE(test) cmocka_unit_test_setup_teardown(test, life_configure, life_clean)
  const struct CMUnitTest tests[] = {
      LIFE(equal_content_is_stored_once_and_freed_at_the_last_name),
      LIFE(other_content_under_a_name_needs_replace),
      LIFE(open_handles_keep_a_content),
      LIFE(staged_weights_get_their_names_together_or_not_at_all),
      LIFE(a_handle_that_was_given_back_names_nothing),
      LIFE(lists_come_in_pages_by_name),
      LIFE(loads_of_one_name_at_once_end_consistently),
      LIFE(a_client_that_leaves_takes_its_load_along),
      LIFE(only_owners_unload),
      LIFE(a_second_daemon_refuses_and_the_first_goes_on),
      LIFE(a_stale_socket_is_replaced),
      LIFE(a_socket_has_the_mode_that_was_asked_for),
      LIFE(too_many_sessions_are_told_to_come_back),
  };
#undef LIFE
  return cmocka_run_group_tests(tests, NULL, NULL);
}
