/* Products over the rings: rooms, parts, a worker that is lost, a device that fails, a session that ends. The test
 * holds the worker's end of the rings, in this process' memory. */
#include "client/submit/queue.h"
#include "client/weight/handle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { ENTRIES = 4, DEVICES = 2, TENSORS = 65536, N = 256, K = 64 };

struct scene {
  gemmd_session *session;
  gemmd_weight *weight;
  gemmd_product product;
  struct ring_worker workers[DEVICES];
  int peer; /* other end of the control socket */
};

static struct scene scene_make(enum message_placement placement) {
  struct scene scene = {.session = calloc(1, sizeof *scene.session), .weight = calloc(1, sizeof *scene.weight)};
  gemmd_session *session = scene.session;
  struct error error;
  int ends[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  session->socket = ends[0];
  scene.peer = ends[1];
  session->epoll = -1;
  session->wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  session->devices = DEVICES;
  session->entries = ENTRIES;
  session->tensor_offset = ring_tensor_offset(ENTRIES, DEVICES);
  session->arena_bytes = session->tensor_offset + TENSORS;
  session->arena = aligned_alloc(4096, session->arena_bytes);
  memset(session->arena, 0, session->arena_bytes);
  ring_format(session->arena, DEVICES, ENTRIES, session->arena_bytes);
  heap_init(&session->heap, session->tensor_offset, session->arena_bytes);
  assert_int_equal(pending_init(&session->pending, ENTRIES, &error), STATUS_OK);
  for (uint32_t device = 0; device < DEVICES; device++) {
    struct queue *queue = &session->queues[device];
    ring_client_init(&queue->ring, session->arena, ENTRIES, device);
    queue->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    queue->open = true;
    ring_worker_init(&scene.workers[device], session->arena, ENTRIES, device, 1);
    ring_set_worker_state(queue->ring.queue, RING_WORKER_READY);
  }
  scene.weight->session = session;
  LIST_INSERT_HEAD(&session->weights, scene.weight, link);
  strcpy(scene.weight->info.name, "w");
  scene.weight->shape = (struct gemm_weight){.n = N, .k = K, .format = GEMM_FORMAT_F16};
  scene.weight->placement = placement;
  scene.weight->part_count = placement == PLACEMENT_SINGLE ? 1 : DEVICES;
  for (uint32_t i = 0; i < scene.weight->part_count; i++)
    scene.weight->parts[i] = (struct pending_part){.device = i,
                                                   .handle = (i + 1) << 16,
                                                   .n_begin = placement == PLACEMENT_SPLIT ? i * N / DEVICES : 0,
                                                   .n_count = placement == PLACEMENT_SPLIT ? N / DEVICES : N};
  scene.product = (gemmd_product){.m = 2,
                                  .x = gemmd_alloc(session, 2 * K * 2),
                                  .x_type = GEMMD_F16,
                                  .y = gemmd_alloc(session, 2 * N * 4),
                                  .y_type = GEMMD_F32};
  return scene;
}

static void scene_free(struct scene *scene) {
  gemmd_session *session = scene->session;
  for (uint32_t device = 0; device < DEVICES; device++)
    queue_close(&session->queues[device]);
  heap_release(&session->heap);
  pending_release(&session->pending);
  close(session->wakeup);
  close(session->socket);
  if (scene->peer >= 0)
    close(scene->peer);
  free(session->arena);
  free(scene->weight);
  free(session);
}

static uint64_t submit(struct scene *scene) {
  uint64_t ticket;
  assert_int_equal(gemmd_submit(scene->weight, &scene->product, &ticket), GEMMD_OK);
  assert_int_not_equal(ticket, 0);
  return ticket;
}

static bool take(struct scene *scene, uint32_t device, struct ring_submission *out) {
  struct error error;
  bool taken;
  assert_int_equal(ring_worker_take(&scene->workers[device], out, &taken, &error), STATUS_OK);
  return taken;
}

/* Takes one submission, which must be there, and answers it. */
static void serve(struct scene *scene, uint32_t device, enum status status) {
  struct ring_submission submission;
  bool wake;
  assert_true(take(scene, device, &submission));
  struct ring_completion completion = {.tag = submission.tag, .status = (uint16_t)status, .device_ns = 5};
  ring_worker_complete(&scene->workers[device], &completion, &wake);
}

/* What the supervisor does when a worker has died, and the successor's beginning. */
static void replace(struct scene *scene, uint32_t device) {
  uint32_t generation = scene->workers[device].generation + 1;
  struct ring_queue *queue = scene->session->queues[device].ring.queue;
  ring_replace_worker(queue, generation);
  ring_worker_init(&scene->workers[device], scene->session->arena, ENTRIES, device, generation);
  ring_set_worker_state(queue, RING_WORKER_READY);
}

static void a_product_travels(void **state) {
  struct scene scene = scene_make(PLACEMENT_SINGLE);
  struct ring_submission seen;
  gemmd_result result;
  uint64_t ticket = submit(&scene);
  assert_int_equal(gemmd_wait(scene.session, ticket, 0, NULL), GEMMD_TIMEOUT);
  assert_true(take(&scene, 0, &seen));
  assert_int_equal(seen.weight, 1 << 16);
  assert_int_equal(seen.m, 2);
  assert_int_equal(seen.n, N);
  assert_int_equal(seen.k, K);
  assert_int_equal(seen.x_stride, K * 2);
  assert_int_equal(seen.y_stride, N * 4);
  assert_int_equal(seen.x_offset, (const uint8_t *)scene.product.x - scene.session->arena);
  assert_int_equal(seen.y_offset, (const uint8_t *)scene.product.y - scene.session->arena);
  bool wake;
  struct ring_completion completion = {.tag = seen.tag, .device_ns = 7, .queue_ns = 8};
  ring_worker_complete(&scene.workers[0], &completion, &wake);
  assert_int_equal(gemmd_wait(scene.session, ticket, -1, &result), GEMMD_OK);
  assert_int_equal(result.ticket, ticket);
  assert_int_equal(result.status, GEMMD_OK);
  assert_int_equal(result.device_ns, 7);
  assert_int_equal(result.queue_ns, 8);
  /* Taken once. */
  assert_int_equal(gemmd_wait(scene.session, ticket, 0, NULL), GEMMD_INVALID);
  assert_int_equal(gemmd_wait_any(scene.session, 0, NULL), GEMMD_NOT_FOUND);
  scene_free(&scene);
}

static void what_is_wrong_is_told_before_anything_is_sent(void **state) {
  struct scene scene = scene_make(PLACEMENT_SPLIT);
  struct ring_submission seen;
  float local[4];
  uint64_t ticket = 1;
  gemmd_product wrong[] = {scene.product, scene.product, scene.product, scene.product,
                           scene.product, scene.product, scene.product};
  wrong[0].m = 0;
  wrong[1].x = local;
  wrong[2].y = NULL;
  wrong[3].x_type = GEMMD_F32;
  wrong[4].y_stride = N * 4 / 2; /* enough for a part, not for the whole */
  wrong[5].bias = local;
  wrong[5].bias_type = GEMMD_F32;
  wrong[6].bias = scene.product.x;
  const char *says[] = {"M must be", "x must lie", "y must not", "x type", "y stride", "bias must lie", "bias type"};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    int status = gemmd_submit(scene.weight, &wrong[i], &ticket);
    assert_int_equal(status, i == 3 ? GEMMD_UNSUPPORTED : GEMMD_INVALID);
    assert_memory_equal(gemmd_error(scene.session), says[i], strlen(says[i]));
    assert_int_equal(ticket, 0);
  }
  assert_false(take(&scene, 0, &seen));
  assert_false(take(&scene, 1, &seen));
  assert_int_equal(scene.session->pending.used, 0);
  scene_free(&scene);
}

static void the_scale_of_x_is_looked_at_where_it_counts(void **state) {
  struct scene scene = scene_make(PLACEMENT_SINGLE);
  struct ring_submission seen;
  uint64_t ticket;
  scene.weight->shape.format = GEMM_FORMAT_INT8;
  scene.weight->shape.scale = GEMM_SCALE_ROW;
  scene.product.x_type = GEMMD_INT8;
  assert_int_equal(gemmd_submit(scene.weight, &scene.product, &ticket), GEMMD_INVALID);
  assert_string_equal(gemmd_error(scene.session), "x scale must not be NULL (weight \"w\")");
  scene.product.y_type = GEMMD_S32;
  submit(&scene);
  assert_true(take(&scene, 0, &seen));
  assert_int_equal(seen.x_scale_offset, 0);
  scene.product.y_type = GEMMD_F32;
  scene.product.x_scale = gemmd_alloc(scene.session, 2 * sizeof(float));
  submit(&scene);
  assert_true(take(&scene, 0, &seen));
  assert_int_equal(seen.x_scale_offset, (const uint8_t *)scene.product.x_scale - scene.session->arena);
  scene_free(&scene);
}

static void full_means_busy_until_results_are_taken(void **state) {
  struct scene scene = scene_make(PLACEMENT_SINGLE);
  uint64_t ticket;
  gemmd_result result;
  for (int i = 0; i < ENTRIES; i++)
    submit(&scene);
  assert_int_equal(gemmd_submit(scene.weight, &scene.product, &ticket), GEMMD_BUSY);
  serve(&scene, 0, STATUS_OK);
  assert_int_equal(gemmd_submit(scene.weight, &scene.product, &ticket), GEMMD_BUSY);
  assert_int_equal(gemmd_wait_any(scene.session, 0, &result), GEMMD_OK);
  submit(&scene);
  assert_int_equal(gemmd_submit(scene.weight, &scene.product, &ticket), GEMMD_BUSY);
  scene_free(&scene);
}

static void other_results_wait_for_their_turn(void **state) {
  struct scene scene = scene_make(PLACEMENT_SINGLE);
  gemmd_result result;
  uint64_t first = submit(&scene), second = submit(&scene), third = submit(&scene);
  serve(&scene, 0, STATUS_OK);
  serve(&scene, 0, STATUS_NOMEM);
  serve(&scene, 0, STATUS_OK);
  assert_int_equal(gemmd_wait(scene.session, second, 0, &result), GEMMD_NOMEM);
  assert_int_equal(result.status, GEMMD_NOMEM);
  assert_int_equal(gemmd_wait_any(scene.session, 0, &result), GEMMD_OK);
  assert_int_equal(result.ticket, first);
  assert_int_equal(gemmd_wait(scene.session, third, 0, NULL), GEMMD_OK);
  scene_free(&scene);
}

static void a_split_asks_every_device_and_ends_with_the_last(void **state) {
  struct scene scene = scene_make(PLACEMENT_SPLIT);
  gemmd_result result;
  uint64_t ticket = submit(&scene);
  serve(&scene, 1, STATUS_OK);
  assert_int_equal(gemmd_wait(scene.session, ticket, 0, NULL), GEMMD_TIMEOUT);
  serve(&scene, 0, STATUS_OK);
  assert_int_equal(gemmd_wait(scene.session, ticket, 0, &result), GEMMD_OK);
  scene_free(&scene);
}

static void replicas_share_the_work(void **state) {
  struct scene scene = scene_make(PLACEMENT_REPLICAS);
  struct ring_submission seen;
  for (int i = 0; i < ENTRIES; i++)
    submit(&scene);
  for (uint32_t device = 0; device < DEVICES; device++) {
    assert_int_equal(scene.session->queues[device].in_flight, ENTRIES / DEVICES);
    assert_true(take(&scene, device, &seen));
    assert_int_equal(seen.weight, (device + 1) << 16);
  }
  scene_free(&scene);
}

static void a_failed_replica_gets_no_work(void **state) {
  struct scene scene = scene_make(PLACEMENT_REPLICAS);
  uint64_t ticket;
  ring_set_worker_state(scene.session->queues[0].ring.queue, RING_WORKER_FAILED);
  for (int i = 0; i < ENTRIES; i++)
    submit(&scene);
  assert_int_equal(scene.session->queues[0].in_flight, 0);
  assert_int_equal(scene.session->queues[1].in_flight, ENTRIES);
  ring_set_worker_state(scene.session->queues[1].ring.queue, RING_WORKER_FAILED);
  assert_int_equal(gemmd_submit(scene.weight, &scene.product, &ticket), GEMMD_DEVICE_LOST);
  scene_free(&scene);
}

static void a_successor_is_asked_for_what_was_not_answered(void **state) {
  struct scene scene = scene_make(PLACEMENT_SINGLE);
  struct ring_submission taken, again[2], none;
  gemmd_result result;
  uint64_t first = submit(&scene), second = submit(&scene), third = submit(&scene);
  serve(&scene, 0, STATUS_OK);
  assert_true(take(&scene, 0, &taken)); /* dies with the second in hand */
  replace(&scene, 0);
  assert_int_equal(gemmd_wait(scene.session, first, 0, NULL), GEMMD_OK);
  assert_int_equal(gemmd_wait(scene.session, second, 0, NULL), GEMMD_TIMEOUT);
  /* Once each, in any order. */
  assert_true(take(&scene, 0, &again[0]) && take(&scene, 0, &again[1]));
  assert_false(take(&scene, 0, &none));
  int which = again[0].tag == taken.tag ? 0 : 1;
  assert_memory_equal(&again[which], &taken, sizeof taken);
  for (int i = 0; i < 2; i++) {
    bool wake;
    struct ring_completion completion = {.tag = again[i].tag, .device_ns = i == which ? 22 : 33};
    ring_worker_complete(&scene.workers[0], &completion, &wake);
  }
  assert_int_equal(gemmd_wait(scene.session, second, 0, &result), GEMMD_OK);
  assert_int_equal(result.device_ns, 22);
  assert_int_equal(gemmd_wait(scene.session, third, 0, &result), GEMMD_OK);
  assert_int_equal(result.device_ns, 33);
  scene_free(&scene);
}

static void the_second_loss_is_told(void **state) {
  struct scene scene = scene_make(PLACEMENT_SPLIT);
  struct ring_submission seen;
  gemmd_result result;
  uint64_t old = submit(&scene);
  assert_true(take(&scene, 0, &seen));
  replace(&scene, 0);
  uint64_t young = submit(&scene); /* sees the first loss, and is not itself lost by it */
  assert_true(take(&scene, 0, &seen) && take(&scene, 0, &seen));
  replace(&scene, 0);
  assert_int_equal(gemmd_wait_any(scene.session, 0, NULL), GEMMD_TIMEOUT); /* device 1 still owes its part */
  serve(&scene, 1, STATUS_OK);
  assert_int_equal(gemmd_wait(scene.session, old, 0, &result), GEMMD_DEVICE_LOST);
  assert_string_equal(gemmd_error(scene.session), "device 0 was lost under this request (weight \"w\")");
  serve(&scene, 0, STATUS_OK);
  serve(&scene, 1, STATUS_OK);
  assert_int_equal(gemmd_wait(scene.session, young, 0, &result), GEMMD_OK);
  assert_false(take(&scene, 0, &seen));
  scene_free(&scene);
}

/* What is asked for while there is no worker has not been lost with the one that died. */
static void what_no_worker_has_taken_is_not_lost(void **state) {
  struct scene scene = scene_make(PLACEMENT_SINGLE);
  struct ring_submission seen;
  uint64_t before = submit(&scene);
  assert_true(take(&scene, 0, &seen));
  uint64_t after = submit(&scene);
  replace(&scene, 0);
  assert_int_equal(gemmd_wait_any(scene.session, 0, NULL), GEMMD_TIMEOUT);
  assert_true(take(&scene, 0, &seen) && take(&scene, 0, &seen));
  replace(&scene, 0);
  assert_int_equal(gemmd_wait(scene.session, before, 0, NULL), GEMMD_DEVICE_LOST);
  serve(&scene, 0, STATUS_OK);
  assert_int_equal(gemmd_wait(scene.session, after, 0, NULL), GEMMD_OK);
  scene_free(&scene);
}

static void a_full_ring_survives_a_loss(void **state) {
  struct scene scene = scene_make(PLACEMENT_SINGLE);
  gemmd_result result;
  for (int i = 0; i < ENTRIES; i++)
    submit(&scene);
  replace(&scene, 0);
  assert_int_equal(gemmd_wait_any(scene.session, 0, &result), GEMMD_TIMEOUT);
  for (int i = 0; i < ENTRIES; i++)
    serve(&scene, 0, STATUS_OK);
  for (int i = 0; i < ENTRIES; i++)
    assert_int_equal(gemmd_wait_any(scene.session, 0, &result), GEMMD_OK);
  scene_free(&scene);
}

static void a_wait_ends_at_its_time(void **state) {
  struct scene scene = scene_make(PLACEMENT_SINGLE);
  gemmd_result result = {0};
  assert_int_equal(gemmd_wait_any_until(scene.session, UINT64_MAX, &result), GEMMD_NOT_FOUND);
  uint64_t ticket = submit(&scene), until = (uint64_t)clock_now() + 3000000;
  assert_int_equal(gemmd_wait_any_until(scene.session, 1, &result), GEMMD_TIMEOUT);
  assert_string_equal(gemmd_error(scene.session), "no product was finished by 1 ns");
  assert_int_equal(gemmd_wait_any_until(scene.session, until, &result), GEMMD_TIMEOUT);
  assert_true((uint64_t)clock_now() >= until);
  serve(&scene, 0, STATUS_OK);
  assert_int_equal(gemmd_wait_any_until(scene.session, 1, &result), GEMMD_OK); /* only looks */
  assert_true(result.ticket == ticket);
  submit(&scene);
  serve(&scene, 0, STATUS_OK);
  assert_int_equal(gemmd_wait_any_until(scene.session, UINT64_MAX, &result), GEMMD_OK);
  scene_free(&scene);
}

static void a_failed_device_ends_what_it_has(void **state) {
  struct scene scene = scene_make(PLACEMENT_SINGLE);
  uint64_t first = submit(&scene), second = submit(&scene), ticket;
  serve(&scene, 0, STATUS_OK);
  ring_set_worker_state(scene.session->queues[0].ring.queue, RING_WORKER_FAILED);
  assert_int_equal(gemmd_wait(scene.session, second, -1, NULL), GEMMD_DEVICE_LOST);
  assert_int_equal(gemmd_wait(scene.session, first, -1, NULL), GEMMD_OK);
  assert_int_equal(gemmd_submit(scene.weight, &scene.product, &ticket), GEMMD_DEVICE_LOST);
  assert_string_equal(gemmd_error(scene.session), "device 0 has failed; gemmd starts it again after a while");
  scene_free(&scene);
}

static void the_end_of_the_daemon_ends_what_is_in_flight(void **state) {
  struct scene scene = scene_make(PLACEMENT_SINGLE);
  gemmd_result result;
  uint64_t first = submit(&scene), second = submit(&scene), ticket;
  serve(&scene, 0, STATUS_OK);
  close(scene.peer);
  scene.peer = -1;
  assert_int_equal(gemmd_wait(scene.session, second, -1, &result), GEMMD_DISCONNECTED);
  assert_int_equal(result.status, GEMMD_DISCONNECTED);
  assert_int_equal(gemmd_wait(scene.session, first, -1, &result), GEMMD_OK);
  assert_int_equal(gemmd_submit(scene.weight, &scene.product, &ticket), GEMMD_DISCONNECTED);
  assert_int_equal(gemmd_wait_any(scene.session, -1, &result), GEMMD_DISCONNECTED);
  scene_free(&scene);
}

static void who_only_looks_notices_the_end_too(void **state) {
  struct scene scene = scene_make(PLACEMENT_SINGLE);
  uint64_t ticket = submit(&scene);
  assert_int_equal(gemmd_wait(scene.session, ticket, 0, NULL), GEMMD_TIMEOUT);
  close(scene.peer);
  scene.peer = -1;
  assert_int_equal(gemmd_wait(scene.session, ticket, 0, NULL), GEMMD_DISCONNECTED);
  scene_free(&scene);
}

/* A worker is lost and its device given up between two looks. */
static void a_loss_and_a_failure_seen_at_once_end_what_is_in_flight(void **state) {
  struct scene scene = scene_make(PLACEMENT_SINGLE);
  uint64_t first = submit(&scene), second = submit(&scene);
  serve(&scene, 0, STATUS_OK);
  replace(&scene, 0);
  ring_set_worker_state(scene.session->queues[0].ring.queue, RING_WORKER_FAILED);
  assert_int_equal(gemmd_wait(scene.session, second, -1, NULL), GEMMD_DEVICE_LOST);
  assert_int_equal(gemmd_wait(scene.session, first, -1, NULL), GEMMD_OK);
  scene_free(&scene);
}

/* Whatever has happened before, a completion must find the flag up or the wakeup written. */
static void an_event_loop_is_never_left_asleep(void **state) {
  struct scene scene = scene_make(PLACEMENT_SINGLE);
  struct ring_submission seen;
  gemmd_result result;
  uint64_t count;
  scene.session->event_loop = true;
  for (int round = 0; round < 2 * ENTRIES; round++) {
    submit(&scene);
    assert_true(take(&scene, 0, &seen));
    bool wake = false;
    struct ring_completion completion = {.tag = seen.tag};
    ring_worker_complete(&scene.workers[0], &completion, &wake);
    assert_true(wake);
    assert_int_equal(gemmd_dispatch(scene.session, 0), GEMMD_OK);
    assert_int_equal(gemmd_wait_any(scene.session, 0, &result), GEMMD_OK);
  }
  /* A completion that was there before anybody armed: the session wakes itself. */
  scene.session->event_loop = false;
  submit(&scene);
  serve(&scene, 0, STATUS_OK);
  assert_int_equal(read(scene.session->wakeup, &count, sizeof count), -1);
  scene.session->epoll = dup(scene.session->wakeup);
  assert_int_equal(gemmd_fd(scene.session), scene.session->epoll);
  assert_int_equal(read(scene.session->wakeup, &count, sizeof count), sizeof count);
  close(scene.session->epoll);
  scene_free(&scene);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_product_travels),
      cmocka_unit_test(what_is_wrong_is_told_before_anything_is_sent),
      cmocka_unit_test(the_scale_of_x_is_looked_at_where_it_counts),
      cmocka_unit_test(full_means_busy_until_results_are_taken),
      cmocka_unit_test(other_results_wait_for_their_turn),
      cmocka_unit_test(a_split_asks_every_device_and_ends_with_the_last),
      cmocka_unit_test(replicas_share_the_work),
      cmocka_unit_test(a_failed_replica_gets_no_work),
      cmocka_unit_test(a_successor_is_asked_for_what_was_not_answered),
      cmocka_unit_test(the_second_loss_is_told),
      cmocka_unit_test(what_no_worker_has_taken_is_not_lost),
      cmocka_unit_test(a_full_ring_survives_a_loss),
      cmocka_unit_test(a_wait_ends_at_its_time),
      cmocka_unit_test(a_failed_device_ends_what_it_has),
      cmocka_unit_test(the_end_of_the_daemon_ends_what_is_in_flight),
      cmocka_unit_test(who_only_looks_notices_the_end_too),
      cmocka_unit_test(a_loss_and_a_failure_seen_at_once_end_what_is_in_flight),
      cmocka_unit_test(an_event_loop_is_never_left_asleep),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
