#include "select.h"

#include <stdlib.h>
#include <string.h>

/* ---- choosing */

int select_offers(const struct kernel_problem *problem, struct offer out[OFFERS_MOST]) {
  int count = 0;
  for (int i = 0; kernel_families[i] && count < OFFERS_MOST; i++) {
    struct offer offer = {.family = kernel_families[i]};
    if (offer.family->experts != (problem->experts > 0) || !offer.family->predict(problem, &offer.variant, &offer.us))
      continue;
    int place = count++;
    for (; place > 0 && out[place - 1].us > offer.us; place--)
      out[place] = out[place - 1];
    out[place] = offer;
  }
  return count;
}

/* The plain family offers itself always. */
static struct variant choose(struct backend *backend, const struct kernel_problem *problem) {
  struct offer offers[OFFERS_MOST];
  struct error ignored;
  int count = select_offers(problem, offers), i = 0;
  while (i < count - 1 && offers[i].family->complete &&
         offers[i].family->complete(backend, problem, &offers[i].variant, &ignored) != STATUS_OK)
    i++;
  return offers[i].variant;
}

/* ---- answers */

/* Far more than the shapes of a few models; a shape beyond them replaces one of PROBES others. */
enum { ENTRIES = 4096, PROBES = 8 };

struct key {
  uint8_t format, scale, y_type, bias_type, x_type, tiled, in_row, exact;
  int32_t n, k, experts, top;
  int64_t m;
};

struct entry {
  bool used;
  struct key key;
  struct variant variant;
};

struct selector {
  struct entry entries[ENTRIES];
};

struct selector *selector_open(void) {
  return calloc(1, sizeof(struct selector));
}

void selector_close(struct selector *selector) {
  free(selector);
}

static uint64_t key_hash(const struct key *key) {
  uint64_t words[sizeof *key / sizeof(uint64_t)], hash = 0;
  memcpy(words, key, sizeof words);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash;
}

static struct entry *entry_find(struct selector *selector, const struct key *key) {
  uint64_t hash = key_hash(key);
  for (uint64_t i = 0; i < PROBES; i++) {
    struct entry *entry = &selector->entries[(hash + i) % ENTRIES];
    if (!entry->used || memcmp(&entry->key, key, sizeof *key) == 0)
      return entry;
  }
  struct entry *replaced = &selector->entries[(hash + (hash >> 32) % PROBES) % ENTRIES];
  replaced->used = false;
  return replaced;
}

/* The rows that an answer is for. 2-bit weights in tiles are asked about as many as there are: their kernels cut them
 * up in tiles of a multiple of 8, so that beyond 32 rows as many tiles are the same. So are those of 8 bits where
 * another tile of x more or less is much of the time. */
static int64_t rows_for(const struct kernel_problem *problem, bool exact) {
  enum { TILE = 8, FEW = 32, BYTE_ROWS = 64, BYTE_ROWS_MOST = 512 };
  bool bytes = problem->format == GEMM_FORMAT_FP8 || problem->format == GEMM_FORMAT_INT8;
  if ((problem->tiled && problem->m > FEW) ||
      (bytes && !exact && problem->m > BYTE_ROWS && problem->m <= BYTE_ROWS_MOST))
    return (problem->m + TILE - 1) / TILE * TILE;
  return exact || problem->tiled ? problem->m : variant_bucket(problem->m);
}

struct variant selector_find(struct selector *selector, struct backend *backend, const struct kernel_problem *problem,
                             bool exact) {
  struct kernel_problem at = *problem;
  at.m = rows_for(problem, exact);
  struct key key = {
      .format = (uint8_t)at.format,
      .scale = (uint8_t)at.scale,
      .y_type = (uint8_t)at.y_type,
      .bias_type = (uint8_t)at.bias_type,
      .x_type = (uint8_t)(at.tiled || gemm_quantizes_x(at.format) ? at.x_type : GEMM_TYPE_NONE),
      .tiled = at.tiled,
      .in_row = at.in_row,
      .exact = exact && !at.tiled,
      .experts = (int32_t)at.experts,
      .top = (int32_t)at.top,
      .n = (int32_t)at.n, /* not as it is stored: fewer columns than 128 have kernels of their own */
      .k = (int32_t)at.k_padded,
      .m = at.m,
  };
  struct entry *entry = entry_find(selector, &key);
  if (!entry->used) {
    entry->variant = choose(backend, &at);
    entry->key = key;
    entry->used = true;
  }
  return entry->variant;
}
