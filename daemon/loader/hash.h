/* The identity of a weight's content. */
#ifndef LOADER_HASH_H
#define LOADER_HASH_H

#include "../../proto/gemm.h"
#include "bands.h"

enum { HASH_BYTES = 32, HASH_PIECE_BYTES = 1 << 20 };

/* A tree, so that all cores can compute it. Of every MiB of the canonical bytes (the last may be shorter) a leaf:
 * BLAKE2b-256 over 16 bytes ("gemmd-2 leaf", zeros, and the leaf's number from 0, little endian, in the last four), and
 * the piece. Their root: BLAKE2b-256 over a header of 32 bytes ("gemmd-2" and a NUL, then format, scale mode, N and K,
 * little endian, of 4, 4, 8 and 8 bytes; with experts it begins with "gemmd-3", and behind it is E, of 8 bytes) and all
 * leaves. Adds the bytes to watch->done; CANCELLED where the watch says
 * stop. */
MUST_CHECK enum status hash_weight(const struct gemm_weight *weight, const void *canonical, uint64_t bytes,
                                   unsigned threads, struct watch *watch, uint8_t hash[HASH_BYTES],
                                   struct error *error);

/* What stood for content before: BLAKE2b-256 over such a header, with "gemmd-1", and the canonical bytes. Content that
 * was stored under it is still found by it. */
void hash_sequential(const struct gemm_weight *weight, const void *canonical, uint64_t bytes, uint8_t hash[HASH_BYTES]);

#endif
