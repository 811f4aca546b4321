#include "variants.h"

enum { THREADS, BLOCK_M, NARROWER };

static const struct variant_family cpu_family = {
    .name = "cpu",
    .count = 3,
    .parameters =
        {
            [THREADS] = {"threads", "that share the columns of y; 0: all of the backend's", 0, 256, 1, 0},
            [BLOCK_M] = {"block_m", "rows of x at a time", 1, MICRO_ROWS, 1, MICRO_ROWS},
            [NARROWER] = {"narrower", "steps down from the widest vectors of this machine", 0, 2, 1, 0},
        },
};

const struct variant_family *const cpu_families[] = {&variant_plain, &cpu_family, NULL};

static int instruction_sets(void) {
  int count = 0;
  for (int i = 0; micro_table[i] != NULL; i++)
    count += micro_table[i]->usable();
  return count;
}

/* The usable instruction set that is `narrower` steps below the widest. */
static const struct micro_ops *micro_at(int narrower) {
  int i = 0;
  while (!micro_table[i]->usable() || narrower-- > 0)
    i++;
  return micro_table[i];
}

struct product_way cpu_variant_way(const struct product_engine *engine, const struct variant *variant) {
  int threads = variant->values[THREADS];
  return (struct product_way){.micro = micro_at(variant->values[NARROWER]),
                              .threads = threads == 0 ? cpu_pool_threads(engine->pool) : threads,
                              .rows = variant->values[BLOCK_M]};
}

enum status cpu_variant_check(const struct product_engine *engine, const struct variant_problem *problem,
                              struct variant *variant, struct variant *nearest, struct error *error) {
  int threads = cpu_pool_threads(engine->pool), sets = instruction_sets();
  (void)problem;
  if (variant->family == &variant_plain)
    return STATUS_OK;
  struct variant close = *variant;
  close.values[THREADS] = close.values[THREADS] > threads ? threads : close.values[THREADS];
  close.values[NARROWER] = close.values[NARROWER] >= sets ? sets - 1 : close.values[NARROWER];
  if (nearest != NULL)
    *nearest = close;
  if (close.values[THREADS] != variant->values[THREADS])
    return error_set(error, STATUS_UNSUPPORTED, "threads must be 0..%d, the backend's, got %d", threads,
                     (int)variant->values[THREADS]);
  if (close.values[NARROWER] != variant->values[NARROWER])
    return error_set(error, STATUS_UNSUPPORTED, "narrower must be 0..%d, this machine has %d instruction sets, got %d",
                     sets - 1, sets, (int)variant->values[NARROWER]);
  return STATUS_OK;
}

/* 0 (all), then halves down to 1. */
static int thread_counts(const struct product_engine *engine, int out[9]) {
  int count = 0;
  out[count++] = 0;
  for (int threads = cpu_pool_threads(engine->pool) / 2; threads > 0; threads /= 2)
    out[count++] = threads;
  return count;
}

int cpu_variants(const struct product_engine *engine, const struct variant_problem *problem, bool all,
                 struct variant *out, int most) {
  static const int blocks[] = {MICRO_ROWS, 32, 16, 8, 4};
  struct product_way own = cpu_product_way(engine, &problem->weight, problem->m);
  int threads[9], counts = thread_counts(engine, threads), count = 0;
  out[count] = variant_default(&cpu_family);
  out[count++].values[THREADS] = own.threads == 1 && cpu_pool_threads(engine->pool) > 1 ? 1 : 0;
  for (int narrower = 0; narrower < (all ? instruction_sets() : 2) && narrower < instruction_sets(); narrower++)
    for (int t = 0; t < counts; t++)
      for (size_t b = 0; b < sizeof blocks / sizeof *blocks && count < most; b++) {
        struct variant next = variant_default(&cpu_family);
        next.values[THREADS] = threads[t];
        next.values[BLOCK_M] = blocks[b];
        next.values[NARROWER] = narrower;
        bool same = blocks[b] < MICRO_ROWS && blocks[b] >= problem->m; /* one block of all rows either way */
        if (!same && !variant_equal(&next, &out[0]))
          out[count++] = next;
      }
  return count;
}
