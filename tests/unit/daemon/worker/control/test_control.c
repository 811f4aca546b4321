/* A worker as a process of its own, with this program as its supervisor and client: every internal command, their
 * order, and a successor that takes a dead worker's memory over. */
#include "daemon/transport.h"
#include "tests/support/messages/bare_worker.h"
#include "tests/support/system/folder.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void a_weight_is_stored_served_and_given_back(void **state) {
  struct bare_worker worker;
  struct bare_client client;
  bare_start(&worker, "");
  assert_string_equal(worker.ready.backend, "cpu");
  assert_true(worker.ready.reason[0] != '\0' && worker.ready.device_name[0] != '\0');
  assert_true(worker.ready.devices >= 1 && worker.ready.memory_total > 0);
  int canonical = bare_canonical(true), slab = bare_create_slab(&worker);
  struct message_weight_place place = bare_plan(&worker, BARE_N);
  assert_int_equal(bare_store(&worker, &place, canonical), STATUS_OK);
  bare_client_make(&client);
  bare_add_session(&worker, &client);
  bare_expect_product(&client, 0, BARE_N);

  struct message_worker_stats stats;
  struct message_empty nothing = {0};
  uint32_t id = bare_ask(&worker, COMMAND_worker_stats, &nothing, NULL, 0);
  assert_int_equal(bare_answer(&worker, id, COMMAND_worker_stats, &stats), STATUS_OK);
  assert_int_equal(stats.requests, 1);
  assert_int_equal(stats.rows, 1);
  assert_int_equal(stats.failures, 0);

  /* in the wrong order nothing goes, in the right one all */
  assert_int_equal(bare_call(&worker, COMMAND_slab_free, &bare_this_slab), STATUS_WRONG_STATE);
  assert_int_equal(bare_call(&worker, COMMAND_weight_detach, &bare_this_weight), STATUS_WRONG_STATE);
  assert_int_equal(bare_call(&worker, COMMAND_session_weight_remove, &bare_open_weight), STATUS_OK);
  bare_submit(&client, bare_product(&client, BARE_N));
  struct ring_completion refused = bare_take(&client);
  assert_int_equal(refused.status, STATUS_NOT_FOUND);
  assert_int_equal(refused.field, FIELD_WEIGHT);
  assert_int_equal(bare_call(&worker, COMMAND_weight_detach, &bare_this_weight), STATUS_OK);
  assert_int_equal(bare_call(&worker, COMMAND_slab_free, &bare_this_slab), STATUS_OK);
  assert_int_equal(bare_call(&worker, COMMAND_session_remove, &bare_this_session), STATUS_OK);
  assert_int_equal(bare_call(&worker, COMMAND_session_remove, &bare_this_session), STATUS_NOT_FOUND);
  bare_stop(&worker);
  bare_client_free(&client);
  close(canonical);
  close(slab);
}

static void a_part_of_a_split_weight_is_stored(void **state) {
  struct bare_worker worker;
  struct bare_client client;
  bare_start(&worker, "");
  int canonical = bare_canonical(true), slab = bare_create_slab(&worker);
  struct message_weight_place place = bare_plan(&worker, 90);
  place.n_begin = 107;
  place.n_total = BARE_N;
  assert_int_equal(bare_store(&worker, &place, canonical), STATUS_OK);
  bare_client_make(&client);
  bare_add_session(&worker, &client);
  bare_expect_product(&client, 107, 90);
  bare_stop(&worker); /* with everything still there */
  bare_client_free(&client);
  close(canonical);
  close(slab);
}

/* Into another slab, under another number; both serve, and what does not fit is refused. */
static void a_weight_is_copied_and_verified(void **state) {
  enum { OTHER_SLAB = BARE_SLAB + 1, OTHER_WEIGHT = BARE_WEIGHT + 1 };
  struct bare_worker worker;
  struct message_weight_placed stored, copied, verified;
  bare_start(&worker, "");
  int canonical = bare_canonical(true), slab = bare_create_slab(&worker);
  const struct message_weight_place place = bare_plan(&worker, BARE_N);
  uint32_t id = bare_ask(&worker, COMMAND_weight_store, &place, &canonical, 1);
  assert_int_equal(bare_answer(&worker, id, COMMAND_weight_store, &stored), STATUS_OK);
  const struct message_slab_create create = {.slab = OTHER_SLAB, .bytes = bare_slab_bytes(&worker)};
  struct message_head head;
  struct message_body body;
  (void)bare_ask(&worker, COMMAND_slab_create, &create, NULL, 0);
  bare_receive(&worker, &head, &body);
  assert_int_equal(head.code, STATUS_OK);
  struct message_weight_place copy = place;
  copy.weight = OTHER_WEIGHT;
  copy.slab = OTHER_SLAB;
  copy.from = 4711;
  assert_int_equal(bare_call(&worker, COMMAND_weight_copy, &copy), STATUS_NOT_FOUND);
  copy.from = BARE_WEIGHT;
  copy.n--;
  assert_int_equal(bare_call(&worker, COMMAND_weight_copy, &copy), STATUS_INVALID);
  copy.n++;
  copy.offset = create.bytes;
  assert_int_equal(bare_call(&worker, COMMAND_weight_copy, &copy), STATUS_INVALID);
  copy.offset = 0;
  id = bare_ask(&worker, COMMAND_weight_copy, &copy, NULL, 0);
  assert_int_equal(bare_answer(&worker, id, COMMAND_weight_copy, &copied), STATUS_OK);
  assert_true(copied.checksum == stored.checksum && stored.checksum != 0);
  assert_int_equal(bare_call(&worker, COMMAND_weight_detach, &bare_this_weight), STATUS_OK);
  assert_int_equal(bare_call(&worker, COMMAND_weight_verify, &bare_this_weight), STATUS_NOT_FOUND);
  const struct message_weight_id other = {.weight = OTHER_WEIGHT};
  id = bare_ask(&worker, COMMAND_weight_verify, &other, NULL, 0);
  assert_int_equal(bare_answer(&worker, id, COMMAND_weight_verify, &verified), STATUS_OK);
  assert_true(verified.checksum == stored.checksum);
  bare_stop(&worker);
  close(canonical);
  close(slab);
}

static void a_successor_takes_over(void **state) {
  struct bare_worker worker;
  struct bare_client client;
  bare_start(&worker, "");
  int canonical = bare_canonical(true), slab = bare_create_slab(&worker);
  struct message_weight_place place = bare_plan(&worker, BARE_N);
  assert_int_equal(bare_store(&worker, &place, canonical), STATUS_OK);
  close(canonical);
  bare_client_make(&client);
  bare_add_session(&worker, &client);
  bare_expect_product(&client, 0, BARE_N);
  uint64_t bytes = bare_slab_bytes(&worker);
  kill(worker.pid, SIGKILL);
  int status;
  assert_int_equal(waitpid(worker.pid, &status, 0), worker.pid);
  close(worker.socket);

  ring_replace_worker(client.ring.queue, 2);
  bare_start(&worker, "");
  struct message_slab_import import = {.slab = BARE_SLAB, .bytes = bytes};
  uint32_t first = bare_ask(&worker, COMMAND_slab_import, &import, &slab, 1); /* all at once, in order */
  bare_ask(&worker, COMMAND_weight_attach, &place, NULL, 0);
  bare_ask_session_add(&worker, &client, 2);
  bare_ask(&worker, COMMAND_session_weight_add, &bare_open_weight, NULL, 0);
  for (uint32_t i = 0; i < 4; i++)
    assert_int_equal(bare_answer(&worker, first + i, COMMAND_slab_import, NULL), STATUS_OK);
  assert_true(ring_client_replaced(&client.ring));
  ring_client_reset(&client.ring);
  memset(client.base + ring_tensor_offset(BARE_ENTRIES, 1), 0, 65536);
  bare_expect_product(&client, 0, BARE_N);
  bare_stop(&worker);
  bare_client_free(&client);
  close(slab);
}

static void expect_store_refused(struct bare_worker *worker, struct message_weight_place place, int canonical,
                                 enum status status) {
  assert_int_equal(bare_store(worker, &place, canonical), status);
}

static void what_does_not_fit_is_refused(void **state) {
  struct bare_worker worker;
  struct bare_client client;
  bare_start(&worker, "");
  int canonical = bare_canonical(true), open_to_writing = bare_canonical(false), slab = bare_create_slab(&worker);
  const struct message_weight_place good = bare_plan(&worker, BARE_N);
  struct message_weight_place place = good;
  place.slab = 99;
  expect_store_refused(&worker, place, canonical, STATUS_NOT_FOUND);
  place = good;
  place.offset = bare_slab_bytes(&worker);
  expect_store_refused(&worker, place, canonical, STATUS_INVALID);
  place = good;
  place.offset = 1;
  expect_store_refused(&worker, place, canonical, STATUS_INVALID);
  place = good;
  place.offset = UINT64_MAX - 255;
  expect_store_refused(&worker, place, canonical, STATUS_INVALID);
  place = good;
  place.bytes--;
  expect_store_refused(&worker, place, canonical, STATUS_INVALID);
  place = good;
  place.layout += 1000;
  expect_store_refused(&worker, place, canonical, STATUS_UNSUPPORTED);
  assert_int_equal(bare_call(&worker, COMMAND_weight_attach, &place), STATUS_UNSUPPORTED);
  place.bytes--; /* another layout may take less */
  assert_int_equal(bare_call(&worker, COMMAND_weight_attach, &place), STATUS_UNSUPPORTED);
  place.layout = good.layout;
  assert_int_equal(bare_call(&worker, COMMAND_weight_attach, &place), STATUS_INVALID);
  assert_int_equal(bare_call(&worker, COMMAND_weight_detach, &bare_this_weight), STATUS_NOT_FOUND);
  place = good;
  place.n_begin = 1;
  expect_store_refused(&worker, place, canonical, STATUS_INVALID);
  place = good;
  place.format = 77;
  expect_store_refused(&worker, place, canonical, STATUS_INVALID);
  expect_store_refused(&worker, good, open_to_writing, STATUS_BAD_DESCRIPTOR);
  place = good;
  place.n_total = BARE_N + 1; /* the memfd is shorter than that */
  expect_store_refused(&worker, place, canonical, STATUS_BAD_DESCRIPTOR);
  assert_int_equal(bare_store(&worker, &good, canonical), STATUS_OK);
  expect_store_refused(&worker, good, canonical, STATUS_EXISTS);

  bare_client_make(&client);
  client.bytes += 4096; /* not what the memfd has */
  assert_int_equal(bare_answer(&worker, bare_ask_session_add(&worker, &client, 1), COMMAND_session_add, NULL),
                   STATUS_BAD_DESCRIPTOR);
  client.bytes -= 4096;
  bare_add_session(&worker, &client);
  assert_int_equal(bare_answer(&worker, bare_ask_session_add(&worker, &client, 1), COMMAND_session_add, NULL),
                   STATUS_EXISTS);
  assert_int_equal(bare_call(&worker, COMMAND_session_weight_add, &bare_open_weight), STATUS_EXISTS);
  struct message_session_weight wrong = bare_open_weight;
  wrong.weight = 1;
  assert_int_equal(bare_call(&worker, COMMAND_session_weight_add, &wrong), STATUS_NOT_FOUND);
  wrong = bare_open_weight;
  wrong.session = 1;
  assert_int_equal(bare_call(&worker, COMMAND_session_weight_add, &wrong), STATUS_NOT_FOUND);
  struct message_slab_create again = {.slab = BARE_SLAB, .bytes = bare_slab_bytes(&worker)};
  assert_int_equal(bare_call(&worker, COMMAND_slab_create, &again), STATUS_EXISTS);
  struct message_ping ping = {0};
  assert_int_equal(bare_call(&worker, COMMAND_ping, &ping), STATUS_PROTOCOL);
  assert_int_equal(bare_call(&worker, COMMAND_slab_import, &(struct message_slab_import){.slab = 5, .bytes = 1}),
                   STATUS_PROTOCOL); /* without its descriptor */
  bare_expect_product(&client, 0, BARE_N);
  bare_stop(&worker);
  bare_client_free(&client);
  close(canonical);
  close(open_to_writing);
  close(slab);
}

/* A disk that takes its time: where these are open, fsync(2) in the worker says so and waits for a word. */
static int slow_disk[2] = {-1, -1};

int fsync(int fd) {
  char word = 's';
  if (slow_disk[1] >= 0 && (write(slow_disk[1], &word, 1) != 1 || read(slow_disk[1], &word, 1) != 1))
    return -1;
  return (int)syscall(SYS_fsync, fd);
}

/* What is kept goes to the disk beside everything else: the supervisor's questions are answered meanwhile, and what was
 * under way is kept before the worker ends. */
static void a_slow_disk_holds_up_nobody(void **state) {
  static const char shape[] = "int8-row-200x70-f32-f32-none-m1";
  struct message_tune_import_request import = {.device = 0};
  struct message_empty empty = {.reserved = 0};
  struct message_tune_count forgotten;
  struct bare_worker worker;
  char find[256], word;
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, slow_disk), 0);
  bare_start(&worker, folder);
  close(slow_disk[1]);
  slow_disk[1] = -1;
  snprintf(import.shape, sizeof import.shape, "%s", shape);
  snprintf(import.kernel, sizeof import.kernel, "cpu threads=1");
  for (int i = 0; i < 2; i++) {
    assert_int_equal(bare_call(&worker, COMMAND_tune_import, &import), STATUS_OK);
    if (i == 0)
      assert_int_equal(read(slow_disk[0], &word, 1), 1); /* it is at it */
    assert_int_equal(bare_call(&worker, COMMAND_worker_stats, &empty), STATUS_OK);
    struct message_tune_forget_request forget = {.pattern = "*"};
    assert_int_equal(
        bare_answer(&worker, bare_ask(&worker, COMMAND_tune_forget, &forget, NULL, 0), COMMAND_tune_forget, &forgotten),
        STATUS_OK);
    assert_int_equal(forgotten.count, 1);
  }
  assert_int_equal(bare_call(&worker, COMMAND_tune_import, &import), STATUS_OK);
  close(worker.socket);
  do /* the second word of each save is for its folder */
    assert_int_equal(write(slow_disk[0], "g", 1), 1);
  while (read(slow_disk[0], &word, 1) == 1);
  assert_int_equal(bare_exit_status(&worker), 0);
  close(slow_disk[0]);
  snprintf(find, sizeof find, "[ $(find %s -name '%s.json' | wc -l) = 1 ]", folder,
           shape); /* as it was asked for last */
  assert_int_equal(system(find), 0);
}

static void a_lying_session_is_reported(void **state) {
  struct bare_worker worker;
  struct bare_client client;
  struct message_head head;
  struct message_body body;
  struct message_session_broken broken;
  struct error error;
  bare_start(&worker, "");
  bare_client_make(&client);
  assert_int_equal(bare_answer(&worker, bare_ask_session_add(&worker, &client, 1), COMMAND_session_add, NULL),
                   STATUS_OK);
  atomic_store(&client.ring.queue->submission_tail, 1000);
  uint64_t one = 1;
  assert_int_equal(write(client.fds[1], &one, sizeof one), sizeof one);
  bare_receive(&worker, &head, &body);
  assert_int_equal(head.kind, MESSAGE_EVENT);
  assert_int_equal(head.code, EVENT_session_broken);
  assert_int_equal(message_decode_body(body, &message_session_broken_type, &broken, &error), STATUS_OK);
  assert_int_equal(broken.session, BARE_SESSION);
  assert_non_null(strstr(broken.text, "1000"));
  assert_int_equal(bare_call(&worker, COMMAND_session_remove, &bare_this_session), STATUS_OK);
  bare_stop(&worker);
  bare_client_free(&client);
}

static void a_worker_ends_while_commands_wait(void **state) {
  for (unsigned round = 0; round < 20; round++) {
    struct bare_worker worker;
    struct bare_client client;
    bare_start(&worker, "");
    int canonical = bare_canonical(true), slab = bare_create_slab(&worker);
    struct message_weight_place place = bare_plan(&worker, BARE_N);
    bare_client_make(&client);
    bare_ask(&worker, COMMAND_weight_store, &place, &canonical, 1);
    bare_ask_session_add(&worker, &client, 1);
    bare_ask(&worker, COMMAND_session_weight_add, &bare_open_weight, NULL, 0);
    if (round % 2 != 0) {
      bare_ask(&worker, COMMAND_session_remove, &bare_this_session, NULL, 0);
      bare_ask(&worker, COMMAND_weight_detach, &bare_this_weight, NULL, 0);
    }
    bare_stop(&worker);
    bare_client_free(&client);
    close(canonical);
    close(slab);
  }
}

static void answers_wait_for_a_slow_reader(void **state) {
  enum { QUESTIONS = 3000 }; /* far more than a socket holds */
  struct bare_worker worker;
  bare_start(&worker, "");
  uint32_t first = worker.next_id;
  for (unsigned i = 0; i < QUESTIONS; i++) {
    struct pollfd room = {.fd = worker.socket, .events = POLLOUT};
    assert_int_equal(poll(&room, 1, BARE_LONGEST_WAIT_MS), 1);
    if (i % 2 == 0)
      bare_ask(&worker, COMMAND_worker_stats, &(struct message_empty){0}, NULL, 0);
    else
      bare_ask(&worker, COMMAND_session_remove, &bare_this_session, NULL, 0);
  }
  for (unsigned i = 0; i < QUESTIONS; i++)
    assert_int_equal(bare_answer(&worker, first + i, COMMAND_worker_stats, NULL),
                     i % 2 == 0 ? STATUS_OK : STATUS_NOT_FOUND);
  bare_stop(&worker);
}

static void garbage_ends_the_worker(void **state) {
  struct bare_worker worker;
  struct error error;
  bare_start(&worker, "");
  assert_int_equal(transport_send(worker.socket, "garbage", 7, NULL, 0, &error), STATUS_OK);
  assert_int_equal(bare_exit_status(&worker), 0);
  close(worker.socket);
}

static void no_backend_has_a_status_of_its_own(void **state) {
  struct bare_worker worker;
  bare_start_with(&worker, "no-such-backend", "");
  assert_int_equal(bare_exit_status(&worker), 3);
  close(worker.socket);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_weight_is_stored_served_and_given_back),
      cmocka_unit_test(a_part_of_a_split_weight_is_stored),
      cmocka_unit_test(a_weight_is_copied_and_verified),
      cmocka_unit_test(a_successor_takes_over),
      cmocka_unit_test(what_does_not_fit_is_refused),
      cmocka_unit_test_setup_teardown(a_slow_disk_holds_up_nobody, folder_make, folder_remove),
      cmocka_unit_test(a_lying_session_is_reported),
      cmocka_unit_test(a_worker_ends_while_commands_wait),
      cmocka_unit_test(answers_wait_for_a_slow_reader),
      cmocka_unit_test(garbage_ends_the_worker),
      cmocka_unit_test(no_backend_has_a_status_of_its_own),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
