#include "sweep.h"

#include <math.h>
#include <stdlib.h>

enum { FOUND_MOST = 1024, ALTERNATIVES = 6 };

/* What a multiprocessor does in a microsecond, about, by a warp's matrix instructions on what comes from the L2. */
#define BYTES_PER_US 4.0e4
#define OPERATIONS_PER_US 4.5e6 /* on elements of 2 bytes; twice as many on those of 1 */
#define LATENCY_US 1.6          /* of a step's copies, which the stages that are under way share */
#define STEP_US 0.05            /* of its barrier */
#define LAUNCH_US 2.0           /* of the pass that joins slices */
#define TURN_US 1.8             /* of a slice that waits for the one before it */
#define MEMORY_BYTES_PER_US 3.0e6

/* Sums of a thread: fewer leave the tensor cores waiting for fragments, more do not fit beside them. */
enum { SUMS_LEAST = 8, SUMS_MOST = 128, SERIAL_MOST = 2 };

static bool runs(const struct kernel_problem *problem, const struct variant *variant, struct tile_plan *plan) {
  struct error ignored;
  return tile_plan(problem, variant, plan, &ignored) == STATUS_OK;
}

double tile_us(const struct kernel_problem *problem, const struct variant *variant) {
  const int32_t *values = variant->values;
  struct tile_plan plan;
  if (!runs(problem, variant, &plan))
    return INFINITY;
  int64_t slices = values[TILE_SPLIT_K], blocks = plan.tiles_m * plan.tiles_n * slices;
  int64_t steps = (plan.steps + slices - 1) / slices, sms = problem->device.multiprocessors;
  int64_t fit = tile_resident(problem, variant), at_once = (blocks + sms - 1) / sms;
  int element = gemm_quantizes_x(problem->format) ? 1 : 2;
  double row = (double)values[TILE_BLOCK_K] * element, lines = values[TILE_BLOCK_M] + values[TILE_BLOCK_N];
  double sharing = (double)(at_once < fit ? at_once : fit), waves = ceil((double)blocks / (double)(sms * fit));
  double loading = sharing * lines * row / BYTES_PER_US;
  double computing = sharing * 2.0 * values[TILE_BLOCK_M] * values[TILE_BLOCK_N] * row / 2 / OPERATIONS_PER_US;
  double waiting = LATENCY_US / (values[TILE_NUM_STAGES] > 1 ? values[TILE_NUM_STAGES] - 1 : 0.5);
  double us = waves * (double)steps * (STEP_US + fmax(waiting, fmax(loading, computing))) + LATENCY_US;
  double memory = (double)problem->n_padded * (double)problem->k_padded * element / MEMORY_BYTES_PER_US;
  us = fmax(us, memory);
  if (slices > 1 && values[TILE_SPLIT_K_MODE] == TILE_SERIAL)
    us += TURN_US * (double)(slices - 1);
  else if (slices > 1)
    us += LAUNCH_US + 2.0 * (double)plan.sums_bytes / MEMORY_BYTES_PER_US;
  return us;
}

/* ---- the product of parameters, pruned */

struct found {
  struct variant variant;
  double us;
  int place; /* in the order in which they were found, which is that of equals */
};

/* In as many slices as fill the device once: those that take turns are few. */
static void fill(const struct kernel_problem *problem, struct variant *variant) {
  struct variant cut = *variant;
  struct tile_plan plan;
  for (int slices = tile_split_filling(problem, variant); slices > 1; slices /= 2) {
    cut.values[TILE_SPLIT_K] = slices;
    cut.values[TILE_SPLIT_K_MODE] = slices > SERIAL_MOST ? TILE_PARALLEL : TILE_SERIAL;
    if (runs(problem, &cut, &plan) && tile_us(problem, &cut) < tile_us(problem, variant)) {
      *variant = cut;
      return;
    }
  }
}

static int by_time(const void *left, const void *right) {
  const struct found *a = left, *b = right;
  int order = (a->us > b->us) - (a->us < b->us);
  return order != 0 ? order : (a->place > b->place) - (a->place < b->place);
}

static bool same_tile(const struct variant *a, const struct variant *b) {
  return a->values[TILE_BLOCK_M] == b->values[TILE_BLOCK_M] && a->values[TILE_BLOCK_N] == b->values[TILE_BLOCK_N];
}

/* Whether the tile is no larger than what is to be computed needs. */
static bool no_larger(int64_t have, int block, int least) {
  return block == least || have > block / 2;
}

/* Warps and stages of a tile. */
static int add_tile(const struct kernel_problem *problem, const struct variant *tile, struct found *out, int count) {
  static const int warps[] = {4, 8, 2, 1}, stages[] = {4, 3, 2, 6};
  int sums = tile->values[TILE_BLOCK_M] * tile->values[TILE_BLOCK_N] / 32;
  for (size_t w = 0; w < sizeof warps / sizeof *warps; w++)
    for (size_t s = 0; s < sizeof stages / sizeof *stages && count < FOUND_MOST; s++) {
      struct variant variant = *tile;
      struct tile_plan plan;
      variant.values[TILE_NUM_WARPS] = warps[w];
      variant.values[TILE_NUM_STAGES] = stages[s];
      if (sums / warps[w] < SUMS_LEAST || sums / warps[w] > SUMS_MOST || !runs(problem, &variant, &plan) ||
          plan.steps < stages[s] - 1)
        continue;
      fill(problem, &variant);
      out[count] = (struct found){.variant = variant, .us = tile_us(problem, &variant), .place = count};
      count++;
    }
  return count;
}

/* The best steps, warps and stages of each tile, and of the best tiles some more; `all`: whatever was found. In order.
 */
static int add_best(struct found *found, int count, bool all, struct variant *out, int at, int most) {
  int first = at, more = 0;
  qsort(found, (size_t)count, sizeof *found, by_time);
  for (int round = 0; round < 2; round++)
    for (int i = 0; i < count && at < most; i++) {
      bool has_tile = false, listed = false;
      for (int j = 0; j < at; j++) {
        has_tile |= j >= first && same_tile(&out[j], &found[i].variant);
        listed |= variant_equal(&out[j], &found[i].variant);
      }
      if (listed || (round == 0 ? has_tile || (!all && at >= most - ALTERNATIVES) : !all && more >= ALTERNATIVES))
        continue;
      more += round;
      out[at++] = found[i].variant;
    }
  return at;
}

static int add_manual(const struct kernel_problem *problem, struct variant *out, int most) {
  struct variant manual = variant_default(&tile_family), near;
  struct tile_plan plan;
  if (!runs(problem, &manual, &plan)) {
    if (!tile_nearest(problem, &manual, &near))
      return 0;
    manual = near;
  }
  int count = 0;
  out[count++] = manual;
  fill(problem, &manual);
  if (count < most && !variant_equal(&manual, &out[0]))
    out[count++] = manual;
  return count;
}

int tile_sweep(const struct kernel_problem *problem, bool all, struct variant *out, int most) {
  static const int sides[] = {16, 32, 64, 128, 256}, depths[] = {64, 128, 256}; /* bytes of K */
  enum { SIDES = sizeof sides / sizeof *sides, DEPTHS = sizeof depths / sizeof *depths };
  int limit = all ? TILE_SWEEP_ALL : TILE_SWEEP, found_count = 0;
  if (gemm_is_packed(problem->format) || most < 1)
    return 0;
  most = most < limit ? most : limit;
  int count = add_manual(problem, out, most);
  struct found *found = count > 0 ? malloc(FOUND_MOST * sizeof *found) : NULL;
  for (int i = 0; found && i < SIDES * SIDES * DEPTHS; i++) {
    struct variant tile = variant_default(&tile_family);
    int m = sides[i % SIDES], n = sides[i / SIDES % SIDES], depth = depths[i / SIDES / SIDES];
    tile.values[TILE_BLOCK_M] = m;
    tile.values[TILE_BLOCK_N] = n;
    tile.values[TILE_BLOCK_K] = gemm_quantizes_x(problem->format) ? depth : depth / 2;
    if (no_larger(problem->m, m, 16) && no_larger(problem->n_padded, n, 16))
      found_count = add_tile(problem, &tile, found, found_count);
  }
  count = found ? add_best(found, found_count, all, out, count, most) : count;
  free(found);
  return count;
}
