/* The identity of a weight's content, by all threads. */
#pragma once

#include "bands.h"
#include "tree.h"

/* By tree.h. Adds the bytes to watch->done; CANCELLED where the watch says stop. */
MUST_CHECK enum status hash_weight(const struct gemm_weight *weight, const void *canonical, uint64_t bytes,
                                   unsigned threads, struct watch *watch, uint8_t hash[TREE_HASH_BYTES],
                                   struct error *error);
