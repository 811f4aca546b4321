#include "idmap.h"

#include <stdlib.h>
#include <string.h>

enum { IDMAP_FIRST_CAPACITY = 16 };

/* Open addressing with linear probing, at most half full. The ids count upwards, so that the low bits spread well. */
static size_t place(const struct idmap *map, uint32_t id) {
  size_t at = id & (map->capacity - 1);
  while (map->entries[at].item != NULL && map->entries[at].id != id)
    at = (at + 1) & (map->capacity - 1);
  return at;
}

void idmap_close(struct idmap *map) {
  free(map->entries);
  memset(map, 0, sizeof *map);
}

static enum status grow(struct idmap *map, struct error *error) {
  struct idmap larger = {.capacity = map->capacity == 0 ? IDMAP_FIRST_CAPACITY : map->capacity * 2,
                         .count = map->count};
  larger.entries = calloc(larger.capacity, sizeof *larger.entries);
  if (larger.entries == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for a table of %zu entries", larger.capacity);
  for (size_t i = 0; i < map->capacity; i++)
    if (map->entries[i].item != NULL)
      larger.entries[place(&larger, map->entries[i].id)] = map->entries[i];
  free(map->entries);
  *map = larger;
  return STATUS_OK;
}

enum status idmap_add(struct idmap *map, uint32_t id, void *item, struct error *error) {
  if (idmap_find(map, id) != NULL)
    return error_set(error, STATUS_EXISTS, "number %u is in use", id);
  if (map->count * 2 >= map->capacity) {
    enum status status = grow(map, error);
    if (status != STATUS_OK)
      return status;
  }
  map->entries[place(map, id)] = (struct idmap_entry){.id = id, .item = item};
  map->count++;
  return STATUS_OK;
}

void *idmap_find(const struct idmap *map, uint32_t id) {
  return map->count == 0 ? NULL : map->entries[place(map, id)].item;
}

void *idmap_remove(struct idmap *map, uint32_t id) {
  if (map->count == 0)
    return NULL;
  size_t hole = place(map, id);
  void *item = map->entries[hole].item;
  if (item == NULL)
    return NULL;
  map->entries[hole].item = NULL;
  map->count--;
  /* What follows may have been pushed behind the hole by what stood there: put the rest of the run back in place. */
  for (size_t at = (hole + 1) & (map->capacity - 1); map->entries[at].item != NULL;
       at = (at + 1) & (map->capacity - 1)) {
    struct idmap_entry entry = map->entries[at];
    map->entries[at].item = NULL;
    map->entries[place(map, entry.id)] = entry;
  }
  return item;
}

void *idmap_any(const struct idmap *map, uint32_t *id) {
  for (size_t i = 0; map->count > 0 && i < map->capacity; i++)
    if (map->entries[i].item != NULL) {
      *id = map->entries[i].id;
      return map->entries[i].item;
    }
  return NULL;
}
