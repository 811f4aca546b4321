/* The identity of a weight's content. */
#ifndef LOADER_HASH_H
#define LOADER_HASH_H

#include "../../proto/gemm.h"
#include "bands.h"

enum { HASH_BYTES = 32 };

/* BLAKE2b-256 over a header of 32 bytes ("gemmd-1" and a NUL, then format, scale mode, N and K, little endian, of 4, 4,
 * 8 and 8 bytes) and the canonical bytes. Adds the bytes to watch->done; CANCELLED where the watch says stop. */
MUST_CHECK enum status hash_weight(const struct gemm_weight *weight, const void *canonical, uint64_t bytes,
                                   struct watch *watch, uint8_t hash[HASH_BYTES], struct error *error);

#endif
