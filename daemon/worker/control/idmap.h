/* Numbers that the supervisor gives to slabs, weights and sessions -> what they stand for. One thread. */
#pragma once

#include "../../../proto/status.h"

#include <stddef.h>
#include <stdint.h>

struct idmap_entry {
  uint32_t id;
  void *item; /* NULL: free */
};

/* Zeros are an empty map. */
struct idmap {
  struct idmap_entry *entries; /* owned; a power of two of them */
  size_t capacity, count;
};

/* Frees the map; the items are the caller's. */
void idmap_close(struct idmap *map);
/* EXISTS, NOMEM. `item` is not NULL. */
MUST_CHECK enum status idmap_add(struct idmap *map, uint32_t id, void *item, struct error *error);
/* NULL where there is none. */
void *idmap_find(const struct idmap *map, uint32_t id);
/* Returns what was there, or NULL. */
void *idmap_remove(struct idmap *map, uint32_t id);
/* Any item that is in the map; NULL where it is empty. */
void *idmap_any(const struct idmap *map, uint32_t *id);
