/* The shared memory of one session, as the supervisor holds it: the memfd, the doorbells, and a mapping of header and
 * rings through which it tells the client of a worker's death. Tensors are not mapped here. */
#pragma once

#include "../../../proto/limits.h"
#include "../../../proto/shm/ring.h"
#include "../../../proto/status.h"

#include <stdint.h>

struct arena {
  int memfd, wakeup;                   /* owned */
  int doorbells[LIMIT_DEVICES];        /* owned; -1 behind `devices` */
  uint32_t generations[LIMIT_DEVICES]; /* of each device's worker; never read back from the arena */
  uint32_t published[LIMIT_DEVICES];   /* what the client has been told of them */
  uint32_t devices, entries;
  uint64_t bytes; /* of the whole memfd */
  void *rings;    /* mapped; ring_bytes of it. NULL: there is no arena */
  uint64_t ring_bytes;
};

void arena_init(struct arena *arena); /* none */
/* `tensor_bytes` are the client's; header and rings come on top, and the sum is rounded up to pages. */
MUST_CHECK enum status arena_open(struct arena *arena, uint32_t devices, uint32_t entries, uint64_t tensor_bytes,
                                  uint64_t tensor_bytes_max, struct error *error);
/* The same in a memfd of the client's, which stays the caller's: on tmpfs, sealed against shrinking and growing, of
 * exactly `bytes`. What stands where header and rings go is lost, the tensors stay. BAD_DESCRIPTOR, INVALID, TOO_LARGE.
 */
MUST_CHECK enum status arena_adopt(struct arena *arena, int memfd, uint32_t devices, uint32_t entries, uint64_t bytes,
                                   uint64_t tensor_bytes_max, struct error *error);
/* After all workers have finished with it. */
void arena_close(struct arena *arena);

/* The worker of `device` is dead and reaped. The client is not told yet: were it to submit again before the successor
 * knows its weights, it would be told that there are none. */
void arena_worker_lost(struct arena *arena, uint32_t device);
/* The worker of `device` serves: the client hears of it, and that it is another one if it is. */
void arena_worker_ready(struct arena *arena, uint32_t device);
/* The worker of `device` has gone to sleep: the client's doorbell is rung for what it submits. True where it has
 * submitted something before. */
bool arena_worker_asleep(const struct arena *arena, uint32_t device);
/* There will be no worker of `device` any more. */
void arena_worker_failed(struct arena *arena, uint32_t device);
