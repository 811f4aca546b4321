/* A worker as a process of its own, with this program as its supervisor and client: every internal command, their
 * order, and a successor that takes a dead worker's memory over. */
#include "daemon/log.h"
#include "daemon/memfd.h"
#include "daemon/transport.h"
#include "daemon/worker/worker.h"
#include "proto/gemm.h"
#include "proto/ring.h"
#include "tests/support/folder.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { ENTRIES = 8, N = 200, K = 70, LONGEST_WAIT_MS = 60000, SLAB = 11, WEIGHT = 21, SESSION = 31, HANDLE = 1 << 16 };

/* ---- the process */

struct worker {
  pid_t pid;
  int socket;
  uint32_t next_id;
  struct message_worker_ready ready;
};

static struct packet packet;

/* A disk that takes its time: where these are open, fsync(2) in the worker says so and waits for a word. */
static int slow_disk[2] = {-1, -1};
static const char *state_dir = "";

int fsync(int fd) {
  char word = 's';
  if (slow_disk[1] >= 0 && (write(slow_disk[1], &word, 1) != 1 || read(slow_disk[1], &word, 1) != 1))
    return -1;
  return (int)syscall(SYS_fsync, fd);
}

static void receive(struct worker *worker, struct message_head *head, struct message_body *body) {
  struct error error;
  struct pollfd one = {.fd = worker->socket, .events = POLLIN};
  assert_int_equal(poll(&one, 1, LONGEST_WAIT_MS), 1);
  assert_int_equal(transport_receive(worker->socket, &packet, &error), STATUS_OK);
  assert_int_equal(message_decode_head(packet.bytes, packet.length, head, body, &error), STATUS_OK);
}

static void start_with(struct worker *worker, const char *backend) {
  int pair[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  worker->next_id = 1;
  worker->socket = pair[0];
  worker->pid = fork();
  assert_true(worker->pid >= 0);
  if (worker->pid == 0) {
    struct config config;
    struct error error;
    close(pair[0]);
    config_defaults(&config);
    log_open("error", "worker 0");
    snprintf(config.backend, sizeof config.backend, "%s", backend); /* also one that a build may lack */
    if (config_set(&config, "cpu_threads", "2", &error) != STATUS_OK ||
        config_set(&config, "state_dir", state_dir, &error) != STATUS_OK)
      _exit(100);
    char *words[] = {"gemmd", "--worker", "0", NULL};
    exit(worker_run(&config, 0, pair[1], false, words));
  }
  close(pair[1]);
}

static void start(struct worker *worker) {
  struct message_head head;
  struct message_body body;
  struct error error;
  start_with(worker, "cpu");
  receive(worker, &head, &body);
  assert_int_equal(head.kind, MESSAGE_EVENT);
  assert_int_equal(head.code, EVENT_worker_ready);
  assert_int_equal(message_decode_body(body, &message_worker_ready_type, &worker->ready, &error), STATUS_OK);
}

static int exit_status(const struct worker *worker) {
  int status;
  assert_int_equal(waitpid(worker->pid, &status, 0), worker->pid);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static void stop(struct worker *worker) {
  close(worker->socket);
  assert_int_equal(exit_status(worker), 0);
}

/* ---- requests. Answers come in the order of the requests. */

static uint32_t ask(struct worker *worker, uint32_t command, const void *body, const int *fds, size_t fd_count) {
  struct message_head head = {.kind = MESSAGE_REQUEST, .id = worker->next_id++, .code = command};
  uint8_t bytes[4096];
  size_t length;
  struct error error;
  assert_int_equal(message_encode(&head, command_find(command)->request, body, bytes, sizeof bytes, &length, &error),
                   STATUS_OK);
  assert_int_equal(transport_send(worker->socket, bytes, length, fds, fd_count, &error), STATUS_OK);
  return head.id;
}

static enum status answer(struct worker *worker, uint32_t id, uint32_t command, void *reply) {
  struct message_head head;
  struct message_body body;
  struct error error;
  receive(worker, &head, &body);
  assert_int_equal(head.kind, MESSAGE_REPLY);
  assert_int_equal(head.id, id);
  if (head.code == STATUS_OK && reply != NULL)
    assert_int_equal(message_decode_body(body, command_find(command)->reply, reply, &error), STATUS_OK);
  return (enum status)head.code;
}

static enum status call(struct worker *worker, uint32_t command, const void *body) {
  return answer(worker, ask(worker, command, body, NULL, 0), command, NULL);
}

/* ---- a weight: INT8 rows, n of them, the first standing for row `first` of the whole */

static int8_t code(int64_t n, int64_t k) {
  return (int8_t)(n * 5 + k * 11 + n * k);
}

static int make_canonical(bool frozen) {
  struct gemm_weight shape = {.n = N, .k = K, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW};
  struct gemm_layout layout;
  struct error error;
  int fd;
  assert_int_equal(gemm_layout_compute(&shape, &layout, &error), STATUS_OK);
  assert_int_equal(memfd_make_open("canonical", layout.total_bytes, &fd, &error), STATUS_OK);
  uint8_t *bytes = memfd_map(fd, layout.total_bytes, true, &error);
  assert_non_null(bytes);
  for (int64_t n = 0; n < N; n++) {
    for (int64_t k = 0; k < K; k++)
      bytes[(uint64_t)n * layout.row_bytes + (uint64_t)k] = (uint8_t)code(n, k);
    ((float *)(void *)(bytes + layout.scales_offset))[n] = (float)(1 << n % 4);
  }
  munmap(bytes, layout.total_bytes);
  if (frozen)
    assert_int_equal(memfd_freeze(fd, &error), STATUS_OK);
  return fd;
}

static struct message_weight_place plan(struct worker *worker, int64_t n) {
  struct message_weight_plan ask_plan = {.n = n, .k = K, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW};
  struct message_weight_plan_reply reply;
  uint32_t id = ask(worker, COMMAND_weight_plan, &ask_plan, NULL, 0);
  assert_int_equal(answer(worker, id, COMMAND_weight_plan, &reply), STATUS_OK);
  assert_true(reply.bytes >= (uint64_t)n * K);
  return (struct message_weight_place){.weight = WEIGHT,
                                       .slab = SLAB,
                                       .bytes = reply.bytes,
                                       .n = n,
                                       .k = K,
                                       .format = GEMM_FORMAT_INT8,
                                       .scale = GEMM_SCALE_ROW,
                                       .layout = reply.layout};
}

/* Of the one slab that each test takes. */
static uint64_t slab_bytes(const struct worker *worker) {
  return gemm_round_up(1u << 16, worker->ready.slab_granularity);
}

/* Returns the slab's descriptor. */
static int create_slab(struct worker *worker) {
  struct message_slab_create create = {.slab = SLAB, .bytes = slab_bytes(worker)};
  uint32_t id = ask(worker, COMMAND_slab_create, &create, NULL, 0);
  assert_int_equal(answer(worker, id, COMMAND_slab_create, NULL), STATUS_OK);
  int fd = packet_take_fd(&packet, 0);
  assert_true(fd >= 0);
  return fd;
}

static enum status store(struct worker *worker, const struct message_weight_place *place, int canonical) {
  return answer(worker, ask(worker, COMMAND_weight_store, place, &canonical, 1), COMMAND_weight_store, NULL);
}

/* ---- a session */

struct client {
  int fds[3]; /* arena, doorbell, wakeup */
  uint64_t bytes;
  uint8_t *base;
  struct ring_client ring;
};

static void make_client(struct client *client) {
  struct error error;
  client->bytes = 1u << 20;
  assert_int_equal(memfd_make("arena", client->bytes, &client->fds[0], &error), STATUS_OK);
  client->fds[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  client->fds[2] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  client->base = memfd_map(client->fds[0], client->bytes, true, &error);
  assert_non_null(client->base);
  ring_format(client->base, 1, ENTRIES, client->bytes);
  ring_client_init(&client->ring, client->base, ENTRIES, 0);
}

static void free_client(struct client *client) {
  munmap(client->base, client->bytes);
  for (size_t i = 0; i < 3; i++)
    close(client->fds[i]);
}

static uint32_t ask_session_add(struct worker *worker, const struct client *client, uint32_t generation) {
  struct message_session_add add = {
      .session = SESSION, .generation = generation, .entries = ENTRIES, .arena_bytes = client->bytes, .devices = 1};
  return ask(worker, COMMAND_session_add, &add, client->fds, 3);
}

static const struct message_session_weight open_weight = {.session = SESSION, .handle = HANDLE, .weight = WEIGHT};
static const struct message_session_id this_session = {.session = SESSION};
static const struct message_weight_id this_weight = {.weight = WEIGHT};
static const struct message_slab_free this_slab = {.slab = SLAB};

static void add_session(struct worker *worker, const struct client *client) {
  assert_int_equal(answer(worker, ask_session_add(worker, client, 1), COMMAND_session_add, NULL), STATUS_OK);
  assert_int_equal(call(worker, COMMAND_session_weight_add, &open_weight), STATUS_OK);
}

static void submit(struct client *client, struct ring_submission submission) {
  bool wake;
  assert_true(ring_client_submit(&client->ring, &submission, &wake));
  uint64_t one = 1;
  if (wake)
    assert_int_equal(write(client->fds[1], &one, sizeof one), sizeof one);
}

static struct ring_completion take(struct client *client) {
  struct ring_completion completion;
  while (!ring_client_take(&client->ring, &completion)) {
    if (!ring_client_sleep(&client->ring))
      continue;
    struct pollfd wakeup = {.fd = client->fds[2], .events = POLLIN};
    uint64_t count;
    assert_int_equal(poll(&wakeup, 1, LONGEST_WAIT_MS), 1);
    assert_int_equal(read(client->fds[2], &count, sizeof count), sizeof count);
    ring_client_awake(&client->ring);
  }
  return completion;
}

static struct ring_submission product(const struct client *client, int64_t n) {
  uint64_t begin = ring_tensor_offset(ENTRIES, 1);
  int8_t *x = (int8_t *)client->base + begin;
  for (int k = 0; k < K; k++)
    x[k] = (int8_t)(k * 3 - 100);
  *(float *)(void *)(client->base + begin + 4096) = 2.0f;
  return (struct ring_submission){.opcode = RING_OP_PRODUCT,
                                  .weight = HANDLE,
                                  .x_type = GEMM_INT8,
                                  .y_type = GEMM_F32,
                                  .m = 1,
                                  .n = (uint32_t)n,
                                  .k = K,
                                  .x_offset = begin,
                                  .x_scale_offset = begin + 4096,
                                  .y_offset = begin + 8192};
}

/* One product with a weight of the rows n_begin .. n_begin + n of the whole. */
static void expect_product(struct client *client, int64_t n_begin, int64_t n) {
  submit(client, product(client, n));
  assert_int_equal(take(client).status, STATUS_OK);
  const int8_t *x = (const int8_t *)client->base + ring_tensor_offset(ENTRIES, 1);
  const float *y = (const float *)(const void *)(x + 8192);
  for (int64_t i = 0; i < n; i++) {
    int32_t sum = 0;
    for (int k = 0; k < K; k++)
      sum += x[k] * code(n_begin + i, k);
    assert_true(y[i] == (float)sum * 2.0f * (float)(1 << (n_begin + i) % 4));
  }
}

/* ---- tests */

static void a_weight_is_stored_served_and_given_back(void **state) {
  (void)state;
  struct worker worker;
  struct client client;
  start(&worker);
  assert_string_equal(worker.ready.backend, "cpu");
  assert_true(worker.ready.reason[0] != '\0' && worker.ready.device_name[0] != '\0');
  assert_true(worker.ready.devices >= 1 && worker.ready.memory_total > 0);
  int canonical = make_canonical(true), slab = create_slab(&worker);
  struct message_weight_place place = plan(&worker, N);
  assert_int_equal(store(&worker, &place, canonical), STATUS_OK);
  make_client(&client);
  add_session(&worker, &client);
  expect_product(&client, 0, N);

  struct message_worker_stats stats;
  struct message_empty nothing = {0};
  uint32_t id = ask(&worker, COMMAND_worker_stats, &nothing, NULL, 0);
  assert_int_equal(answer(&worker, id, COMMAND_worker_stats, &stats), STATUS_OK);
  assert_int_equal(stats.requests, 1);
  assert_int_equal(stats.rows, 1);
  assert_int_equal(stats.failures, 0);

  /* in the wrong order nothing goes, in the right one all */
  assert_int_equal(call(&worker, COMMAND_slab_free, &this_slab), STATUS_WRONG_STATE);
  assert_int_equal(call(&worker, COMMAND_weight_detach, &this_weight), STATUS_WRONG_STATE);
  assert_int_equal(call(&worker, COMMAND_session_weight_remove, &open_weight), STATUS_OK);
  submit(&client, product(&client, N));
  struct ring_completion refused = take(&client);
  assert_int_equal(refused.status, STATUS_NOT_FOUND);
  assert_int_equal(refused.field, FIELD_WEIGHT);
  assert_int_equal(call(&worker, COMMAND_weight_detach, &this_weight), STATUS_OK);
  assert_int_equal(call(&worker, COMMAND_slab_free, &this_slab), STATUS_OK);
  assert_int_equal(call(&worker, COMMAND_session_remove, &this_session), STATUS_OK);
  assert_int_equal(call(&worker, COMMAND_session_remove, &this_session), STATUS_NOT_FOUND);
  stop(&worker);
  free_client(&client);
  close(canonical);
  close(slab);
}

static void a_part_of_a_split_weight_is_stored(void **state) {
  (void)state;
  struct worker worker;
  struct client client;
  start(&worker);
  int canonical = make_canonical(true), slab = create_slab(&worker);
  struct message_weight_place place = plan(&worker, 90);
  place.n_begin = 107;
  place.n_total = N;
  assert_int_equal(store(&worker, &place, canonical), STATUS_OK);
  make_client(&client);
  add_session(&worker, &client);
  expect_product(&client, 107, 90);
  stop(&worker); /* with everything still there */
  free_client(&client);
  close(canonical);
  close(slab);
}

static void a_successor_takes_over(void **state) {
  (void)state;
  struct worker worker;
  struct client client;
  start(&worker);
  int canonical = make_canonical(true), slab = create_slab(&worker);
  struct message_weight_place place = plan(&worker, N);
  assert_int_equal(store(&worker, &place, canonical), STATUS_OK);
  close(canonical);
  make_client(&client);
  add_session(&worker, &client);
  expect_product(&client, 0, N);
  uint64_t bytes = slab_bytes(&worker);
  kill(worker.pid, SIGKILL);
  int status;
  assert_int_equal(waitpid(worker.pid, &status, 0), worker.pid);
  close(worker.socket);

  ring_replace_worker(client.ring.queue, 2);
  start(&worker);
  struct message_slab_import import = {.slab = SLAB, .bytes = bytes};
  uint32_t first = ask(&worker, COMMAND_slab_import, &import, &slab, 1); /* all at once, in order */
  ask(&worker, COMMAND_weight_attach, &place, NULL, 0);
  ask_session_add(&worker, &client, 2);
  ask(&worker, COMMAND_session_weight_add, &open_weight, NULL, 0);
  for (uint32_t i = 0; i < 4; i++)
    assert_int_equal(answer(&worker, first + i, COMMAND_slab_import, NULL), STATUS_OK);
  assert_true(ring_client_replaced(&client.ring));
  ring_client_reset(&client.ring);
  memset(client.base + ring_tensor_offset(ENTRIES, 1), 0, 65536);
  expect_product(&client, 0, N);
  stop(&worker);
  free_client(&client);
  close(slab);
}

static void expect_store_refused(struct worker *worker, struct message_weight_place place, int canonical,
                                 enum status status) {
  assert_int_equal(store(worker, &place, canonical), status);
}

static void what_does_not_fit_is_refused(void **state) {
  (void)state;
  struct worker worker;
  struct client client;
  start(&worker);
  int canonical = make_canonical(true), open_to_writing = make_canonical(false), slab = create_slab(&worker);
  const struct message_weight_place good = plan(&worker, N);
  struct message_weight_place place = good;
  place.slab = 99;
  expect_store_refused(&worker, place, canonical, STATUS_NOT_FOUND);
  place = good;
  place.offset = slab_bytes(&worker);
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
  place = good;
  place.n_begin = 1;
  expect_store_refused(&worker, place, canonical, STATUS_INVALID);
  place = good;
  place.format = 77;
  expect_store_refused(&worker, place, canonical, STATUS_INVALID);
  expect_store_refused(&worker, good, open_to_writing, STATUS_BAD_DESCRIPTOR);
  place = good;
  place.n_total = N + 1; /* the memfd is shorter than that */
  expect_store_refused(&worker, place, canonical, STATUS_BAD_DESCRIPTOR);
  assert_int_equal(store(&worker, &good, canonical), STATUS_OK);
  expect_store_refused(&worker, good, canonical, STATUS_EXISTS);

  make_client(&client);
  client.bytes += 4096; /* not what the memfd has */
  assert_int_equal(answer(&worker, ask_session_add(&worker, &client, 1), COMMAND_session_add, NULL),
                   STATUS_BAD_DESCRIPTOR);
  client.bytes -= 4096;
  add_session(&worker, &client);
  assert_int_equal(answer(&worker, ask_session_add(&worker, &client, 1), COMMAND_session_add, NULL), STATUS_EXISTS);
  assert_int_equal(call(&worker, COMMAND_session_weight_add, &open_weight), STATUS_EXISTS);
  struct message_session_weight wrong = open_weight;
  wrong.weight = 1;
  assert_int_equal(call(&worker, COMMAND_session_weight_add, &wrong), STATUS_NOT_FOUND);
  wrong = open_weight;
  wrong.session = 1;
  assert_int_equal(call(&worker, COMMAND_session_weight_add, &wrong), STATUS_NOT_FOUND);
  struct message_slab_create again = {.slab = SLAB, .bytes = slab_bytes(&worker)};
  assert_int_equal(call(&worker, COMMAND_slab_create, &again), STATUS_EXISTS);
  struct message_ping ping = {0};
  assert_int_equal(call(&worker, COMMAND_ping, &ping), STATUS_PROTOCOL);
  assert_int_equal(call(&worker, COMMAND_slab_import, &(struct message_slab_import){.slab = 5, .bytes = 1}),
                   STATUS_PROTOCOL); /* without its descriptor */
  expect_product(&client, 0, N);
  stop(&worker);
  free_client(&client);
  close(canonical);
  close(open_to_writing);
  close(slab);
}

/* What is kept goes to the disk beside everything else: the supervisor's questions are answered meanwhile, and what was
 * under way is kept before the worker ends. */
static void a_slow_disk_holds_up_nobody(void **state) {
  static const char shape[] = "int8-row-200x70-f32-f32-none-m1";
  struct message_tune_import_request import = {.device = 0};
  struct message_empty empty = {.reserved = 0};
  struct message_tune_count forgotten;
  struct worker worker;
  char find[256], word;
  (void)state;
  state_dir = folder;
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, slow_disk), 0);
  start(&worker);
  close(slow_disk[1]);
  slow_disk[1] = -1;
  snprintf(import.shape, sizeof import.shape, "%s", shape);
  snprintf(import.kernel, sizeof import.kernel, "cpu threads=1");
  for (int i = 0; i < 2; i++) {
    assert_int_equal(call(&worker, COMMAND_tune_import, &import), STATUS_OK);
    if (i == 0)
      assert_int_equal(read(slow_disk[0], &word, 1), 1); /* it is at it */
    assert_int_equal(call(&worker, COMMAND_worker_stats, &empty), STATUS_OK);
    struct message_tune_forget_request forget = {.pattern = "*"};
    assert_int_equal(
        answer(&worker, ask(&worker, COMMAND_tune_forget, &forget, NULL, 0), COMMAND_tune_forget, &forgotten),
        STATUS_OK);
    assert_int_equal(forgotten.count, 1);
  }
  assert_int_equal(call(&worker, COMMAND_tune_import, &import), STATUS_OK);
  close(worker.socket);
  do /* the second word of each save is for its folder */
    assert_int_equal(write(slow_disk[0], "g", 1), 1);
  while (read(slow_disk[0], &word, 1) == 1);
  assert_int_equal(exit_status(&worker), 0);
  close(slow_disk[0]);
  state_dir = "";
  snprintf(find, sizeof find, "[ $(find %s -name '%s.json' | wc -l) = 1 ]", folder,
           shape); /* as it was asked for last */
  assert_int_equal(system(find), 0);
}

static void a_lying_session_is_reported(void **state) {
  (void)state;
  struct worker worker;
  struct client client;
  struct message_head head;
  struct message_body body;
  struct message_session_broken broken;
  struct error error;
  start(&worker);
  make_client(&client);
  assert_int_equal(answer(&worker, ask_session_add(&worker, &client, 1), COMMAND_session_add, NULL), STATUS_OK);
  atomic_store(&client.ring.queue->submission_tail, 1000);
  uint64_t one = 1;
  assert_int_equal(write(client.fds[1], &one, sizeof one), sizeof one);
  receive(&worker, &head, &body);
  assert_int_equal(head.kind, MESSAGE_EVENT);
  assert_int_equal(head.code, EVENT_session_broken);
  assert_int_equal(message_decode_body(body, &message_session_broken_type, &broken, &error), STATUS_OK);
  assert_int_equal(broken.session, SESSION);
  assert_non_null(strstr(broken.text, "1000"));
  assert_int_equal(call(&worker, COMMAND_session_remove, &this_session), STATUS_OK);
  stop(&worker);
  free_client(&client);
}

static void a_worker_ends_while_commands_wait(void **state) {
  (void)state;
  for (unsigned round = 0; round < 20; round++) {
    struct worker worker;
    struct client client;
    start(&worker);
    int canonical = make_canonical(true), slab = create_slab(&worker);
    struct message_weight_place place = plan(&worker, N);
    make_client(&client);
    ask(&worker, COMMAND_weight_store, &place, &canonical, 1);
    ask_session_add(&worker, &client, 1);
    ask(&worker, COMMAND_session_weight_add, &open_weight, NULL, 0);
    if (round % 2 != 0) {
      ask(&worker, COMMAND_session_remove, &this_session, NULL, 0);
      ask(&worker, COMMAND_weight_detach, &this_weight, NULL, 0);
    }
    stop(&worker);
    free_client(&client);
    close(canonical);
    close(slab);
  }
}

static void answers_wait_for_a_slow_reader(void **state) {
  (void)state;
  enum { QUESTIONS = 3000 }; /* far more than a socket holds */
  struct worker worker;
  start(&worker);
  uint32_t first = worker.next_id;
  for (unsigned i = 0; i < QUESTIONS; i++) {
    struct pollfd room = {.fd = worker.socket, .events = POLLOUT};
    assert_int_equal(poll(&room, 1, LONGEST_WAIT_MS), 1);
    if (i % 2 == 0)
      ask(&worker, COMMAND_worker_stats, &(struct message_empty){0}, NULL, 0);
    else
      ask(&worker, COMMAND_session_remove, &this_session, NULL, 0);
  }
  for (unsigned i = 0; i < QUESTIONS; i++)
    assert_int_equal(answer(&worker, first + i, COMMAND_worker_stats, NULL), i % 2 == 0 ? STATUS_OK : STATUS_NOT_FOUND);
  stop(&worker);
}

static void garbage_ends_the_worker(void **state) {
  (void)state;
  struct worker worker;
  struct error error;
  start(&worker);
  assert_int_equal(transport_send(worker.socket, "garbage", 7, NULL, 0, &error), STATUS_OK);
  assert_int_equal(exit_status(&worker), 0);
  close(worker.socket);
}

static void no_backend_has_a_status_of_its_own(void **state) {
  (void)state;
  struct worker worker;
  start_with(&worker, "no-such-backend");
  assert_int_equal(exit_status(&worker), 3);
  close(worker.socket);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_weight_is_stored_served_and_given_back),
      cmocka_unit_test(a_part_of_a_split_weight_is_stored),
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
