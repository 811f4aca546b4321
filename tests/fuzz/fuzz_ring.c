/* An arena that its client writes as it likes: shared words and entries change between any two steps of the worker, and
 * on a thread of their own while it reads. What the worker takes out must be a product inside the arena, or be refused;
 * and it never has more under way than there are entries. */
#include "proto/gemm.h"
#include "proto/shm/ring.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ENTRIES = 4, TENSOR_BYTES = 1 << 16 };

static _Alignas(4096) uint8_t arena[4096 + 8192 + TENSOR_BYTES];

struct scribbler {
  const uint8_t *data;
  size_t size;
  _Atomic bool stop;
};

/* Relaxed atomic bytes: a race on purpose, and none that a compiler may make nonsense of. */
static void scribble(const uint8_t *data, size_t size, size_t at) {
  for (size_t i = 0; i + 3 <= size; i += 3) {
    size_t offset = ((size_t)data[i] << 8 | data[i + 1]) % 8192;
    __atomic_store_n(&arena[4096 + (offset + at) % 8192], data[i + 2], __ATOMIC_RELAXED);
  }
}

static void *run_scribbler(void *opaque) {
  struct scribbler *scribbler = opaque;
  for (size_t round = 0; !atomic_load(&scribbler->stop) && round < 64; round++)
    scribble(scribbler->data, scribbler->size, round);
  return NULL;
}

static void check_submission(const struct ring_submission *submission) {
  static const struct gemm_weight weight = {.n = 32, .k = 64, .format = GEMM_FORMAT_INT8, .scale = GEMM_SCALE_ROW};
  struct gemm_product product;
  struct gemm_extent extent;
  struct error error;
  uint64_t begin = ring_tensor_offset(ENTRIES, 1), end = sizeof arena;
  if (ring_submission_product(submission, &product, &error) != STATUS_OK ||
      submission->opcode == RING_OP_PLAN || /* fuzz_plan.c */
      gemm_product_check(&product, &weight, begin, end, &extent, &error) != STATUS_OK)
    return;
  /* What passed the checks is used by the backend without another look. */
  uint64_t x_last = product.x_offset + (uint64_t)(product.m - 1) * extent.x_stride;
  uint64_t y_last = product.y_offset + (uint64_t)(product.m - 1) * extent.y_stride;
  if (product.x_offset < begin || product.y_offset < begin || x_last >= end || y_last >= end || product.n != weight.n ||
      product.k != weight.k)
    abort();
}

static bool step(struct ring_worker *ring, uint8_t choice) {
  struct ring_submission submission;
  struct error error;
  bool taken = false, wake;
  if (choice % 3 == 0 && ring->in_flight > 0) {
    const struct ring_completion completion = {.tag = choice};
    ring_worker_complete(ring, &completion, &wake);
  } else if (choice % 3 == 1) {
    if (!ring_worker_sleep(ring))
      return true;
    ring_worker_awake(ring);
  } else {
    if (ring_worker_take(ring, &submission, &taken, &error) != STATUS_OK)
      return false;
    if (taken)
      check_submission(&submission);
  }
  if (ring->in_flight > ENTRIES)
    abort();
  return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct ring_worker ring;
  pthread_t thread;
  if (size < 8)
    return 0;
  bool threaded = data[0] % 16 == 0; /* a thread takes long to make */
  memset(arena, 0, sizeof arena);
  ring_format(arena, 1, ENTRIES, sizeof arena);
  ring_worker_init(&ring, arena, ENTRIES, 0, 1);
  struct scribbler scribbler = {.data = data + 1, .size = size - 1};
  if (threaded && pthread_create(&thread, NULL, run_scribbler, &scribbler) != 0)
    return 0;
  for (size_t i = 1; i + 4 <= size; i += 4) {
    if (!threaded)
      scribble(data + i, 3, 0);
    if (!step(&ring, data[i + 3]))
      break;
  }
  atomic_store(&scribbler.stop, true);
  if (threaded)
    pthread_join(thread, NULL);
  return 0;
}
