#include "borrows.h"

#include "../../list.h"

#include <stdlib.h>
#include <string.h>

static const char what[] = "what the session has borrowed";

void borrows_free(struct borrows *borrows) {
  free(borrows->list);
  free(borrows->given);
  *borrows = (struct borrows){.last_id = borrows->last_id};
}

enum status borrows_add(struct borrows *borrows, struct catalog_weight *weight, uint32_t *id, struct error *error) {
  if (borrows->count >= LIMIT_SESSION_WEIGHTS || borrows->last_id == UINT32_MAX)
    return error_set(error, STATUS_TOO_LARGE, "a session may borrow %u weights", LIMIT_SESSION_WEIGHTS);
  enum status status =
      list_grow(&borrows->list, borrows->count, &borrows->capacity, sizeof *borrows->list, what, error);
  if (status != STATUS_OK)
    return status;
  *id = ++borrows->last_id;
  borrows->list[borrows->count++] = (struct borrow){.id = *id, .weight = weight};
  return STATUS_OK;
}

static size_t index_of(const struct borrows *borrows, uint32_t id) {
  size_t at = 0;
  while (at < borrows->count && borrows->list[at].id != id)
    at++;
  return at;
}

struct catalog_weight *borrows_find(const struct borrows *borrows, uint32_t id) {
  size_t at = index_of(borrows, id);
  return at < borrows->count ? borrows->list[at].weight : NULL;
}

struct catalog_weight *borrows_remove(struct borrows *borrows, uint32_t id) {
  size_t at = index_of(borrows, id);
  if (at == borrows->count)
    return NULL;
  struct catalog_weight *weight = borrows->list[at].weight;
  borrows->count--;
  memmove(&borrows->list[at], &borrows->list[at + 1], (borrows->count - at) * sizeof *borrows->list);
  return weight;
}

uint32_t borrows_of(const struct borrows *borrows, const struct catalog_weight *weight) {
  for (size_t i = 0; i < borrows->count; i++)
    if (borrows->list[i].weight == weight)
      return borrows->list[i].id;
  return 0;
}

static size_t given_at(const struct borrows *borrows, uint32_t slab) {
  size_t at = 0;
  while (at < borrows->given_count && borrows->given[at] != slab)
    at++;
  return at;
}

bool borrows_given(const struct borrows *borrows, uint32_t slab) {
  return given_at(borrows, slab) < borrows->given_count;
}

enum status borrows_give(struct borrows *borrows, uint32_t slab, struct error *error) {
  if (borrows_given(borrows, slab))
    return STATUS_OK;
  enum status status =
      list_grow(&borrows->given, borrows->given_count, &borrows->given_capacity, sizeof *borrows->given, what, error);
  if (status == STATUS_OK)
    borrows->given[borrows->given_count++] = slab;
  return status;
}

void borrows_lose(struct borrows *borrows, uint32_t slab) {
  size_t at = given_at(borrows, slab);
  if (at < borrows->given_count)
    borrows->given[at] = borrows->given[--borrows->given_count];
}
