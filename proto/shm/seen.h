/* What a process that computes by itself tells gemmd, in memory of both: a ring of the shapes that it has computed for
 * the first time, and for each device how much it computes and until when it pauses. Any thread of the process writes,
 * without a system call, and what finds no room in the ring is dropped; gemmd takes out. To gemmd all of it is
 * hostile. */
#pragma once

#include "../limits.h"
#include "../status.h"

#include <stdbool.h>
#include <stdint.h>

#define SEEN_MAGIC 0x6e656573u
#define SEEN_PAUSE_MOST_NS 3600000000000u /* a longer pause counts as one of an hour */
enum {
  SEEN_VERSION = 2,
  SEEN_ENTRIES = 256,
  SEEN_DEVICES_OFFSET = 64 + 64 + 64 + SEEN_ENTRIES * 32,
  SEEN_BYTES = SEEN_DEVICES_OFFSET + LIMIT_DEVICES * 64,
};

struct seen_entry {
  uint32_t borrow; /* of the session: which weight */
  uint32_t m;      /* rows */
  uint8_t x_type, y_type, bias_type;
};

/* In memory of SEEN_BYTES, zeroed, aligned to 64. */
void seen_init(void *memory);

/* ---- the process that computes */

/* PROTOCOL or VERSION where the memory, of `bytes`, is no such ring. */
MUST_CHECK enum status seen_check(const void *memory, uint64_t bytes, struct error *error);
/* False where there is no room. Any thread. */
bool seen_put(void *memory, const struct seen_entry *entry);
/* One more product was given to gemmd's device of that number, and a pause there is over. `memory` NULL: nothing. */
void seen_computes(void *memory, uint32_t device);
/* Nothing of this process will run on the device until `until_ns` of CLOCK_MONOTONIC; 0: the pause is over. One word a
 * device: what was said last counts. */
void seen_pause(void *memory, uint32_t device, uint64_t until_ns);

/* ---- gemmd */

struct seen_taker {
  void *memory;  /* not owned */
  uint32_t head; /* private: entries taken */
};

/* False where there is none. At most SEEN_ENTRIES are worth taking at a time: whoever puts may go on meanwhile. */
bool seen_take(struct seen_taker *taker, struct seen_entry *out);

/* Of one device. */
struct seen_device {
  uint64_t pause_until_ns; /* 0: no pause, or one that is over */
  uint64_t products;       /* given to it so far */
};

struct seen_device seen_device(const void *memory, uint32_t device, uint64_t now_ns);
