#include "pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct pair pair_make(uint32_t entries) {
  struct pair pair = {.bytes = ring_tensor_offset(entries, 1) + 4096, .entries = entries};
  pair.arena = aligned_alloc(4096, pair.bytes);
  assert_non_null(pair.arena);
  memset(pair.arena, 0, pair.bytes);
  ring_format(pair.arena, 1, entries, pair.bytes);
  ring_client_init(&pair.client, pair.arena, entries, 0);
  ring_worker_init(&pair.worker, pair.arena, entries, 0, 1);
  return pair;
}

void pair_free(struct pair *pair) {
  free(pair->arena);
}

bool pair_submit(struct pair *pair, uint64_t tag) {
  struct ring_submission submission = {.tag = tag, .opcode = RING_OP_PRODUCT};
  bool wake;
  return ring_client_submit(&pair->client, &submission, &wake);
}

int64_t pair_take(struct pair *pair) {
  struct ring_submission submission;
  struct error error;
  bool taken = true;
  if (ring_worker_take(&pair->worker, &submission, &taken, &error) != STATUS_OK)
    return -2;
  return taken ? (int64_t)submission.tag : -1;
}

bool pair_complete(struct pair *pair, uint64_t tag) {
  struct ring_completion completion = {.tag = tag};
  bool wake;
  ring_worker_complete(&pair->worker, &completion, &wake);
  return wake;
}

int64_t pair_reap(struct pair *pair) {
  struct ring_completion completion;
  return ring_client_take(&pair->client, &completion) ? (int64_t)completion.tag : -1;
}
