#include "rig.h"

#include "daemon/memfd.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { ENTRIES = RIG_ENTRIES, N = RIG_N, K = RIG_K, HANDLE = RIG_HANDLE, LONGEST_WAIT_MS = 60000 };

struct rig rig;

int rig_open(void **state) {
  struct error error;
  char reason[256];
  struct backend_config config = {.threads = 2, .in_flight = 8};
  rig.ops = backend_choose("cpu", &config, reason, sizeof reason, &error);
  assert_non_null(rig.ops);
  assert_int_equal(rig.ops->open(&config, &rig.backend, &error), STATUS_OK);
  rig.weight.shape = (struct gemm_weight){.n = N, .k = K, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ONE};
  assert_int_equal(gemm_layout_compute(&rig.weight.shape, &rig.layout, &error), STATUS_OK);
  rig.canonical = calloc(1, rig.layout.total_bytes);
  assert_non_null(rig.canonical);
  for (int n = 0; n < N; n++)
    for (int k = 0; k < K; k++)
      rig.canonical[(uint64_t)n * rig.layout.row_bytes + (uint64_t)k] = (uint8_t)(n * 7 + k * 13 + n * k);
  memcpy(rig.canonical + rig.layout.scales_offset, &(float){0.5f}, sizeof(float));
  struct backend_info info;
  rig.ops->describe(rig.backend, &info);
  struct backend_plan plan;
  assert_int_equal(rig.ops->weight_plan(rig.backend, &rig.weight.shape, &plan, &error), STATUS_OK);
  uint64_t bytes = gemm_round_up(plan.bytes, info.slab_granularity);
  assert_int_equal(rig.ops->slab_create(rig.backend, bytes, &rig.slab_fd, &rig.slab, &error), STATUS_OK);
  assert_int_equal(rig.ops->weight_store(rig.backend, &rig.weight.shape, rig.canonical, rig.slab, 0, &error),
                   STATUS_OK);
  assert_int_equal(
      rig.ops->weight_attach(rig.backend, &rig.weight.shape, plan.layout, rig.slab, 0, &rig.weight.device, &error),
      STATUS_OK);
  return 0;
}

int rig_close(void **state) {
  rig.ops->weight_detach(rig.backend, rig.weight.device);
  rig.ops->slab_close(rig.backend, rig.slab);
  rig.ops->close(rig.backend);
  close(rig.slab_fd);
  free(rig.canonical);
  return 0;
}

/* ---- the control thread's side */

static void notify(void *user, struct engine_message *message) {
  struct rig_control *control = user;
  mailbox_put(&control->mail, message);
  uint64_t one = 1;
  assert_int_equal(write(control->arrived, &one, sizeof one), sizeof one);
}

void rig_wait_readable(int fd) {
  struct pollfd one = {.fd = fd, .events = POLLIN};
  assert_int_equal(poll(&one, 1, LONGEST_WAIT_MS), 1);
  uint64_t count;
  assert_int_equal(read(fd, &count, sizeof count), sizeof count);
}

/* Fills in what is the same for all. */
static void start(struct rig_control *control, const struct backend_ops *device, struct engine_options options) {
  struct error error;
  mailbox_open(&control->mail);
  control->arrived = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  options.ops = device;
  options.backend = rig.backend;
  options.in_flight = 8;
  options.notify = notify;
  options.user = control;
  struct tuner_options tune = {.ops = device, .backend = rig.backend, .notify = notify, .user = control};
  assert_int_equal(tuner_open(&tune, &control->tuner, &error), STATUS_OK);
  options.tuner = control->tuner;
  assert_int_equal(engine_start(&options, &control->engine, &error), STATUS_OK);
}

void rig_start_batching(struct rig_control *control, const struct backend_ops *device, uint64_t spin_us, uint32_t rows,
                        uint64_t window_us) {
  start(control, device, (struct engine_options){.spin_us = spin_us, .batch_rows = rows, .batch_window_us = window_us});
}

void rig_start_holding(struct rig_control *control, const struct backend_ops *device, uint64_t event_timeout_us) {
  start(control, device, (struct engine_options){.spin_us = 50, .batch_rows = 1, .event_timeout_us = event_timeout_us});
}

void rig_start_on(struct rig_control *control, const struct backend_ops *device, uint64_t spin_us) {
  rig_start_batching(control, device, spin_us, 1, 0);
}

static _Atomic bool inside, let_go;

static enum status submit_and_stay(struct backend *of, const struct backend_job *job, struct error *error) {
  inside = true;
  while (!let_go)
    sched_yield();
  return rig.ops->submit(of, job, error);
}

void rig_keep_busy(struct backend_ops *device) {
  inside = let_go = false;
  device->submit = submit_and_stay;
}

void rig_await_busy(void) {
  while (!inside)
    sched_yield();
}

void rig_let_go(void) {
  let_go = true;
}

void rig_start(struct rig_control *control, uint64_t spin_us) {
  rig_start_on(control, rig.ops, spin_us);
}

void rig_stop(struct rig_control *control) {
  engine_stop(control->engine);
  tuner_close(control->tuner);
  mailbox_close(&control->mail);
  close(control->arrived);
}

/* The next message from the engine must be this one. */
enum status rig_expect_back(struct rig_control *control, const struct engine_message *message) {
  struct engine_message *back = NULL;
  while (back == NULL) { /* it may have been taken before its edge came */
    rig_wait_readable(control->arrived);
    back = mailbox_take(&control->mail);
  }
  assert_ptr_equal(back, message);
  assert_null(back->next);
  return back->error.status;
}

enum status rig_ask(struct rig_control *control, struct engine_message *message) {
  engine_post(control->engine, message);
  return rig_expect_back(control, message);
}

/* ---- a session */

void rig_join_with(struct rig_control *control, struct rig_client *client, uint32_t generation) {
  struct error error;
  memset(client, 0, sizeof *client);
  assert_int_equal(memfd_make("test", RIG_ARENA_BYTES, &client->arena_fd, &error), STATUS_OK);
  client->session.base = memfd_map(client->arena_fd, RIG_ARENA_BYTES, true, &error);
  assert_non_null(client->session.base);
  client->session.arena_bytes = RIG_ARENA_BYTES;
  client->session.doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  client->session.wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  ring_format(client->session.base, 1, ENTRIES, RIG_ARENA_BYTES);
  ring_client_init(&client->ring, client->session.base, ENTRIES, 0);
  assert_int_equal(
      rig.ops->arena_register(rig.backend, client->session.base, RIG_ARENA_BYTES, &client->session.arena, &error),
      STATUS_OK);
  assert_int_equal(engine_session_open(&client->session, ENTRIES, 1, 0, generation, &error), STATUS_OK);
  struct engine_message add = {.verb = ENGINE_SESSION_ADD, .session = &client->session};
  assert_int_equal(rig_ask(control, &add), STATUS_OK);
  struct engine_message handle = {
      .verb = ENGINE_HANDLE_ADD, .session = &client->session, .weight = &rig.weight, .handle = HANDLE};
  assert_int_equal(rig_ask(control, &handle), STATUS_OK);
}

void rig_join(struct rig_control *control, struct rig_client *client) {
  rig_join_with(control, client, 1);
}

void rig_free_client(struct rig_client *client) {
  assert_int_equal(client->session.lane.taken, 0);
  rig.ops->arena_unregister(rig.backend, client->session.arena);
  engine_session_close(&client->session);
  munmap(client->session.base, RIG_ARENA_BYTES);
  close(client->session.doorbell);
  close(client->session.wakeup);
  close(client->arena_fd);
}

void rig_leave(struct rig_control *control, struct rig_client *client) {
  struct engine_message remove = {.verb = ENGINE_SESSION_REMOVE, .session = &client->session};
  assert_int_equal(rig_ask(control, &remove), STATUS_OK);
  rig_free_client(client);
}

void rig_ring_doorbell(struct rig_client *client) {
  uint64_t one = 1;
  assert_int_equal(write(client->session.doorbell, &one, sizeof one), sizeof one);
}

uint64_t rig_submit(struct rig_client *client, struct ring_submission submission) {
  bool wake;
  submission.tag = ++client->next_tag;
  assert_true(ring_client_submit(&client->ring, &submission, &wake));
  if (wake)
    rig_ring_doorbell(client);
  return submission.tag;
}

/* Sleeps as the library does, without spinning before. */
struct ring_completion rig_take(struct rig_client *client) {
  struct ring_completion completion;
  while (!ring_client_take(&client->ring, &completion)) {
    if (!ring_client_sleep(&client->ring))
      continue;
    rig_wait_readable(client->session.wakeup);
    ring_client_awake(&client->ring);
  }
  return completion;
}

struct ring_completion rig_call(struct rig_client *client, struct ring_submission submission) {
  uint64_t tag = rig_submit(client, submission);
  struct ring_completion completion = rig_take(client);
  assert_int_equal(completion.tag, tag);
  return completion;
}

void rig_expect_nop(struct rig_client *client) {
  assert_int_equal(rig_call(client, (struct ring_submission){.opcode = RING_OP_NOP}).status, STATUS_OK);
}

/* ---- products: int8 x and s32 y, exact */

/* Place `slot` of 0..ENTRIES-1 has its own tensors, for up to 64 rows. */
struct ring_submission rig_product(const struct rig_client *client, unsigned slot, uint32_t m) {
  uint64_t begin = client->session.tensor_offset + slot * (128u << 10);
  return (struct ring_submission){.opcode = RING_OP_PRODUCT,
                                  .weight = HANDLE,
                                  .x_type = GEMM_INT8,
                                  .y_type = GEMM_S32,
                                  .m = m,
                                  .n = N,
                                  .k = K,
                                  .x_offset = begin,
                                  .y_offset = begin + (64u << 10)};
}

void rig_fill(const struct rig_client *client, const struct ring_submission *product, unsigned seed) {
  int8_t *x = (int8_t *)client->session.base + product->x_offset;
  for (uint32_t i = 0; i < product->m * K; i++)
    x[i] = (int8_t)((i * 31 + seed * 17 + i * i) % 255 - 127);
  memset(client->session.base + product->y_offset, 0xa5, (size_t)product->m * N * 4);
}

void rig_check(const struct rig_client *client, const struct ring_submission *product) {
  const int8_t *x = (const int8_t *)client->session.base + product->x_offset;
  const int32_t *y = (const int32_t *)(const void *)(client->session.base + product->y_offset);
  for (uint32_t m = 0; m < product->m; m++)
    for (int n = 0; n < N; n++) {
      int32_t sum = 0;
      for (int k = 0; k < K; k++)
        sum += x[m * K + (uint32_t)k] * (int8_t)rig.canonical[(uint64_t)n * rig.layout.row_bytes + (uint64_t)k];
      assert_int_equal(y[m * N + (uint32_t)n], sum);
    }
}
