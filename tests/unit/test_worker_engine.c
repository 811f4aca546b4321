/* The engine with a real backend, real rings in sealed memory and real threads: this program is the client and the
 * control thread. A wait that lasts a minute fails; it stands for a wake-up that was lost. */
#include "daemon/memfd.h"
#include "daemon/worker/engine.h"
#include "daemon/worker/serve.h"
#include "daemon/worker/tuner.h"

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

enum { ENTRIES = 16, N = 48, K = 160, LONGEST_WAIT_MS = 60000 };
static const uint64_t arena_bytes = 8u << 20;

/* ---- the device with one weight */

static const struct backend_ops *ops;
static struct backend *backend;
static struct backend_slab *slab;
static int slab_fd = -1;
static struct engine_weight weight;
static uint8_t *canonical;
static struct gemm_layout layout;

static int open_device(void **state) {
  (void)state;
  struct error error;
  char reason[256];
  struct backend_config config = {.threads = 2, .in_flight = 8};
  ops = backend_choose("cpu", &config, reason, sizeof reason, &error);
  assert_non_null(ops);
  assert_int_equal(ops->open(&config, &backend, &error), STATUS_OK);
  weight.shape = (struct gemm_weight){.n = N, .k = K, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ONE};
  assert_int_equal(gemm_layout_compute(&weight.shape, &layout, &error), STATUS_OK);
  canonical = calloc(1, layout.total_bytes);
  assert_non_null(canonical);
  for (int n = 0; n < N; n++)
    for (int k = 0; k < K; k++)
      canonical[(uint64_t)n * layout.row_bytes + (uint64_t)k] = (uint8_t)(n * 7 + k * 13 + n * k);
  memcpy(canonical + layout.scales_offset, &(float){0.5f}, sizeof(float));
  struct backend_info info;
  ops->describe(backend, &info);
  struct backend_plan plan;
  assert_int_equal(ops->weight_plan(backend, &weight.shape, &plan, &error), STATUS_OK);
  uint64_t bytes = gemm_round_up(plan.bytes, info.slab_granularity);
  assert_int_equal(ops->slab_create(backend, bytes, &slab_fd, &slab, &error), STATUS_OK);
  assert_int_equal(ops->weight_store(backend, &weight.shape, canonical, slab, 0, &error), STATUS_OK);
  assert_int_equal(ops->weight_attach(backend, &weight.shape, plan.layout, slab, 0, &weight.device, &error), STATUS_OK);
  return 0;
}

static int close_device(void **state) {
  (void)state;
  ops->weight_detach(backend, weight.device);
  ops->slab_close(backend, slab);
  ops->close(backend);
  close(slab_fd);
  free(canonical);
  return 0;
}

/* ---- the control thread's side */

struct control {
  struct engine *engine;
  struct tuner *tuner;
  struct mailbox mail;
  int arrived; /* eventfd */
};

static void notify(void *user, struct engine_message *message) {
  struct control *control = user;
  mailbox_put(&control->mail, message);
  uint64_t one = 1;
  assert_int_equal(write(control->arrived, &one, sizeof one), sizeof one);
}

static void wait_readable(int fd) {
  struct pollfd one = {.fd = fd, .events = POLLIN};
  assert_int_equal(poll(&one, 1, LONGEST_WAIT_MS), 1);
  uint64_t count;
  assert_int_equal(read(fd, &count, sizeof count), sizeof count);
}

static void start_batching(struct control *control, const struct backend_ops *device, uint64_t spin_us, uint32_t rows,
                           uint64_t window_us) {
  struct error error;
  mailbox_open(&control->mail);
  control->arrived = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  struct engine_options options = {
      .ops = device, .backend = backend, .in_flight = 8, .spin_us = spin_us, .notify = notify, .user = control};
  struct tuner_options tune = {.ops = device, .backend = backend, .notify = notify, .user = control};
  assert_int_equal(tuner_open(&tune, &control->tuner, &error), STATUS_OK);
  options.tuner = control->tuner;
  options.batch_rows = rows;
  options.batch_window_us = window_us;
  assert_int_equal(engine_start(&options, &control->engine, &error), STATUS_OK);
}

static void start_on(struct control *control, const struct backend_ops *device, uint64_t spin_us) {
  start_batching(control, device, spin_us, 1, 0);
}

static void start(struct control *control, uint64_t spin_us) {
  start_on(control, ops, spin_us);
}

static void stop(struct control *control) {
  engine_stop(control->engine);
  tuner_close(control->tuner);
  mailbox_close(&control->mail);
  close(control->arrived);
}

/* The next message from the engine must be this one. */
static enum status expect_back(struct control *control, const struct engine_message *message) {
  wait_readable(control->arrived);
  struct engine_message *back = mailbox_take(&control->mail);
  assert_ptr_equal(back, message);
  assert_null(back->next);
  return back->error.status;
}

static enum status ask(struct control *control, struct engine_message *message) {
  engine_post(control->engine, message);
  return expect_back(control, message);
}

/* ---- a session */

struct client {
  struct engine_session session;
  int arena_fd;
  struct ring_client ring;
  uint64_t next_tag;
};

enum { HANDLE = 3 << 16 | 5 };

static void open_session_with(struct control *control, struct client *client, uint32_t generation) {
  struct error error;
  memset(client, 0, sizeof *client);
  assert_int_equal(memfd_make("test", arena_bytes, &client->arena_fd, &error), STATUS_OK);
  client->session.base = memfd_map(client->arena_fd, arena_bytes, true, &error);
  assert_non_null(client->session.base);
  client->session.arena_bytes = arena_bytes;
  client->session.doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  client->session.wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  ring_format(client->session.base, 1, ENTRIES, arena_bytes);
  ring_client_init(&client->ring, client->session.base, ENTRIES, 0);
  assert_int_equal(ops->arena_register(backend, client->session.base, arena_bytes, &client->session.arena, &error),
                   STATUS_OK);
  assert_int_equal(engine_session_open(&client->session, ENTRIES, 1, 0, generation, &error), STATUS_OK);
  struct engine_message add = {.verb = ENGINE_SESSION_ADD, .session = &client->session};
  assert_int_equal(ask(control, &add), STATUS_OK);
  struct engine_message handle = {
      .verb = ENGINE_HANDLE_ADD, .session = &client->session, .weight = &weight, .handle = HANDLE};
  assert_int_equal(ask(control, &handle), STATUS_OK);
}

static void open_session(struct control *control, struct client *client) {
  open_session_with(control, client, 1);
}

static void free_session(struct client *client) {
  assert_int_equal(client->session.lane.taken, 0);
  ops->arena_unregister(backend, client->session.arena);
  engine_session_close(&client->session);
  munmap(client->session.base, arena_bytes);
  close(client->session.doorbell);
  close(client->session.wakeup);
  close(client->arena_fd);
}

static void close_session(struct control *control, struct client *client) {
  struct engine_message remove = {.verb = ENGINE_SESSION_REMOVE, .session = &client->session};
  assert_int_equal(ask(control, &remove), STATUS_OK);
  free_session(client);
}

static void ring_doorbell(struct client *client) {
  uint64_t one = 1;
  assert_int_equal(write(client->session.doorbell, &one, sizeof one), sizeof one);
}

static uint64_t submit(struct client *client, struct ring_submission submission) {
  bool wake;
  submission.tag = ++client->next_tag;
  assert_true(ring_client_submit(&client->ring, &submission, &wake));
  if (wake)
    ring_doorbell(client);
  return submission.tag;
}

/* Sleeps as the library does, without spinning before. */
static struct ring_completion take(struct client *client) {
  struct ring_completion completion;
  while (!ring_client_take(&client->ring, &completion)) {
    if (!ring_client_sleep(&client->ring))
      continue;
    wait_readable(client->session.wakeup);
    ring_client_awake(&client->ring);
  }
  return completion;
}

static struct ring_completion call(struct client *client, struct ring_submission submission) {
  uint64_t tag = submit(client, submission);
  struct ring_completion completion = take(client);
  assert_int_equal(completion.tag, tag);
  return completion;
}

static void expect_nop(struct client *client) {
  assert_int_equal(call(client, (struct ring_submission){.opcode = RING_OP_NOP}).status, STATUS_OK);
}

/* ---- products: int8 x and s32 y, exact */

/* Place `slot` of 0..ENTRIES-1 has its own tensors, for up to 64 rows. */
static struct ring_submission product(const struct client *client, unsigned slot, uint32_t m) {
  uint64_t begin = client->session.tensor_offset + slot * (64u << 10);
  return (struct ring_submission){.opcode = RING_OP_PRODUCT,
                                  .weight = HANDLE,
                                  .x_type = GEMM_INT8,
                                  .y_type = GEMM_S32,
                                  .m = m,
                                  .n = N,
                                  .k = K,
                                  .x_offset = begin,
                                  .y_offset = begin + (32u << 10)};
}

static void fill(const struct client *client, const struct ring_submission *product, unsigned seed) {
  int8_t *x = (int8_t *)client->session.base + product->x_offset;
  for (uint32_t i = 0; i < product->m * K; i++)
    x[i] = (int8_t)((i * 31 + seed * 17 + i * i) % 255 - 127);
  memset(client->session.base + product->y_offset, 0xa5, (size_t)product->m * N * 4);
}

static void check(const struct client *client, const struct ring_submission *product) {
  const int8_t *x = (const int8_t *)client->session.base + product->x_offset;
  const int32_t *y = (const int32_t *)(const void *)(client->session.base + product->y_offset);
  for (uint32_t m = 0; m < product->m; m++)
    for (int n = 0; n < N; n++) {
      int32_t sum = 0;
      for (int k = 0; k < K; k++)
        sum += x[m * K + (uint32_t)k] * (int8_t)canonical[(uint64_t)n * layout.row_bytes + (uint64_t)k];
      assert_int_equal(y[m * N + (uint32_t)n], sum);
    }
}

static void products_are_right(void **state) {
  (void)state;
  struct control control;
  struct client client;
  start(&control, 50);
  open_session(&control, &client);
  for (uint32_t m = 1; m <= 33; m += 4) {
    struct ring_submission one = product(&client, 0, m);
    fill(&client, &one, m);
    struct ring_completion completion = call(&client, one);
    assert_int_equal(completion.status, STATUS_OK);
    assert_true(completion.device_ns > 0);
    check(&client, &one);
  }
  const struct engine_counters *counters = engine_counters(control.engine);
  assert_int_equal(atomic_load(&counters->requests), 9);
  assert_int_equal(atomic_load(&counters->rows), 9 * 17);
  assert_int_equal(atomic_load(&counters->failures), 0);
  assert_true(atomic_load(&counters->device_ns) > 0);
  close_session(&control, &client);
  stop(&control);
}

static void strides_offsets_and_bias_arrive(void **state) {
  (void)state;
  enum { M = 3, X_STRIDE = K + 32, Y_STRIDE = (N + 4) * 4 };
  struct control control;
  struct client client;
  start(&control, 50);
  open_session(&control, &client);
  uint8_t *tensors = client.session.base + client.session.tensor_offset;
  int8_t *x = (int8_t *)tensors;
  float *scales = (float *)(void *)(tensors + 4096), *bias = (float *)(void *)(tensors + 8192);
  float *y = (float *)(void *)(tensors + 16384);
  for (int m = 0; m < M; m++) {
    scales[m] = (float)(1 << m);
    for (int k = 0; k < X_STRIDE; k++)
      x[m * X_STRIDE + k] = (int8_t)(m + k);
  }
  for (int n = 0; n < N; n++)
    bias[n] = (float)n;
  for (int i = 0; i < M * Y_STRIDE / 4; i++)
    y[i] = -1.0f;
  struct ring_submission one = product(&client, 0, M);
  one.y_type = one.bias_type = GEMM_F32;
  one.x_scale_offset = one.x_offset + 4096;
  one.bias_offset = one.x_offset + 8192;
  one.y_offset = one.x_offset + 16384;
  one.x_stride = X_STRIDE;
  one.y_stride = Y_STRIDE;
  assert_int_equal(call(&client, one).status, STATUS_OK);
  for (int m = 0; m < M; m++) {
    for (int n = 0; n < N; n++) {
      int32_t sum = 0;
      for (int k = 0; k < K; k++)
        sum += x[m * X_STRIDE + k] * (int8_t)canonical[(uint64_t)n * layout.row_bytes + (uint64_t)k];
      /* sums below 2^24 times powers of two: exact in f32 */
      assert_true(y[m * Y_STRIDE / 4 + n] == (float)sum * 0.5f * scales[m] + bias[n]);
    }
    for (int n = N; n < Y_STRIDE / 4; n++)
      assert_true(y[m * Y_STRIDE / 4 + n] == -1.0f);
  }
  close_session(&control, &client);
  stop(&control);
}

/* ---- refusals */

static void expect_refused(struct client *client, struct ring_submission submission, enum status status,
                           enum field field, int64_t value) {
  struct ring_completion completion = call(client, submission);
  assert_int_equal(completion.status, status);
  assert_int_equal(completion.field, field);
  assert_int_equal(completion.value, value);
}

static void what_is_wrong_is_named(void **state) {
  (void)state;
  struct control control;
  struct client client;
  start(&control, 50);
  open_session(&control, &client);
  const struct ring_submission good = product(&client, 0, 4);
  struct ring_submission bad;
#define REFUSED(member, wrong, status, field)                                                                          \
  bad = good;                                                                                                          \
  bad.member = (wrong);                                                                                                \
  expect_refused(&client, bad, STATUS_##status, FIELD_##field, (int64_t)(wrong))
  REFUSED(m, 0, INVALID, M);
  REFUSED(n, N + 1, INVALID, N);
  REFUSED(k, K - 1, INVALID, K);
  REFUSED(weight, 2 << 16 | 5, NOT_FOUND, WEIGHT);
  REFUSED(weight, 3 << 16 | 6, NOT_FOUND, WEIGHT);
  REFUSED(weight, UINT32_MAX, NOT_FOUND, WEIGHT);
  REFUSED(opcode, 77, INVALID, OPCODE);
  REFUSED(flags, 1, INVALID, FLAGS);
  REFUSED(y_offset, arena_bytes - 16, INVALID, Y_OFFSET);
  REFUSED(x_offset, 0, INVALID, X_OFFSET);
  REFUSED(x_offset, good.x_offset + 1, INVALID, X_OFFSET);
#undef REFUSED
  bad = good;
  bad.x_offset = UINT64_MAX - 15;
  assert_int_equal(call(&client, bad).status, STATUS_INVALID);
  bad = good;
  bad.reserved2[31] = 1;
  assert_int_equal(call(&client, bad).field, FIELD_RESERVED);
  bad = good;
  bad.x_type = 200;
  struct ring_completion completion = call(&client, bad);
  assert_int_not_equal(completion.status, STATUS_OK);
  assert_int_equal(completion.field, FIELD_X_TYPE);
  assert_int_equal(atomic_load(&engine_counters(control.engine)->failures), 14);
  fill(&client, &good, 1);
  assert_int_equal(call(&client, good).status, STATUS_OK);
  check(&client, &good);
  close_session(&control, &client);
  stop(&control);
}

static void a_session_with_false_indices_ends_alone(void **state) {
  (void)state;
  struct control control;
  struct client liar, other;
  start(&control, 50);
  open_session(&control, &liar);
  open_session(&control, &other);
  submit(&liar, product(&liar, 0, 64));
  atomic_fetch_add(&liar.ring.queue->submission_tail, 5000);
  ring_doorbell(&liar);
  wait_readable(control.arrived);
  struct engine_message *broken = mailbox_take(&control.mail);
  assert_ptr_equal(broken, &liar.session.breakage);
  assert_int_equal(broken->verb, ENGINE_SESSION_BROKEN);
  assert_ptr_equal(broken->session, &liar.session);
  assert_int_equal(broken->error.status, STATUS_PROTOCOL);
  assert_true(broken->error.text[0] != '\0');
  struct ring_submission one = product(&other, 0, 4);
  fill(&other, &one, 1);
  assert_int_equal(call(&other, one).status, STATUS_OK);
  check(&other, &one);
  close_session(&control, &liar);
  expect_nop(&other);
  close_session(&control, &other);
  stop(&control);
}

static void a_session_that_blocks_its_wakeup_ends_alone(void **state) {
  (void)state;
  struct control control;
  struct client blocker, other;
  start(&control, 50);
  open_session(&control, &blocker);
  open_session(&control, &other);
  uint64_t full = UINT64_MAX - 1;
  assert_int_equal(write(blocker.session.wakeup, &full, sizeof full), sizeof full);
  assert_int_equal(fcntl(blocker.session.wakeup, F_SETFL, 0), 0);
  atomic_store(&blocker.ring.queue->client_sleeping, 1);
  for (unsigned i = 0; i < ENTRIES; i++)
    submit(&blocker, (struct ring_submission){.opcode = RING_OP_NOP});
  wait_readable(control.arrived);
  struct engine_message *broken = mailbox_take(&control.mail);
  assert_ptr_equal(broken, &blocker.session.breakage);
  assert_int_equal(broken->error.status, STATUS_PROTOCOL);
  expect_nop(&other);
  close_session(&control, &blocker);
  close_session(&control, &other);
  stop(&control);
}

static void a_full_wakeup_counter_is_no_offence(void **state) {
  (void)state;
  struct control control;
  struct client client;
  start(&control, 50);
  open_session(&control, &client);
  uint64_t full = UINT64_MAX - 1;
  assert_int_equal(write(client.session.wakeup, &full, sizeof full), sizeof full);
  atomic_store(&client.ring.queue->client_sleeping, 1);
  expect_nop(&client);
  expect_nop(&client);
  close_session(&control, &client);
  stop(&control);
}

/* ---- a device that fails: the real one, with one of its functions replaced */

static unsigned refusals;

static enum status lose_device(struct backend *of, const struct backend_job *job, struct error *error) {
  (void)of;
  (void)job;
  return error_set(error, STATUS_DEVICE_LOST, "the test has lost the device");
}

static enum status submit_reluctantly(struct backend *of, const struct backend_job *job, struct error *error) {
  if (refusals++ % 3 != 0)
    return error_set(error, STATUS_BUSY, "not now");
  return ops->submit(of, job, error);
}

static enum status refuse(struct backend *of, const struct backend_job *job, struct error *error) {
  (void)of;
  return error_field(error, STATUS_UNSUPPORTED, FIELD_M, job->m, 1, 2);
}

static int finish_with_loss(struct backend *of, struct backend_done *done, int most) {
  int finished = ops->poll(of, done, most);
  for (int i = 0; i < finished; i++)
    done[i].status = STATUS_DEVICE_LOST;
  return finished;
}

static void a_lost_device_is_reported_and_nothing_completed(void **state) {
  (void)state;
  for (unsigned late = 0; late < 2; late++) {
    struct backend_ops failing = *ops;
    struct control control;
    struct client client;
    if (late)
      failing.poll = finish_with_loss;
    else
      failing.submit = lose_device;
    start_on(&control, &failing, 50);
    open_session(&control, &client);
    submit(&client, product(&client, 0, 1));
    wait_readable(control.arrived);
    struct engine_message *lost = mailbox_take(&control.mail);
    assert_non_null(lost);
    assert_int_equal(lost->verb, ENGINE_DEVICE_LOST);
    assert_int_equal(lost->error.status, STATUS_DEVICE_LOST);
    assert_false(ring_client_ready(&client.ring));
    stop(&control);
    client.session.lane.taken = 0; /* a worker ends here; this test gives all back */
    weight.jobs = weight.handles = 0;
    weight.waiting = (struct queue_group){.waiting = 0};
    free_session(&client);
  }
}

static void a_busy_device_is_asked_again(void **state) {
  (void)state;
  struct backend_ops reluctant = *ops;
  struct control control;
  struct client client;
  reluctant.submit = submit_reluctantly;
  start_on(&control, &reluctant, 0);
  open_session(&control, &client);
  struct ring_submission one = product(&client, 0, 2);
  for (unsigned i = 0; i < 20; i++) {
    fill(&client, &one, i);
    assert_int_equal(call(&client, one).status, STATUS_OK);
    check(&client, &one);
  }
  close_session(&control, &client);
  stop(&control);
}

static void a_product_that_the_device_refuses_fails_alone(void **state) {
  (void)state;
  struct backend_ops refusing = *ops;
  struct control control;
  struct client client;
  refusing.submit = refuse;
  start_on(&control, &refusing, 50);
  open_session(&control, &client);
  expect_refused(&client, product(&client, 0, 5), STATUS_UNSUPPORTED, FIELD_M, 5);
  expect_nop(&client);
  assert_int_equal(weight.jobs, 0);
  close_session(&control, &client);
  stop(&control);
}

/* ---- order, and products of several requests */

static _Atomic bool held;          /* the device takes nothing */
static _Atomic unsigned tried;     /* since then */
static _Atomic uint64_t sizes[64]; /* rows of the products that the device took */
static _Atomic unsigned size_count;

static enum status submit_when_let(struct backend *of, const struct backend_job *job, struct error *error) {
  uint64_t rows = 0;
  if (held) {
    tried++;
    return error_set(error, STATUS_BUSY, "held by the test");
  }
  for (const struct backend_job *each = job; each != NULL; each = each->next)
    rows += (uint64_t)each->m;
  sizes[size_count++ % 64] = rows;
  return ops->submit(of, job, error);
}

/* Until the engine has taken in all that was submitted: it tries on and on to start the first. */
static void wait_until_taken(struct client *client) {
  while (atomic_load(&client->ring.queue->submission_head) != client->ring.submission_tail)
    sched_yield();
  for (unsigned before = tried; tried == before;)
    sched_yield();
}

static void start_holding(struct control *control, struct backend_ops *device, uint32_t rows) {
  *device = *ops;
  device->submit = submit_when_let;
  held = true;
  tried = size_count = 0;
  start_batching(control, device, 0, rows, 0);
}

static void take_all_right(struct client *client, const struct ring_submission *products, unsigned count) {
  for (unsigned i = 0; i < count; i++)
    assert_int_equal(take(client).status, STATUS_OK);
  for (unsigned i = 0; i < count; i++)
    check(client, &products[i]);
}

static void requests_that_wait_together_are_one_product(void **state) {
  (void)state;
  struct backend_ops device;
  struct control control;
  struct client clients[3];
  struct ring_submission products[3][2];
  start_holding(&control, &device, 64);
  for (unsigned i = 0; i < 3; i++) {
    open_session(&control, &clients[i]);
    for (unsigned j = 0; j < 2; j++) {
      products[i][j] = product(&clients[i], j, 1 + i + 4 * j);
      fill(&clients[i], &products[i][j], 10 * i + j);
      submit(&clients[i], products[i][j]);
    }
  }
  for (unsigned i = 0; i < 3; i++)
    wait_until_taken(&clients[i]);
  held = false;
  for (unsigned i = 0; i < 3; i++)
    take_all_right(&clients[i], products[i], 2);
  assert_int_equal(size_count, 1);
  assert_int_equal(sizes[0], 1 + 5 + 2 + 6 + 3 + 7);
  const struct engine_counters *counters = engine_counters(control.engine);
  assert_int_equal(atomic_load(&counters->requests), 6);
  assert_int_equal(atomic_load(&counters->products), 1);
  assert_int_equal(atomic_load(&counters->rows), 24);
  for (unsigned i = 0; i < 3; i++)
    close_session(&control, &clients[i]);
  stop(&control);
}

static void a_batch_has_so_many_rows(void **state) {
  (void)state;
  struct backend_ops device;
  struct control control;
  struct client client;
  struct ring_submission products[8];
  start_holding(&control, &device, 6);
  open_session(&control, &client);
  for (unsigned i = 0; i < 8; i++) {
    products[i] = product(&client, i, i == 7 ? 60 : 2);
    fill(&client, &products[i], i);
    submit(&client, products[i]);
  }
  wait_until_taken(&client);
  held = false;
  take_all_right(&client, products, 8);
  assert_int_equal(size_count, 4);
  assert_true(sizes[0] == 6 && sizes[1] == 6 && sizes[2] == 2 && sizes[3] == 60);
  close_session(&control, &client);
  stop(&control);
}

static void a_window_lets_others_join(void **state) {
  (void)state;
  struct control control;
  struct client client;
  struct ring_submission products[4];
  start_batching(&control, ops, 0, 4, 60000000); /* a minute: only a full batch ends this wait */
  open_session(&control, &client);
  for (unsigned i = 0; i < 4; i++) {
    products[i] = product(&client, i, 1);
    fill(&client, &products[i], i);
    submit(&client, products[i]);
  }
  take_all_right(&client, products, 4);
  assert_int_equal(atomic_load(&engine_counters(control.engine)->products), 1);
  close_session(&control, &client);
  stop(&control);
}

/* One that floods and one that asks once, of the same class: the latter's is among the first two. */
static void a_flood_starves_nobody(void **state) {
  (void)state;
  struct backend_ops device;
  struct control control;
  struct client flood, other;
  start_holding(&control, &device, 1);
  open_session(&control, &flood);
  open_session(&control, &other);
  for (unsigned i = 0; i < ENTRIES; i++)
    submit(&flood, product(&flood, i, 10 + i));
  wait_until_taken(&flood);
  submit(&other, product(&other, 0, 1));
  wait_until_taken(&other);
  held = false;
  assert_int_equal(take(&other).status, STATUS_OK);
  for (unsigned i = 0; i < ENTRIES; i++)
    assert_int_equal(take(&flood).status, STATUS_OK);
  assert_true(sizes[0] == 10 && sizes[1] == 1 && sizes[2] == 11);
  close_session(&control, &other);
  close_session(&control, &flood);
  stop(&control);
}

static void urgent_products_overtake(void **state) {
  (void)state;
  struct backend_ops device;
  struct control control;
  struct client client;
  const enum ring_priority priorities[] = {RING_PRIORITY_BACKGROUND, RING_PRIORITY_NORMAL, RING_PRIORITY_URGENT};
  start_holding(&control, &device, 1);
  open_session(&control, &client);
  for (unsigned i = 0; i < 3; i++) {
    struct ring_submission one = product(&client, i, 1 + i);
    one.priority = (uint8_t)priorities[i];
    submit(&client, one);
  }
  wait_until_taken(&client);
  held = false;
  for (unsigned i = 0; i < 3; i++)
    assert_int_equal(take(&client).status, STATUS_OK);
  assert_true(sizes[0] == 3 && sizes[1] == 2 && sizes[2] == 1);
  close_session(&control, &client);
  stop(&control);
}

static void deadlines_hold_before_the_start(void **state) {
  (void)state;
  struct backend_ops device;
  struct control control;
  struct client client;
  start_holding(&control, &device, 64);
  open_session(&control, &client);
  struct ring_submission late = product(&client, 0, 1), waits = product(&client, 1, 2), timely = product(&client, 2, 3);
  late.deadline_ns = 1; /* over when it is admitted */
  assert_int_equal(call(&client, late).status, STATUS_TIMEOUT);
  waits.deadline_ns = serve_clock_ns() + 20000000; /* over while the device takes nothing */
  timely.deadline_ns = UINT64_MAX;
  uint64_t tag = submit(&client, waits);
  submit(&client, timely);
  wait_until_taken(&client);
  struct ring_completion completion = take(&client);
  assert_int_equal(completion.tag, tag);
  assert_int_equal(completion.status, STATUS_TIMEOUT);
  held = false;
  assert_int_equal(take(&client).status, STATUS_OK);
  assert_int_equal(size_count, 1);
  assert_int_equal(sizes[0], 3);
  assert_int_equal(weight.jobs, 0);
  close_session(&control, &client);
  stop(&control);
}

static void what_waits_can_be_cancelled(void **state) {
  (void)state;
  struct backend_ops device;
  struct control control;
  struct client client, other;
  bool wake;
  start_holding(&control, &device, 64);
  open_session(&control, &client);
  open_session(&control, &other);
  uint64_t first = submit(&client, product(&client, 0, 1)), second = submit(&client, product(&client, 1, 2));
  wait_until_taken(&client);
  assert_true(ring_client_cancel(&other.ring, second, &wake)); /* nobody cancels what is another's */
  assert_true(ring_client_cancel(&other.ring, 12345, &wake));
  wait_until_taken(&other);
  assert_true(ring_client_cancel(&client.ring, second, &wake));
  if (wake)
    ring_doorbell(&client);
  struct ring_completion completion = take(&client);
  assert_int_equal(completion.tag, second);
  assert_int_equal(completion.status, STATUS_CANCELLED);
  held = false;
  completion = take(&client);
  assert_int_equal(completion.tag, first);
  assert_int_equal(completion.status, STATUS_OK);
  assert_int_equal(sizes[0], 1);
  expect_nop(&other);
  close_session(&control, &other);
  close_session(&control, &client);
  stop(&control);
}

static void a_session_may_end_with_rows_in_a_batch(void **state) {
  (void)state;
  struct backend_ops device;
  struct control control;
  struct client stays, goes;
  start_holding(&control, &device, 64);
  open_session(&control, &stays);
  open_session(&control, &goes);
  struct ring_submission one = product(&stays, 0, 1);
  fill(&stays, &one, 5);
  submit(&goes, product(&goes, 0, 2));
  submit(&stays, one);
  wait_until_taken(&goes);
  wait_until_taken(&stays);
  close_session(&control, &goes);
  held = false;
  take_all_right(&stays, &one, 1);
  assert_int_equal(sizes[0], 1);
  close_session(&control, &stays);
  stop(&control);
}

/* ---- going away */

static void a_session_goes_when_the_device_has_finished(void **state) {
  (void)state;
  struct control control;
  start(&control, 0);
  for (unsigned round = 0; round < 100; round++) {
    struct client client;
    open_session(&control, &client);
    for (unsigned slot = 0; slot < ENTRIES; slot++)
      submit(&client, product(&client, slot, 1 + round % 64));
    close_session(&control, &client); /* unmaps: whoever still writes into the arena crashes */
  }
  assert_int_equal(weight.handles, 0);
  assert_int_equal(weight.jobs, 0);
  stop(&control);
}

static void a_weight_goes_when_nothing_uses_it(void **state) {
  (void)state;
  struct control control;
  struct client client;
  start(&control, 50);
  open_session(&control, &client);
  struct engine_message detach = {.verb = ENGINE_WEIGHT_DETACH, .weight = &weight};
  assert_int_equal(ask(&control, &detach), STATUS_WRONG_STATE);
  struct engine_message remove = {.verb = ENGINE_HANDLE_REMOVE, .session = &client.session, .handle = HANDLE};
  for (unsigned slot = 0; slot < ENTRIES; slot++)
    submit(&client, product(&client, slot, 64));
  engine_post(control.engine, &remove);
  engine_post(control.engine, &detach);
  for (unsigned seen = 0; seen < 2;) {
    wait_readable(control.arrived);
    for (struct engine_message *each = mailbox_take(&control.mail); each != NULL; each = each->next, seen++) {
      assert_ptr_equal(each, seen == 0 ? &remove : &detach);
      assert_int_equal(each->error.status, STATUS_OK);
    }
  }
  assert_int_equal(weight.jobs, 0);
  weight.detach = NULL;
  for (unsigned i = 0; i < ENTRIES; i++) { /* those taken before the handle went are right, the others refused */
    struct ring_completion completion = take(&client);
    if (completion.status != STATUS_OK)
      assert_int_equal(completion.status, STATUS_NOT_FOUND);
  }
  assert_int_equal(ask(&control, &remove), STATUS_NOT_FOUND);
  expect_refused(&client, product(&client, 0, 1), STATUS_NOT_FOUND, FIELD_WEIGHT, HANDLE);
  close_session(&control, &client);
  stop(&control);
}

static void a_handle_can_be_given_once(void **state) {
  (void)state;
  struct control control;
  struct client client;
  start(&control, 50);
  open_session(&control, &client);
  struct engine_message again = {
      .verb = ENGINE_HANDLE_ADD, .session = &client.session, .weight = &weight, .handle = HANDLE + (1 << 16)};
  assert_int_equal(ask(&control, &again), STATUS_EXISTS);
  assert_int_equal(weight.handles, 1);
  close_session(&control, &client);
  assert_int_equal(weight.handles, 0);
  stop(&control);
}

static void a_stop_answers_everything(void **state) {
  (void)state;
  for (unsigned round = 0; round < 20; round++) {
    struct control control;
    struct client one, two;
    start(&control, 0);
    open_session(&control, &one);
    open_session(&control, &two);
    for (unsigned slot = 0; slot < ENTRIES; slot++) {
      submit(&one, product(&one, slot, 64));
      submit(&two, product(&two, slot, 64));
    }
    struct engine_message remove = {.verb = ENGINE_SESSION_REMOVE, .session = &one.session};
    engine_post(control.engine, &remove);
    engine_stop(control.engine);
    tuner_close(control.tuner);
    assert_ptr_equal(mailbox_take(&control.mail), &remove);
    assert_int_equal(weight.jobs, 0);
    mailbox_close(&control.mail);
    close(control.arrived);
    free_session(&one);
    free_session(&two);
    weight.handles = 0;
  }
}

/* ---- sleeping */

static void nobody_sleeps_through_a_call(void **state) {
  (void)state;
  struct control control;
  struct client client;
  start(&control, 0); /* sleeps whenever it finds nothing */
  open_session(&control, &client);
  for (unsigned i = 0; i < 10000; i++)
    expect_nop(&client);
  struct ring_submission one = product(&client, 0, 1);
  fill(&client, &one, 1);
  for (unsigned i = 0; i < 1000; i++)
    assert_int_equal(call(&client, one).status, STATUS_OK);
  check(&client, &one);
  close_session(&control, &client);
  stop(&control);
}

struct caller {
  pthread_t thread;
  struct client client;
  unsigned seed;
};

/* Keeps a varying number of products in flight; each slot's result is checked before the slot is used again. */
static void *call_on_and_on(void *argument) {
  struct caller *caller = argument;
  struct client *client = &caller->client;
  struct ring_submission slots[ENTRIES];
  for (unsigned round = 0; round < 200; round++) {
    unsigned count = 1 + (round * 7 + caller->seed) % ENTRIES;
    uint64_t first = client->next_tag + 1;
    for (unsigned slot = 0; slot < count; slot++) {
      slots[slot] = product(client, slot, 1 + (round + slot) % 5);
      fill(client, &slots[slot], round + caller->seed);
      submit(client, slots[slot]);
    }
    unsigned seen = 0;
    for (unsigned i = 0; i < count; i++) {
      struct ring_completion completion = take(client);
      assert_int_equal(completion.status, STATUS_OK);
      assert_in_range(completion.tag, first, first + count - 1);
      assert_false(seen >> (completion.tag - first) & 1);
      seen |= 1u << (completion.tag - first);
      check(client, &slots[completion.tag - first]);
    }
  }
  return NULL;
}

static void sessions_are_served_side_by_side(void **state) {
  (void)state;
  enum { CALLERS = 3 };
  for (uint64_t spin_us = 0; spin_us <= 50; spin_us += 50) {
    struct control control;
    struct caller callers[CALLERS];
    start(&control, spin_us);
    for (unsigned i = 0; i < CALLERS; i++) {
      callers[i].seed = i;
      open_session(&control, &callers[i].client);
    }
    for (unsigned i = 0; i < CALLERS; i++)
      assert_int_equal(pthread_create(&callers[i].thread, NULL, call_on_and_on, &callers[i]), 0);
    for (unsigned i = 0; i < CALLERS; i++)
      pthread_join(callers[i].thread, NULL);
    for (unsigned i = 0; i < CALLERS; i++)
      close_session(&control, &callers[i].client);
    stop(&control);
  }
}

/* ---- generations */

static void a_successor_waits_until_the_client_knows_of_it(void **state) {
  (void)state;
  for (unsigned round = 0; round < 200; round++) {
    struct control control;
    struct client client, other;
    start(&control, 0);
    open_session(&control, &other);
    open_session_with(&control, &client, 2); /* the client is still at 1, and asks its dead worker */
    uint64_t tag = submit(&client, (struct ring_submission){.opcode = RING_OP_NOP});
    ring_doorbell(&client);
    expect_nop(&other); /* the engine has been around */
    expect_nop(&other);
    assert_int_equal(atomic_load(&client.ring.queue->submission_head), 0);
    assert_int_equal(atomic_load(&client.ring.queue->completion_tail), 0);
    ring_replace_worker(client.ring.queue, 2);
    assert_true(ring_client_replaced(&client.ring));
    assert_false(ring_client_ready(&client.ring));
    ring_client_reset(&client.ring);
    client.next_tag = tag - 1;
    expect_nop(&client);
    close_session(&control, &client);
    close_session(&control, &other);
    stop(&control);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products_are_right),
      cmocka_unit_test(strides_offsets_and_bias_arrive),
      cmocka_unit_test(what_is_wrong_is_named),
      cmocka_unit_test(a_session_with_false_indices_ends_alone),
      cmocka_unit_test(a_session_that_blocks_its_wakeup_ends_alone),
      cmocka_unit_test(a_full_wakeup_counter_is_no_offence),
      cmocka_unit_test(a_lost_device_is_reported_and_nothing_completed),
      cmocka_unit_test(a_busy_device_is_asked_again),
      cmocka_unit_test(a_product_that_the_device_refuses_fails_alone),
      cmocka_unit_test(requests_that_wait_together_are_one_product),
      cmocka_unit_test(a_batch_has_so_many_rows),
      cmocka_unit_test(a_window_lets_others_join),
      cmocka_unit_test(a_flood_starves_nobody),
      cmocka_unit_test(urgent_products_overtake),
      cmocka_unit_test(deadlines_hold_before_the_start),
      cmocka_unit_test(what_waits_can_be_cancelled),
      cmocka_unit_test(a_session_may_end_with_rows_in_a_batch),
      cmocka_unit_test(a_session_goes_when_the_device_has_finished),
      cmocka_unit_test(a_weight_goes_when_nothing_uses_it),
      cmocka_unit_test(a_handle_can_be_given_once),
      cmocka_unit_test(a_stop_answers_everything),
      cmocka_unit_test(nobody_sleeps_through_a_call),
      cmocka_unit_test(sessions_are_served_side_by_side),
      cmocka_unit_test(a_successor_waits_until_the_client_knows_of_it),
  };
  return cmocka_run_group_tests(tests, open_device, close_device);
}
