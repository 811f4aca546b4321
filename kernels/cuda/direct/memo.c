#include "memo.h"

#include "../runtime/tensor_map.h"

#include <stdlib.h>
#include <string.h>

enum { ENTRIES = 512, PROBES = 4, PATCHES = 12 };
enum { X, Y, BIAS, X_SCALE, TENSORS };

/* All that kernels and parameters depend on but addresses. No padding: it is compared as bytes. */
struct key {
  uint64_t serial; /* 0: free */
  int64_t m;
  uint64_t x_stride, y_stride;
  const struct variant_family *family;
  int32_t values[VARIANT_PARAMETERS];
  uint8_t types[3], crowded;
  uint8_t low[TENSORS]; /* of the addresses, as far as kernels may look at how they are aligned */
};
_Static_assert(sizeof(struct key) == 5 * 8 + VARIANT_PARAMETERS * 4 + 4 + TENSORS, "no padding");
_Static_assert(TENSORS == 4, "a multiple of eight bytes");

/* A word of the parameters that is a tensor's address. */
struct patch {
  uint16_t at, tensor;
};

struct memo_entry {
  struct key key;
  uint64_t addresses[TENSORS]; /* that the parameters hold */
  uint8_t seen;                /* a bit for each tensor that may change */
  bool known;                  /* how it goes is in `record` */
  uint8_t patch_count;
  struct patch patches[PATCHES];
  struct record record;
};

struct memo {
  const struct driver *driver;
  unsigned turn; /* whose place is taken where none is free */
  uint64_t maps; /* that the thread had made when recording began */
  struct record fresh;
  struct memo_entry entries[ENTRIES];
};

struct memo *memo_open(const struct driver *driver) {
  struct memo *memo = calloc(1, sizeof *memo);
  if (memo)
    memo->driver = driver;
  return memo;
}

void memo_close(struct memo *memo) {
  free(memo);
}

/* ---- finding */

static void addresses_of(const struct backend_job *job, uint64_t out[TENSORS]) {
  out[X] = (uintptr_t)job->x;
  out[Y] = (uintptr_t)job->y;
  out[BIAS] = (uintptr_t)job->bias;
  out[X_SCALE] = (uintptr_t)job->x_scale;
}

/* The first byte of an address, or that there is none: they are multiples of 16. */
static uint8_t low_of(uint64_t address) {
  return address == 0 ? 1 : (uint8_t)address;
}

static struct key key_of(const struct backend_job *job, uint64_t serial, bool crowded) {
  struct key key = {.serial = serial,
                    .m = job->m,
                    .x_stride = job->x_stride,
                    .y_stride = job->y_stride,
                    .types = {(uint8_t)job->x_type, (uint8_t)job->y_type, (uint8_t)job->bias_type},
                    .crowded = crowded};
  uint64_t addresses[TENSORS];
  if (job->variant) {
    key.family = job->variant->family;
    memcpy(key.values, job->variant->values, sizeof key.values);
  }
  addresses_of(job, addresses);
  for (int i = 0; i < TENSORS; i++)
    key.low[i] = low_of(addresses[i]);
  return key;
}

static unsigned hash_of(const struct key *key) {
  uint64_t hash = key->serial * 0x9e3779b97f4a7c15u;
  hash =
      (hash ^ (uint64_t)key->m ^ (uint64_t)key->types[0] << 32 ^ (uint64_t)key->types[1] << 40) * 0xff51afd7ed558ccdu;
  return (unsigned)(hash >> 32);
}

struct memo_entry *memo_find(struct memo *memo, const struct backend_job *job, uint64_t serial, bool crowded) {
  const struct key key = key_of(job, serial, crowded);
  unsigned first = hash_of(&key);
  struct memo_entry *entry = NULL;
  for (unsigned i = 0; i < PROBES; i++) {
    entry = &memo->entries[(first + i) % ENTRIES];
    if (memcmp(&entry->key, &key, sizeof key) == 0)
      return entry;
    if (entry->key.serial == 0)
      break;
  }
  if (entry->key.serial != 0)
    entry = &memo->entries[(first + memo->turn++ % PROBES) % ENTRIES];
  entry->key = key;
  entry->known = false;
  return entry;
}

/* ---- doing it again */

static void set(struct memo_entry *entry, const uint64_t addresses[TENSORS]) {
  for (unsigned i = 0; i < entry->patch_count; i++) {
    const struct patch *patch = &entry->patches[i];
    memcpy(entry->record.bytes + patch->at, &addresses[patch->tensor], sizeof *addresses);
  }
  memcpy(entry->addresses, addresses, sizeof entry->addresses);
}

static unsigned differing(const struct memo_entry *entry, const uint64_t addresses[TENSORS]) {
  unsigned bits = 0;
  for (unsigned i = 0; i < TENSORS; i++)
    bits |= (unsigned)(entry->addresses[i] != addresses[i]) << i;
  return bits;
}

struct record *memo_recall(struct memo_entry *entry, const struct backend_job *job) {
  uint64_t addresses[TENSORS];
  if (!entry->known)
    return NULL;
  addresses_of(job, addresses);
  unsigned changed = differing(entry, addresses);
  if ((changed & ~(unsigned)entry->seen) != 0)
    return NULL;
  if (changed != 0)
    set(entry, addresses);
  return &entry->record;
}

/* ---- learning it */

/* The words that are addresses; false where it cannot be told whose one is, or there is no room. */
static bool patches_find(struct memo_entry *entry) {
  const uint64_t *addresses = entry->addresses;
  for (int i = 0; i < TENSORS; i++)
    for (int j = 0; j < i; j++)
      if (addresses[i] != 0 && addresses[i] == addresses[j])
        return false;
  entry->patch_count = 0;
  for (uint32_t at = 0; at < entry->record.used; at += sizeof *addresses) {
    uint64_t word;
    memcpy(&word, entry->record.bytes + at, sizeof word);
    for (uint16_t i = 0; i < TENSORS && word != 0; i++) {
      if (word != addresses[i])
        continue;
      if (entry->patch_count == PATCHES)
        return false;
      entry->patches[entry->patch_count++] = (struct patch){.at = (uint16_t)at, .tensor = i};
    }
  }
  return true;
}

/* Learns from a product queued the long way in what the last one, with other addresses, was the same. */
static void compare(struct memo_entry *entry, const struct record *fresh, const uint64_t addresses[TENSORS]) {
  unsigned changed = differing(entry, addresses);
  set(entry, addresses);
  if (record_equal(&entry->record, fresh))
    entry->seen |= (uint8_t)changed;
  else
    entry->known = false;
}

void memo_begin(struct memo *memo) {
  memo->maps = tensor_maps_made();
  record_begin(&memo->fresh, memo->driver);
}

void memo_end(struct memo *memo, struct memo_entry *entry, const struct backend_job *job, bool good) {
  uint64_t addresses[TENSORS];
  record_end();
  if (!good || memo->fresh.spoiled || memo->fresh.count == 0) {
    entry->known = false;
    return;
  }
  addresses_of(job, addresses);
  /* What describes memory to the copy engine has addresses in it that no word tells. */
  bool maps = memo->maps != tensor_maps_made();
  if (entry->known && !maps)
    compare(entry, &memo->fresh, addresses);
  if (entry->known && !maps)
    return;
  record_copy(&entry->record, &memo->fresh);
  memcpy(entry->addresses, addresses, sizeof entry->addresses);
  entry->seen = 0;
  entry->known = true;
  if (maps)
    entry->patch_count = 0;
  else
    entry->known = patches_find(entry);
}
