#include "seen.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

struct header {
  uint32_t magic, version, entries, reserved[13];
};

/* `turn` is the place in the ring's endless sequence, one more once it has been filled: entry i belongs to who puts
 * where it is i, i + SEEN_ENTRIES, .., and to who takes where it is one more. */
struct slot {
  _Atomic uint32_t turn;
  uint32_t borrow, m;
  uint8_t x_type, y_type, bias_type, reserved[17];
};

struct line {
  _Atomic uint64_t products, pause_until_ns;
  uint8_t reserved[48];
};

struct ring {
  struct header header;
  _Atomic uint32_t tail;
  uint8_t reserved0[60], reserved1[64];
  struct slot slots[SEEN_ENTRIES];
  struct line devices[LIMIT_DEVICES];
};

_Static_assert(sizeof(struct slot) == 32, "entry of the ring");
_Static_assert(offsetof(struct ring, devices) == SEEN_DEVICES_OFFSET, "behind the entries");
_Static_assert(sizeof(struct ring) == SEEN_BYTES, "the ring");

void seen_init(void *memory) {
  struct ring *ring = memory;
  ring->header.version = SEEN_VERSION;
  ring->header.entries = SEEN_ENTRIES;
  for (uint32_t i = 0; i < SEEN_ENTRIES; i++)
    atomic_store_explicit(&ring->slots[i].turn, i, memory_order_relaxed);
  ring->header.magic = SEEN_MAGIC;
}

enum status seen_check(const void *memory, uint64_t bytes, struct error *error) {
  struct header header;
  if (bytes < SEEN_BYTES)
    return error_set(error, STATUS_PROTOCOL, "a ring of shapes has %d bytes, got %llu", SEEN_BYTES,
                     (unsigned long long)bytes);
  memcpy(&header, memory, sizeof header);
  if (header.magic != SEEN_MAGIC)
    return error_set(error, STATUS_PROTOCOL, "the memory is no ring of shapes");
  if (header.version != SEEN_VERSION || header.entries != SEEN_ENTRIES)
    return error_set(error, STATUS_VERSION, "the ring of shapes is of version %u, this library writes %d",
                     header.version, SEEN_VERSION);
  return STATUS_OK;
}

bool seen_put(void *memory, const struct seen_entry *entry) {
  struct ring *ring = memory;
  uint32_t at = atomic_load_explicit(&ring->tail, memory_order_relaxed);
  for (;;) {
    struct slot *slot = &ring->slots[at % SEEN_ENTRIES];
    int32_t ahead = (int32_t)(atomic_load_explicit(&slot->turn, memory_order_acquire) - at);
    if (ahead < 0)
      return false; /* nobody has taken out what is there */
    if (ahead > 0) {
      at = atomic_load_explicit(&ring->tail, memory_order_relaxed); /* another thread was faster */
      continue;
    }
    if (!atomic_compare_exchange_weak_explicit(&ring->tail, &at, at + 1, memory_order_relaxed, memory_order_relaxed))
      continue;
    slot->borrow = entry->borrow;
    slot->m = entry->m;
    slot->x_type = entry->x_type;
    slot->y_type = entry->y_type;
    slot->bias_type = entry->bias_type;
    atomic_store_explicit(&slot->turn, at + 1, memory_order_release);
    return true;
  }
}

bool seen_take(struct seen_taker *taker, struct seen_entry *out) {
  struct slot *slot = &((struct ring *)taker->memory)->slots[taker->head % SEEN_ENTRIES];
  if (atomic_load_explicit(&slot->turn, memory_order_acquire) != taker->head + 1)
    return false;
  *out = (struct seen_entry){.borrow = slot->borrow,
                             .m = slot->m,
                             .x_type = slot->x_type,
                             .y_type = slot->y_type,
                             .bias_type = slot->bias_type};
  atomic_store_explicit(&slot->turn, taker->head + SEEN_ENTRIES, memory_order_release);
  taker->head++;
  return true;
}

/* ---- devices */

void seen_computes(void *memory, uint32_t device) {
  if (memory == NULL)
    return;
  struct line *line = &((struct ring *)memory)->devices[device % LIMIT_DEVICES];
  atomic_fetch_add_explicit(&line->products, 1, memory_order_relaxed);
  if (atomic_load_explicit(&line->pause_until_ns, memory_order_relaxed) != 0)
    atomic_store_explicit(&line->pause_until_ns, 0, memory_order_relaxed);
}

void seen_pause(void *memory, uint32_t device, uint64_t until_ns) {
  struct line *line = &((struct ring *)memory)->devices[device % LIMIT_DEVICES];
  atomic_store_explicit(&line->pause_until_ns, until_ns, memory_order_relaxed);
}

struct seen_device seen_device(const void *memory, uint32_t device, uint64_t now_ns) {
  const struct line *line = &((const struct ring *)memory)->devices[device % LIMIT_DEVICES];
  uint64_t until_ns = atomic_load_explicit(&line->pause_until_ns, memory_order_relaxed);
  if (until_ns <= now_ns)
    until_ns = 0;
  else if (until_ns - now_ns > SEEN_PAUSE_MOST_NS)
    until_ns = now_ns + SEEN_PAUSE_MOST_NS;
  return (struct seen_device){.pause_until_ns = until_ns,
                              .products = atomic_load_explicit(&line->products, memory_order_relaxed)};
}
