#include "variants.h"

enum { THREADS, BLOCK_M, TILE_M, BLOCK_KIB, NARROWER };

static const struct variant_family cpu_family = {
    .name = "cpu",
    .count = 5,
    .parameters =
        {
            [THREADS] = {"threads", "that share the columns of y; 0: all of the backend's", 0, 256, 1, 0},
            [BLOCK_M] = {"block_m", "rows of x at a time", 1, STAGE_ROWS, 1, STAGE_ROWS},
            [TILE_M] = {"tile_m", "rows of x in registers; 0: as many as fit", 0, MICRO_ROWS, 1, 0},
            [BLOCK_KIB] = {"block_kib", "of unpacked W that tiles use in turn", 32, 256, 32, 64},
            [NARROWER] = {"narrower", "steps down from the best instruction set of this machine", 0, 5, 1, 0},
        },
};

const struct variant_family *const cpu_families[] = {&variant_plain, &cpu_family, &cpu_family_onednn, NULL};

/* Where the engine's own set stands in the table. */
static int own_set(const struct product_engine *engine) {
  int i = 0;
  while (micro_table[i] != engine->micro)
    i++;
  return i;
}

static int instruction_sets(const struct product_engine *engine) {
  int count = 0;
  for (int i = own_set(engine); micro_table[i] != NULL; i++)
    count += micro_table[i]->usable();
  return count;
}

/* The usable instruction set that is `narrower` steps below the engine's. */
static const struct micro_ops *micro_at(const struct product_engine *engine, int narrower) {
  int i = own_set(engine);
  while (!micro_table[i]->usable() || narrower-- > 0)
    i++;
  return micro_table[i];
}

struct product_way cpu_variant_way(const struct product_engine *engine, const struct variant *variant) {
  int threads = variant->values[THREADS];
  if (variant->family == &cpu_family_onednn)
    return (struct product_way){.micro = engine->micro,
                                .threads = cpu_pool_threads(engine->pool),
                                .rows = STAGE_ROWS,
                                .sizes = block_sizes_default,
                                .library = true};
  return (struct product_way){.micro = micro_at(engine, variant->values[NARROWER]),
                              .threads = threads == 0 ? cpu_pool_threads(engine->pool) : threads,
                              .rows = variant->values[BLOCK_M],
                              .sizes = {.tile_rows = variant->values[TILE_M],
                                        .block_bytes = variant->values[BLOCK_KIB] * 1024,
                                        .table_bytes = block_sizes_default.table_bytes}};
}

enum status cpu_variant_check(const struct product_engine *engine, const struct variant_problem *problem,
                              struct variant *variant, struct variant *nearest, struct error *error) {
  int threads = cpu_pool_threads(engine->pool), sets = instruction_sets(engine);
  if (variant->family == &variant_plain)
    return STATUS_OK;
  if (variant->family == &cpu_family_onednn) {
    if (nearest != NULL)
      nearest->family = NULL;
    return cpu_library_takes(engine->library, &problem->weight, cpu_stage_kind(&problem->weight, engine->micro), error);
  }
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

static struct variant variant_of(int threads, int block_m, int tile_m, int block_kib, int narrower) {
  return (struct variant){
      .family = &cpu_family,
      .values = {
          [THREADS] = threads, [BLOCK_M] = block_m, [TILE_M] = tile_m, [BLOCK_KIB] = block_kib, [NARROWER] = narrower}};
}

static int add(struct variant variant, int64_t m, struct variant *out, int count, int most) {
  bool one_block = variant.values[BLOCK_M] < STAGE_ROWS && variant.values[BLOCK_M] >= m; /* as the largest */
  bool one_tile = variant.values[TILE_M] > m;
  if (count == most || one_block || one_tile || variant_equal(&variant, &out[0]))
    return count;
  out[count] = variant;
  return count + 1;
}

/* The instruction sets that the whole product is asked of: those further down are many times slower, each in one
 * variant. */
enum { SETS_SEARCHED = 2 };

/* The whole product: blocks and tiles by doubling, everything else as it comes. */
static int add_all(const struct product_engine *engine, int64_t m, struct variant *out, int count, int most) {
  static const int tiles[] = {0, 1, 2, 4, 6, 8, 12, 16};
  const struct variant_parameter *kib = &cpu_family.parameters[BLOCK_KIB];
  int threads[9], counts = thread_counts(engine, threads);
  for (int narrower = SETS_SEARCHED; narrower < instruction_sets(engine); narrower++)
    count = add(variant_of(0, STAGE_ROWS, 0, 64, narrower), m, out, count, most);
  for (int narrower = 0; narrower < SETS_SEARCHED && narrower < instruction_sets(engine); narrower++)
    for (int t = 0; t < counts; t++)
      for (int block_m = STAGE_ROWS; block_m >= 16; block_m /= 2)
        for (size_t tile = 0; tile < sizeof tiles / sizeof *tiles && tiles[tile] <= MICRO_ROWS; tile++)
          for (int32_t size = kib->low; size <= kib->high; size += kib->step)
            count = add(variant_of(threads[t], block_m, tiles[tile], size, narrower), m, out, count, most);
  return count;
}

int cpu_variants(const struct product_engine *engine, const struct variant_problem *problem, bool all,
                 struct variant *out, int most) {
  static const struct {
    int block_m, tile_m, block_kib;
  } blocks[] = {{STAGE_ROWS, 0, 64}, {STAGE_ROWS, 0, 32}, {STAGE_ROWS, 0, 128}, {STAGE_ROWS, 8, 64}, {64, 0, 64}};
  struct product_way own = cpu_product_way(engine, &problem->weight, problem->m);
  int threads[9], counts = thread_counts(engine, threads), count = 1, sets = instruction_sets(engine);
  out[0] = variant_default(&cpu_family);
  out[0].values[THREADS] = own.threads == 1 && cpu_pool_threads(engine->pool) > 1 ? 1 : 0;
  if (all)
    count = add_all(engine, problem->m, out, count, most);
  for (int narrower = 0; !all && narrower < SETS_SEARCHED && narrower < sets; narrower++)
    for (int t = 0; t < counts; t++)
      for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++)
        count = add(variant_of(threads[t], blocks[b].block_m, blocks[b].tile_m, blocks[b].block_kib, narrower),
                    problem->m, out, count, most);
  return count;
}

int cpu_library_variants(const struct product_engine *engine, const struct variant_problem *problem,
                         struct variant *out, int most) {
  struct error error;
  enum micro_kind kind = cpu_stage_kind(&problem->weight, engine->micro);
  if (most < 1 || cpu_library_takes(engine->library, &problem->weight, kind, &error) != STATUS_OK)
    return 0;
  out[0] = variant_default(&cpu_family_onednn);
  return 1;
}
