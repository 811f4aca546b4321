/* Every cap on what a peer may ask for. A side that allocates or loops checks against these. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define LIMIT_MESSAGE_BYTES 65536u /* one control message */
#define LIMIT_MESSAGE_FDS 8u       /* descriptors that travel with one message */
#define LIMIT_MESSAGE_DEPTH 6u     /* nesting of arrays and maps in a message */
#define LIMIT_NAME_BYTES 256u      /* a weight's or tensor's name, the final NUL included */
#define LIMIT_PAGE_ITEMS 64u       /* items in one page of a list */
#define LIMIT_DEVICES 64u
#define LIMIT_PARTS 16u /* parts (replicas or row ranges) of one weight */

#define LIMIT_M ((int64_t)1 << 24)
#define LIMIT_N ((int64_t)1 << 24)
#define LIMIT_K ((int64_t)1 << 24)
#define LIMIT_EXPERTS 512   /* of one weight */
#define LIMIT_K_INT8 131071 /* so that s32 holds the sum of 127 * 127 * K */

#define LIMIT_RING_ENTRIES 256u /* requests in flight, a session and device */
#define LIMIT_ARENA_BYTES ((uint64_t)1 << 40)
#define LIMIT_SESSION_WEIGHTS 65536u /* weights open at a time in one session */
#define LIMIT_SESSION_TENSORS 32u    /* pieces of memory, and events, of one session's own */
#define LIMIT_TENSOR_BYTES ((uint64_t)1 << 40)
#define LIMIT_FILE_HEADER_BYTES ((uint64_t)100 << 20) /* safetensors' own limit */
#define LIMIT_FILE_TENSORS 65536u
#define LIMIT_FILE_VALUES ((size_t)1 << 21) /* in the header: 32 for each tensor; each takes memory */
