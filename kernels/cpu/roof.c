#include "roof.h"

#include "product/stage.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
  PASSES = 16, /* of which the fastest counts: others may use the machine, too */
  CACHES = 4,  /* what is read is so many times as large as the last cache, and read in so many parts in turn */
  PATH_BYTES = 4096,
};
#define LEAST_BYTES ((int64_t)64 << 20)
#define MOST_BYTES ((int64_t)256 << 20)
#define SPIN_NS 500000

/* Everything is timed by the processor time of its own thread: what others on the machine take is no part of it. All
 * threads run a pass at the same time, and add what each of them gets a second. */
struct passes {
  struct cpu_pool *pool;
  _Atomic uint64_t per_s[PASSES];
};

static uint64_t thread_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void meet(struct cpu_pool *pool, int parts) {
  if (parts > 1) {
    cpu_pool_meet(pool);
  }
}

/* `amount` since `begin`. */
static void add(struct passes *passes, int pass, double amount, uint64_t begin) {
  uint64_t ns = thread_ns() - begin;
  atomic_fetch_add(&passes->per_s[pass], (uint64_t)(amount * 1e9 / (double)(ns > 0 ? ns : 1)));
}

static uint64_t fastest(const struct passes *passes) {
  uint64_t most = 0;
  for (int pass = 0; pass < PASSES; pass++) {
    uint64_t per_s = atomic_load(&passes->per_s[pass]);
    most = per_s > most ? per_s : most;
  }
  return most;
}

/* ---- memory */

struct reading {
  struct passes passes; /* bytes */
  uint64_t *memory;
  int64_t lines; /* of 64 bytes */
};

static uint64_t sum_lines(const uint64_t *from, int64_t lines) {
  enum { WORDS = 8, AHEAD = 512 };
  uint64_t sum[WORDS] = {0};
  for (int64_t line = 0; line < lines; line++, from += WORDS) {
    __builtin_prefetch(from + AHEAD);
    for (int i = 0; i < WORDS; i++) {
      sum[i] += from[i];
    }
  }
  return sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7];
}

static void read_part(void *context, int part, int parts) {
  struct reading *reading = context;
  int64_t own = reading->lines / parts, lines = own / CACHES;
  uint64_t *memory = reading->memory + 8 * own * part;
  memset(memory, 1, (size_t)own * 64); /* pages are where they are read */
  for (int pass = 0; pass < PASSES; pass++) {
    meet(reading->passes.pool, parts);
    uint64_t first = thread_ns();
    uint64_t sum = sum_lines(memory + 8 * lines * (pass % CACHES), lines);
    __asm__ volatile("" : : "r"(sum));
    add(&reading->passes, pass, 64 * (double)lines, first);
  }
}

static uint64_t measure_memory(struct cpu_pool *pool) {
  long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  int64_t bytes = cache > 0 ? CACHES * (int64_t)cache : LEAST_BYTES;
  bytes = bytes < LEAST_BYTES ? LEAST_BYTES : bytes > MOST_BYTES ? MOST_BYTES : bytes;
  void *memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return 0;
  }
  (void)madvise(memory, (size_t)bytes, MADV_HUGEPAGE);
  struct reading reading = {.passes.pool = pool, .memory = memory, .lines = bytes / 64};
  cpu_pool_run(pool, cpu_pool_threads(pool), read_part, &reading);
  munmap(memory, (size_t)bytes);
  return fastest(&reading.passes);
}

/* ---- arithmetic */

struct spinning {
  struct passes passes; /* products and additions, as one */
  int64_t (*spin)(int64_t rounds);
};

/* Rounds that take about as long as one pass should. */
static int64_t calibrate(int64_t (*spin)(int64_t rounds)) {
  for (int64_t rounds = 1024;; rounds *= 2) {
    uint64_t first = thread_ns();
    spin(rounds);
    if (thread_ns() - first > SPIN_NS / 2) {
      return rounds;
    }
  }
}

static void spin_part(void *context, int part, int parts) {
  struct spinning *spinning = context;
  int64_t rounds = calibrate(spinning->spin);
  for (int pass = 0; pass < PASSES; pass++) {
    meet(spinning->passes.pool, parts);
    uint64_t first = thread_ns();
    int64_t terms = spinning->spin(rounds);
    add(&spinning->passes, pass, (double)terms, first);
  }
}

static uint64_t measure_spin(struct cpu_pool *pool, int64_t (*spin)(int64_t rounds)) {
  struct spinning spinning = {.passes.pool = pool, .spin = spin};
  cpu_pool_run(pool, cpu_pool_threads(pool), spin_part, &spinning);
  return 2 * fastest(&spinning.passes);
}

/* What products with this format multiply with. */
static int spin_of(enum gemm_format format, const struct micro_ops *micro) {
  const struct gemm_weight shape = {.format = format};
  if (format == GEMM_FORMAT_INT2 && micro->lookup != NULL) {
    return MICRO_SPIN_LOOKUP;
  }
  if (format == GEMM_FORMAT_INT4A8) {
    return MICRO_SPIN_CODES;
  }
  if (format == GEMM_FORMAT_INT2A8) {
    return micro->groups_codes2 != NULL ? MICRO_SPIN_CODES : MICRO_INTEGER;
  }
  return (int)cpu_stage_kind(&shape, micro);
}

static void measure(struct cpu_pool *pool, const struct micro_ops *micro, struct backend_roof *out) {
  uint64_t rates[MICRO_SPINS] = {0};
  for (int i = 0; i < MICRO_SPINS; i++) {
    rates[i] = micro->spin[i] != NULL ? measure_spin(pool, micro->spin[i]) : 0;
  }
  for (int format = 1; format < GEMM_FORMATS; format++) {
    out->operations_per_s[format] = rates[spin_of((enum gemm_format)format, micro)];
  }
  out->bytes_per_s = measure_memory(pool);
}

/* ---- what is kept */

static bool load(const char *path, struct backend_roof *out) {
  FILE *file = fopen(path, "re");
  if (file == NULL) {
    return false;
  }
  bool ok = fscanf(file, "%" SCNu64, &out->bytes_per_s) == 1;
  for (int format = 1; ok && format < GEMM_FORMATS; format++) {
    ok = fscanf(file, "%" SCNu64, &out->operations_per_s[format]) == 1 && out->operations_per_s[format] > 0;
  }
  fclose(file);
  return ok && out->bytes_per_s > 0;
}

/* Whoever finds only a part of it measures again, and so does who finds nothing. */
static void save(const char *path, const struct backend_roof *roof) {
  char temporary[PATH_BYTES + 16];
  snprintf(temporary, sizeof(temporary), "%s.%ld", path, (long)getpid());
  FILE *file = fopen(temporary, "we");
  if (file == NULL) {
    return;
  }
  fprintf(file, "%" PRIu64 "\n", roof->bytes_per_s);
  for (int format = 1; format < GEMM_FORMATS; format++) {
    fprintf(file, "%" PRIu64 "\n", roof->operations_per_s[format]);
  }
  if (fclose(file) != 0 || rename(temporary, path) != 0) {
    (void)unlink(temporary);
  }
}

void cpu_roof(struct cpu_pool *pool, const struct micro_ops *micro, const char *state_dir, const char *identity,
              struct backend_roof *out) {
  char path[PATH_BYTES];
  bool kept = state_dir != NULL && state_dir[0] != 0 &&
              snprintf(path, sizeof(path), "%s/roof-%s", state_dir, identity) < (int)sizeof(path);
  *out = (struct backend_roof){0};
  if (kept && load(path, out)) {
    return;
  }
  *out = (struct backend_roof){0};
  measure(pool, micro, out);
  if (kept) {
    (void)mkdir(state_dir, 0750);
    save(path, out);
  }
}
