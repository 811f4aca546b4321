#include "bare_worker.h"

#include "daemon/log.h"
#include "daemon/memfd.h"
#include "daemon/transport.h"
#include "daemon/worker/worker.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- the process */

static struct packet packet;

void bare_receive(struct bare_worker *worker, struct message_head *head, struct message_body *body) {
  struct error error;
  struct pollfd one = {.fd = worker->socket, .events = POLLIN};
  assert_int_equal(poll(&one, 1, BARE_LONGEST_WAIT_MS), 1);
  assert_int_equal(transport_receive(worker->socket, &packet, &error), STATUS_OK);
  assert_int_equal(message_decode_head(packet.bytes, packet.length, head, body, &error), STATUS_OK);
}

void bare_start_with(struct bare_worker *worker, const char *backend, const char *state_dir) {
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

void bare_start(struct bare_worker *worker, const char *state_dir) {
  struct message_head head;
  struct message_body body;
  struct error error;
  bare_start_with(worker, "cpu", state_dir);
  bare_receive(worker, &head, &body);
  assert_int_equal(head.kind, MESSAGE_EVENT);
  assert_int_equal(head.code, EVENT_worker_ready);
  assert_int_equal(message_decode_body(body, &message_worker_ready_type, &worker->ready, &error), STATUS_OK);
}

int bare_exit_status(const struct bare_worker *worker) {
  int status;
  assert_int_equal(waitpid(worker->pid, &status, 0), worker->pid);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

void bare_stop(struct bare_worker *worker) {
  close(worker->socket);
  assert_int_equal(bare_exit_status(worker), 0);
}

/* ---- requests */

const struct message_session_weight bare_open_weight = {
    .session = BARE_SESSION, .handle = BARE_HANDLE, .weight = BARE_WEIGHT};
const struct message_session_id bare_this_session = {.session = BARE_SESSION};
const struct message_weight_id bare_this_weight = {.weight = BARE_WEIGHT};
const struct message_slab_free bare_this_slab = {.slab = BARE_SLAB};

uint32_t bare_ask(struct bare_worker *worker, uint32_t command, const void *body, const int *fds, size_t fd_count) {
  struct message_head head = {.kind = MESSAGE_REQUEST, .id = worker->next_id++, .code = command};
  uint8_t bytes[4096];
  size_t length;
  struct error error;
  assert_int_equal(message_encode(&head, command_find(command)->request, body, bytes, sizeof bytes, &length, &error),
                   STATUS_OK);
  assert_int_equal(transport_send(worker->socket, bytes, length, fds, fd_count, &error), STATUS_OK);
  return head.id;
}

enum status bare_answer(struct bare_worker *worker, uint32_t id, uint32_t command, void *reply) {
  struct message_head head;
  struct message_body body;
  struct error error;
  do /* what the tuner finds meanwhile is told unasked */
    bare_receive(worker, &head, &body);
  while (head.kind == MESSAGE_EVENT && head.code == EVENT_tuning_found);
  assert_int_equal(head.kind, MESSAGE_REPLY);
  assert_int_equal(head.id, id);
  if (head.code == STATUS_OK && reply != NULL)
    assert_int_equal(message_decode_body(body, command_find(command)->reply, reply, &error), STATUS_OK);
  return (enum status)head.code;
}

enum status bare_call(struct bare_worker *worker, uint32_t command, const void *body) {
  return bare_answer(worker, bare_ask(worker, command, body, NULL, 0), command, NULL);
}

/* ---- a weight */

static int8_t code(int64_t n, int64_t k) {
  return (int8_t)(n * 5 + k * 11 + n * k);
}

int bare_canonical(bool frozen) {
  struct gemm_weight shape = {.n = BARE_N, .k = BARE_K, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW};
  struct gemm_layout layout;
  struct error error;
  int fd;
  assert_int_equal(gemm_layout_compute(&shape, &layout, &error), STATUS_OK);
  assert_int_equal(memfd_make_open("canonical", layout.total_bytes, &fd, &error), STATUS_OK);
  uint8_t *bytes = memfd_map(fd, layout.total_bytes, true, &error);
  assert_non_null(bytes);
  for (int64_t n = 0; n < BARE_N; n++) {
    for (int64_t k = 0; k < BARE_K; k++)
      bytes[(uint64_t)n * layout.row_bytes + (uint64_t)k] = (uint8_t)code(n, k);
    ((float *)(void *)(bytes + layout.scales_offset))[n] = (float)(1 << n % 4);
  }
  munmap(bytes, layout.total_bytes);
  if (frozen)
    assert_int_equal(memfd_freeze(fd, &error), STATUS_OK);
  return fd;
}

struct message_weight_place bare_plan(struct bare_worker *worker, int64_t n) {
  struct message_weight_plan ask_plan = {.n = n, .k = BARE_K, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW};
  struct message_weight_plan_reply reply;
  uint32_t id = bare_ask(worker, COMMAND_weight_plan, &ask_plan, NULL, 0);
  assert_int_equal(bare_answer(worker, id, COMMAND_weight_plan, &reply), STATUS_OK);
  assert_true(reply.bytes >= (uint64_t)n * BARE_K);
  return (struct message_weight_place){.weight = BARE_WEIGHT,
                                       .slab = BARE_SLAB,
                                       .bytes = reply.bytes,
                                       .n = n,
                                       .k = BARE_K,
                                       .format = GEMM_FORMAT_INT8,
                                       .scale = GEMM_SCALE_ROW,
                                       .layout = reply.layout};
}

uint64_t bare_slab_bytes(const struct bare_worker *worker) {
  return gemm_round_up(1u << 16, worker->ready.slab_granularity);
}

int bare_create_slab(struct bare_worker *worker) {
  struct message_slab_create create = {.slab = BARE_SLAB, .bytes = bare_slab_bytes(worker)};
  uint32_t id = bare_ask(worker, COMMAND_slab_create, &create, NULL, 0);
  assert_int_equal(bare_answer(worker, id, COMMAND_slab_create, NULL), STATUS_OK);
  int fd = packet_take_fd(&packet, 0);
  assert_true(fd >= 0);
  return fd;
}

enum status bare_store(struct bare_worker *worker, const struct message_weight_place *place, int canonical) {
  return bare_answer(worker, bare_ask(worker, COMMAND_weight_store, place, &canonical, 1), COMMAND_weight_store, NULL);
}

/* ---- a session */

void bare_client_make(struct bare_client *client) {
  struct error error;
  client->bytes = 1u << 20;
  assert_int_equal(memfd_make("arena", client->bytes, &client->fds[0], &error), STATUS_OK);
  client->fds[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  client->fds[2] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  client->base = memfd_map(client->fds[0], client->bytes, true, &error);
  assert_non_null(client->base);
  ring_format(client->base, 1, BARE_ENTRIES, client->bytes);
  ring_client_init(&client->ring, client->base, BARE_ENTRIES, 0);
}

void bare_client_free(struct bare_client *client) {
  munmap(client->base, client->bytes);
  for (size_t i = 0; i < 3; i++)
    close(client->fds[i]);
}

uint32_t bare_ask_session_add(struct bare_worker *worker, const struct bare_client *client, uint32_t generation) {
  struct message_session_add add = {.session = BARE_SESSION,
                                    .generation = generation,
                                    .entries = BARE_ENTRIES,
                                    .arena_bytes = client->bytes,
                                    .devices = 1};
  return bare_ask(worker, COMMAND_session_add, &add, client->fds, 3);
}

void bare_add_session(struct bare_worker *worker, const struct bare_client *client) {
  assert_int_equal(bare_answer(worker, bare_ask_session_add(worker, client, 1), COMMAND_session_add, NULL), STATUS_OK);
  assert_int_equal(bare_call(worker, COMMAND_session_weight_add, &bare_open_weight), STATUS_OK);
}

void bare_submit(struct bare_client *client, struct ring_submission submission) {
  bool wake;
  assert_true(ring_client_submit(&client->ring, &submission, &wake));
  uint64_t one = 1;
  if (wake)
    assert_int_equal(write(client->fds[1], &one, sizeof one), sizeof one);
}

struct ring_completion bare_take(struct bare_client *client) {
  struct ring_completion completion;
  while (!ring_client_take(&client->ring, &completion)) {
    if (!ring_client_sleep(&client->ring))
      continue;
    struct pollfd wakeup = {.fd = client->fds[2], .events = POLLIN};
    uint64_t count;
    assert_int_equal(poll(&wakeup, 1, BARE_LONGEST_WAIT_MS), 1);
    assert_int_equal(read(client->fds[2], &count, sizeof count), sizeof count);
    ring_client_awake(&client->ring);
  }
  return completion;
}

struct ring_submission bare_product(const struct bare_client *client, int64_t n) {
  uint64_t begin = ring_tensor_offset(BARE_ENTRIES, 1);
  int8_t *x = (int8_t *)client->base + begin;
  for (int k = 0; k < BARE_K; k++)
    x[k] = (int8_t)(k * 3 - 100);
  *(float *)(void *)(client->base + begin + 4096) = 2.0f;
  return (struct ring_submission){.opcode = RING_OP_PRODUCT,
                                  .weight = BARE_HANDLE,
                                  .x_type = GEMM_INT8,
                                  .y_type = GEMM_F32,
                                  .m = 1,
                                  .n = (uint32_t)n,
                                  .k = BARE_K,
                                  .x_offset = begin,
                                  .x_scale_offset = begin + 4096,
                                  .y_offset = begin + 8192};
}

void bare_expect_product(struct bare_client *client, int64_t n_begin, int64_t n) {
  bare_submit(client, bare_product(client, n));
  assert_int_equal(bare_take(client).status, STATUS_OK);
  const int8_t *x = (const int8_t *)client->base + ring_tensor_offset(BARE_ENTRIES, 1);
  const float *y = (const float *)(const void *)(x + 8192);
  for (int64_t i = 0; i < n; i++) {
    int32_t sum = 0;
    for (int k = 0; k < BARE_K; k++)
      sum += x[k] * code(n_begin + i, k);
    assert_true(y[i] == (float)sum * 2.0f * (float)(1 << (n_begin + i) % 4));
  }
}
