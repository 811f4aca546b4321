/* Shapes that a process has computed for the first time by itself, told to gemmd: a ring in memory of both. Any thread
 * of the process puts something in, without a system call, and what finds no room is dropped; gemmd takes out. To gemmd
 * all of it is hostile. */
#ifndef PROTO_SHM_SEEN_H
#define PROTO_SHM_SEEN_H

#include "../status.h"

#include <stdbool.h>
#include <stdint.h>

#define SEEN_MAGIC 0x6e656573u
enum { SEEN_VERSION = 1, SEEN_ENTRIES = 256, SEEN_BYTES = 64 + 64 + 64 + SEEN_ENTRIES * 32 };

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

/* ---- gemmd */

struct seen_taker {
  void *memory;  /* not owned */
  uint32_t head; /* private: entries taken */
};

/* False where there is none. At most SEEN_ENTRIES are worth taking at a time: whoever puts may go on meanwhile. */
bool seen_take(struct seen_taker *taker, struct seen_entry *out);

#endif
