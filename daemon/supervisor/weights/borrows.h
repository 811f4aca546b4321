/* What one session has borrowed, and which slabs it was given. Pure. */
#pragma once

#include "../../../proto/limits.h"
#include "../../../proto/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct catalog_weight;

struct borrow {
  uint32_t id;                   /* never 0, never used twice */
  struct catalog_weight *weight; /* not owned: counted by catalog_weight.borrows */
};

struct borrows {
  struct borrow *list; /* owned; by id */
  size_t count, capacity;
  uint32_t last_id;
  uint32_t *given; /* owned; slabs whose descriptor the session has, in no order */
  size_t given_count, given_capacity;
};

void borrows_free(struct borrows *borrows);
/* TOO_LARGE where LIMIT_SESSION_WEIGHTS are borrowed; NOMEM. */
MUST_CHECK enum status borrows_add(struct borrows *borrows, struct catalog_weight *weight, uint32_t *id,
                                   struct error *error);
/* What was borrowed by that number, which stands for nothing from now on; NULL: nothing. */
struct catalog_weight *borrows_remove(struct borrows *borrows, uint32_t id);
/* What was borrowed by that number; NULL: nothing. */
struct catalog_weight *borrows_find(const struct borrows *borrows, uint32_t id);
/* A borrow of the weight; 0: there is none. */
uint32_t borrows_of(const struct borrows *borrows, const struct catalog_weight *weight);

bool borrows_given(const struct borrows *borrows, uint32_t slab);
MUST_CHECK enum status borrows_give(struct borrows *borrows, uint32_t slab, struct error *error);
/* The session does not have it any more. */
void borrows_lose(struct borrows *borrows, uint32_t slab);
