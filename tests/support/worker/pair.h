/* An arena of one device with its two ends, and the rings' functions by tags alone. */
#pragma once

#include "proto/shm/ring.h"

#include <stdbool.h>
#include <stdint.h>

struct pair {
  void *arena; /* owned */
  uint64_t bytes;
  uint32_t entries;
  struct ring_client client;
  struct ring_worker worker;
};

struct pair pair_make(uint32_t entries);
void pair_free(struct pair *pair);

bool pair_submit(struct pair *pair, uint64_t tag);
/* The tag of the next submission; -1: none, -2: refused. */
int64_t pair_take(struct pair *pair);
/* Whether the client is to be woken. */
bool pair_complete(struct pair *pair, uint64_t tag);
/* The tag of the next completion; -1: none. */
int64_t pair_reap(struct pair *pair);
