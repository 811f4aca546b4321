#include "launches.h"

#include <stdlib.h>
#include <string.h>

static int graphs_of_each(int streams) {
  int share = LAUNCHES_GRAPHS_ALL / streams;
  return share < LAUNCHES_GRAPHS_LEAST ? LAUNCHES_GRAPHS_LEAST : share > LAUNCHES_GRAPHS ? LAUNCHES_GRAPHS : share;
}

void launches_open(struct launches *launches, const struct launch_ops *ops, void *stream, int streams) {
  memset(launches, 0, sizeof *launches);
  launches->ops = ops;
  launches->stream = stream;
  launches->graphs_most = graphs_of_each(streams);
}

/* ---- what was launched before */

static uint32_t room_for(uint32_t bytes) {
  return (bytes + LAUNCH_ALIGN - 1) / LAUNCH_ALIGN * LAUNCH_ALIGN;
}

static uint32_t bytes_of(const struct launch *launch) {
  uint32_t bytes = 0;
  for (uint32_t i = 0; i < launch->parameter_count; i++)
    bytes += room_for(launch->parameter_bytes[i]);
  return bytes;
}

static uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 29);
}

static uint64_t key_of(const struct launches *launches) {
  uint64_t hash = mix(launches->key, (uint64_t)launches->count);
  for (int i = 0; i < launches->count; i++) {
    const struct launch *launch = &launches->held[i];
    hash = mix(hash, (uintptr_t)launch->function);
    hash = mix(hash, (uint64_t)launch->cluster[0] << 32 | launch->cluster[1] << 16 | launch->cluster[2]);
  }
  return hash == 0 ? 1 : hash;
}

/* What cannot be set anew. */
static bool same_form(const struct launch *a, const struct launch *b) {
  return a->function == b->function && memcmp(a->cluster, b->cluster, sizeof a->cluster) == 0 &&
         a->dependent == b->dependent && a->cooperative == b->cooperative && a->parameter_count == b->parameter_count &&
         memcmp(a->parameter_bytes, b->parameter_bytes, sizeof a->parameter_bytes) == 0;
}

static bool fits(const struct launches *launches, const struct launches_known *known) {
  if (!known->graph || known->count != launches->count)
    return false;
  for (int i = 0; i < known->count; i++)
    if (!same_form(&known->launches[i], &launches->held[i]))
      return false;
  return true;
}

static struct launches_known *find(struct launches *launches, uint64_t key) {
  for (int i = 0; i < LAUNCHES_GRAPHS; i++)
    if (launches->keys[i] == key && fits(launches, &launches->known[i]))
      return &launches->known[i];
  return NULL;
}

/* The one that was not used for longest, of those that fit or of all. */
static struct launches_known *oldest(struct launches *launches, bool fitting) {
  struct launches_known *oldest = NULL;
  for (int i = 0; i < launches->graphs_most; i++) {
    struct launches_known *known = &launches->known[i];
    if ((!fitting || fits(launches, known)) && (!oldest || known->used_at < oldest->used_at))
      oldest = known;
  }
  return oldest;
}

static void drop(struct launches *launches, struct launches_known *known) {
  if (known->graph) {
    launches->ops->drop(known->graph);
    atomic_fetch_sub_explicit(&launches->graphs, 1, memory_order_relaxed);
  }
  free(known->launches);
  free(known->bytes);
  *known = (struct launches_known){.graph = NULL};
  launches->keys[known - launches->known] = 0;
}

void launches_close(struct launches *launches) {
  for (int i = 0; i < LAUNCHES_GRAPHS; i++)
    drop(launches, &launches->known[i]);
}

/* ---- graphs */

/* What is queued once and never again is not worth one. */
static bool seen_before(struct launches *launches, uint64_t key) {
  for (int i = 0; i < LAUNCHES_SEEN; i++)
    if (launches->seen[i] == key)
      return true;
  launches->seen[launches->seen_next++ % LAUNCHES_SEEN] = key;
  return false;
}

static void make(struct launches *launches, struct launches_known *known) {
  void *const *values[LAUNCHES_HELD];
  size_t list_bytes = (size_t)launches->count * sizeof *known->launches;
  for (int i = 0; i < launches->count; i++)
    values[i] = launches->values[i];
  known->launches = malloc(list_bytes);
  known->bytes = malloc(launches->used);
  if (!known->launches || !known->bytes ||
      launches->ops->make(launches->stream, launches->held, values, launches->count, &known->graph) != 0) {
    known->graph = NULL;
    launches->refused = true;
    return;
  }
  atomic_fetch_add_explicit(&launches->graphs, 1, memory_order_relaxed);
  known->count = launches->count;
  memcpy(known->launches, launches->held, list_bytes);
  memcpy(known->bytes, launches->bytes, launches->used);
}

/* A graph for what is held that has none: where there is no more room, one of the same form is turned to it, and one of
 * another form goes only if it has not been used for long: making one takes as long as several launches. */
static struct launches_known *take(struct launches *launches, uint64_t key) {
  if (!seen_before(launches, key))
    return NULL;
  struct launches_known *known = oldest(launches, false);
  if (known->graph) {
    struct launches_known *fitting = oldest(launches, true);
    if (!fitting && launches->clock - known->used_at < LAUNCHES_PATIENCE)
      return NULL;
    known = fitting ? fitting : known;
  }
  if (!fits(launches, known)) {
    drop(launches, known);
    make(launches, known);
  }
  if (!known->graph)
    return NULL;
  launches->keys[known - launches->known] = key;
  return known;
}

static bool same_size(const struct launch *a, const struct launch *b) {
  return memcmp(a->grid, b->grid, sizeof a->grid) == 0 && memcmp(a->block, b->block, sizeof a->block) == 0 &&
         a->shared_bytes == b->shared_bytes;
}

/* Sets anew what differs. */
static bool update(struct launches *launches, struct launches_known *known) {
  uint32_t at = 0;
  for (int i = 0; i < known->count; i++) {
    struct launch *have = &known->launches[i];
    const struct launch *want = &launches->held[i];
    uint32_t bytes = bytes_of(want);
    if (!same_size(have, want) || memcmp(known->bytes + at, launches->bytes + at, bytes) != 0) {
      if (launches->ops->set(known->graph, i, want, launches->values[i]) != 0)
        return false;
      *have = *want;
      memcpy(known->bytes + at, launches->bytes + at, bytes);
    }
    at += bytes;
  }
  return true;
}

static struct launches_known *graph_for(struct launches *launches) {
  if (launches->refused || launches->count < 2)
    return NULL;
  uint64_t key = key_of(launches);
  struct launches_known *known = find(launches, key);
  if (!known)
    known = take(launches, key);
  if (!known)
    return NULL;
  known->used_at = launches->clock;
  if (update(launches, known))
    return known;
  drop(launches, known);
  return NULL;
}

/* ---- holding */

static void note(struct launches *launches, int result) {
  if (launches->result == 0)
    launches->result = result;
}

void launches_start(struct launches *launches) {
  if (launches->count == 0)
    return;
  launches->clock++;
  struct launches_known *known = launches->result == 0 ? graph_for(launches) : NULL;
  if (known)
    note(launches, launches->ops->run(known->graph, launches->stream));
  for (int i = 0; !known && i < launches->count && launches->result == 0; i++)
    note(launches, launches->ops->launch(launches->stream, &launches->held[i], launches->values[i]));
  launches->count = 0;
  launches->used = 0;
}

void launches_hold(struct launches *launches, uint64_t key) {
  launches->key = key;
  launches->result = 0;
}

int launches_release(struct launches *launches) {
  launches_start(launches);
  return launches->result;
}

void launches_add(struct launches *launches, const struct launch *launch, void **values) {
  uint32_t bytes = bytes_of(launch);
  if (launches->count == LAUNCHES_HELD || launches->used + bytes > LAUNCHES_BYTES)
    launches_start(launches);
  int place = launches->count++;
  launches->held[place] = *launch;
  for (uint32_t i = 0; i < launch->parameter_count; i++) {
    uint8_t *copy = launches->bytes + launches->used;
    uint32_t room = room_for(launch->parameter_bytes[i]);
    memcpy(copy, values[i], launch->parameter_bytes[i]);
    memset(copy + launch->parameter_bytes[i], 0, room - launch->parameter_bytes[i]);
    launches->values[place][i] = copy;
    launches->used += room;
  }
}
