/* Which kernel computes a product: what gemmd has published for the shape, looked up once for each weight, bucket of
 * rows and types, and again when the table has changed. What is computed for the first time is told to gemmd. */
#include "tuned.h"

#include "../../proto/shm/seen.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* ---- memory of gemmd's: the session's thread opens it, any thread reads the two atomic pointers */

/* Memory of a gemmd that is gone stays until the end: another thread may be reading it. */
struct told {
  struct told *next;
  void *memory; /* owned mapping */
  uint64_t bytes;
  struct published table; /* unless it is a ring */
};

static struct told *told_map(struct gemmd_direct *direct, int fd, uint64_t bytes, int protection) {
  struct told *told = calloc(1, sizeof *told);
  void *memory = told != NULL ? mmap(NULL, bytes, protection, MAP_SHARED, fd, 0) : MAP_FAILED;
  close(fd);
  if (memory == MAP_FAILED) {
    free(told);
    return NULL;
  }
  *told = (struct told){.next = direct->told, .memory = memory, .bytes = bytes};
  direct->told = told;
  return told;
}

/* Of a gemmd that publishes nothing there is none. */
static struct told *table_open(struct gemmd_direct *direct) {
  struct error ignored;
  uint64_t bytes;
  int fd;
  if (gemmd_tunings_open(direct->session, direct->device, &fd, &bytes) != GEMMD_OK)
    return NULL;
  struct told *told = told_map(direct, fd, bytes, PROT_READ);
  return told != NULL && published_open(&told->table, told->memory, bytes, &ignored) == STATUS_OK ? told : NULL;
}

static void *ring_open(struct gemmd_direct *direct) {
  struct error ignored;
  uint64_t bytes;
  int fd;
  if (gemmd_shapes_open(direct->session, &fd, &bytes) != GEMMD_OK)
    return NULL;
  struct told *told = told_map(direct, fd, bytes, PROT_READ | PROT_WRITE);
  return told != NULL && seen_check(told->memory, bytes, &ignored) == STATUS_OK ? told->memory : NULL;
}

void tuned_refresh(struct gemmd_direct *direct, unsigned device) {
  uint32_t resumes = gemmd_resumes(direct->session);
  if (!direct->asked || direct->resumes != resumes || direct->device != device) {
    direct->device = device;
    struct told *table = table_open(direct);
    void *ring = ring_open(direct);
    atomic_store_explicit(&direct->table, table, memory_order_release);
    atomic_store_explicit(&direct->ring, ring, memory_order_release);
  }
  direct->asked = true;
  direct->resumes = resumes;
  struct gemmd_direct_weight *weight;
  LIST_FOREACH (weight, &direct->weights, link)
    atomic_store_explicit(&weight->number, gemmd_borrowed_number(weight->borrowed), memory_order_relaxed);
}

/* Both numbers only grow. */
static uint64_t generation_of(const struct gemmd_direct *direct, const struct told *table) {
  return (table != NULL ? published_generation(&table->table) : 0) +
         atomic_load_explicit(&direct->found, memory_order_acquire);
}

uint64_t gemmd_direct_generation(const gemmd_direct *direct) {
  return generation_of(direct, atomic_load_explicit(&direct->table, memory_order_acquire));
}

/* ---- what gemmd is told */

void tuned_computes(const struct gemmd_direct_weight *weight) {
  seen_computes(atomic_load_explicit(&weight->direct->ring, memory_order_acquire), weight->device);
}

void gemmd_direct_quiet(gemmd_direct *direct, uint32_t milliseconds) {
  void *ring = atomic_load_explicit(&direct->ring, memory_order_acquire);
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
  if (ring != NULL)
    seen_pause(ring, direct->device, milliseconds > 0 ? now_ns + (uint64_t)milliseconds * 1000000u : 0);
}

/* ---- what this process has found */

struct finding {
  struct finding *next;
  struct variant_problem problem;
  struct variant variant;
};

/* Under the lock. */
static struct finding *finding_of(const struct gemmd_direct *direct, const struct variant_problem *problem) {
  struct finding *finding = direct->findings;
  while (finding != NULL && !variant_problem_equal(&finding->problem, problem))
    finding = finding->next;
  return finding;
}

enum status tuned_set(struct gemmd_direct *direct, const struct variant_problem *problem, const struct variant *variant,
                      struct error *error) {
  void *saved = direct_enter(direct);
  struct finding *finding = finding_of(direct, problem);
  if (finding == NULL && (finding = calloc(1, sizeof *finding)) != NULL) {
    finding->next = direct->findings;
    direct->findings = finding;
  }
  if (finding != NULL) {
    finding->problem = *problem;
    finding->variant = *variant;
    atomic_fetch_add_explicit(&direct->found, 1, memory_order_release);
  }
  direct_leave(direct, saved);
  return finding != NULL ? STATUS_OK : error_set(error, STATUS_NOMEM, "no memory for a kernel that was found");
}

static void findings_forget(struct gemmd_direct *direct) {
  while (direct->findings != NULL) {
    struct finding *finding = direct->findings;
    direct->findings = finding->next;
    free(finding);
  }
}

void tuned_close(struct gemmd_direct *direct) {
  findings_forget(direct);
  while (direct->told != NULL) {
    struct told *told = direct->told;
    direct->told = told->next;
    munmap(told->memory, told->bytes);
    free(told);
  }
}

/* ---- choices */

struct tuned {
  uint64_t key;
  _Atomic uint64_t generation; /* of the table that it was looked up in, */
  const struct told *_Atomic table;
  bool has; /* else the backend chooses */
  struct variant variant;
  struct tuned *older; /* of the weight */
};

enum { PROBES = 4 };

static uint64_t key_of(const struct variant_problem *problem) {
  return (uint64_t)problem->m << 9 | (uint64_t)problem->x_type << 6 | (uint64_t)problem->y_type << 3 |
         (uint64_t)problem->bias_type;
}

static struct tuned *_Atomic *place_of(struct gemmd_direct_weight *weight, uint64_t key, unsigned probe) {
  return &weight->tuned[((key * 0x9e3779b97f4a7c15u >> 56) + probe) % TUNED_PLACES];
}

static struct tuned *find(struct gemmd_direct_weight *weight, uint64_t key) {
  for (unsigned probe = 0; probe < PROBES; probe++) {
    struct tuned *tuned = atomic_load_explicit(place_of(weight, key, probe), memory_order_acquire);
    if (tuned == NULL || tuned->key == key)
      return tuned;
  }
  return NULL;
}

/* Where nothing is free, the first gives way; it stays for who still uses it. */
static void keep(struct gemmd_direct_weight *weight, struct tuned *tuned) {
  unsigned probe = 0;
  for (unsigned i = 0; i < PROBES; i++) {
    struct tuned *other = atomic_load_explicit(place_of(weight, tuned->key, i), memory_order_relaxed);
    if (other == NULL || other->key == tuned->key) {
      probe = i;
      break;
    }
  }
  tuned->older = weight->tuned_all;
  weight->tuned_all = tuned;
  atomic_store_explicit(place_of(weight, tuned->key, probe), tuned, memory_order_release);
}

/* What this process can launch of a row: built-in kernels of the same name, a library's where it is the same one. */
static const char *usable(const struct gemmd_direct *direct, const struct published_row *row) {
  bool same = strcmp(row->identity, direct->info.identity) == 0;
  bool itself = row->kind == PUBLISHED_BUILT_IN || (row->kind == PUBLISHED_LIBRARY && same);
  return itself ? row->kernel : row->built_in;
}

static bool published_kernel(struct gemmd_direct *direct, const struct told *table,
                             const struct variant_problem *problem, struct variant *out) {
  char shape[VARIANT_TEXT_BYTES];
  struct published_row row;
  struct error ignored;
  if (table == NULL || !published_find(&table->table, variant_problem_text(problem, shape), &row))
    return false;
  const char *text = usable(direct, &row);
  return *text != '\0' && variant_parse(direct->ops->families, text, out, &ignored) == STATUS_OK &&
         out->family != NULL &&
         direct->ops->variant_check(direct->backend, problem, out, NULL, &ignored) == STATUS_OK &&
         (direct->ops->variant_foreign == NULL || !direct->ops->variant_foreign(out));
}

/* Under the lock. */
static bool look_up(struct gemmd_direct *direct, const struct told *table, const struct variant_problem *problem,
                    struct variant *out) {
  const struct finding *finding = finding_of(direct, problem);
  if (finding != NULL) {
    *out = finding->variant;
    return true;
  }
  return published_kernel(direct, table, problem, out);
}

bool tuned_current(struct gemmd_direct *direct, const struct variant_problem *problem, struct variant *out) {
  void *saved = direct_enter(direct);
  bool has = look_up(direct, atomic_load_explicit(&direct->table, memory_order_acquire), problem, out);
  direct_leave(direct, saved);
  return has;
}

static void tell(struct gemmd_direct_weight *weight, const struct variant_problem *problem) {
  void *ring = atomic_load_explicit(&weight->direct->ring, memory_order_acquire);
  const struct seen_entry entry = {.borrow = atomic_load_explicit(&weight->number, memory_order_relaxed),
                                   .m = (uint32_t)problem->m,
                                   .x_type = (uint8_t)problem->x_type,
                                   .y_type = (uint8_t)problem->y_type,
                                   .bias_type = (uint8_t)problem->bias_type};
  if (ring != NULL && entry.borrow != 0)
    (void)seen_put(ring, &entry);
}

/* Under the lock. `before`, of the same key, may be NULL. */
static struct tuned *renew(struct gemmd_direct_weight *weight, const struct variant_problem *problem, uint64_t key,
                           struct tuned *before) {
  struct gemmd_direct *direct = weight->direct;
  const struct told *table = atomic_load_explicit(&direct->table, memory_order_acquire);
  uint64_t generation = generation_of(direct, table);
  struct variant variant = {.family = NULL};
  bool has = look_up(direct, table, problem, &variant);
  if (before == NULL || before->has != has || (has && !variant_equal(&before->variant, &variant))) {
    struct tuned *made = calloc(1, sizeof *made);
    if (made == NULL)
      return before;
    made->key = key;
    made->has = has;
    made->variant = variant;
    atomic_store_explicit(&made->generation, generation, memory_order_relaxed);
    atomic_store_explicit(&made->table, table, memory_order_relaxed);
    keep(weight, made);
    return made;
  }
  atomic_store_explicit(&before->table, table, memory_order_relaxed);
  atomic_store_explicit(&before->generation, generation, memory_order_release);
  return before;
}

const struct variant *tuned_find(struct gemmd_direct_weight *weight, int64_t m, enum gemm_type x_type,
                                 enum gemm_type y_type, enum gemm_type bias_type) {
  struct gemmd_direct *direct = weight->direct;
  const struct variant_problem problem = {
      .weight = weight->shape, .m = variant_bucket(m), .x_type = x_type, .y_type = y_type, .bias_type = bias_type};
  const struct told *table = atomic_load_explicit(&direct->table, memory_order_acquire);
  uint64_t key = key_of(&problem);
  struct tuned *tuned = find(weight, key);
  if (tuned == NULL || atomic_load_explicit(&tuned->generation, memory_order_acquire) != generation_of(direct, table) ||
      atomic_load_explicit(&tuned->table, memory_order_relaxed) != table) {
    bool first = tuned == NULL;
    void *saved = direct_enter(direct);
    tuned = renew(weight, &problem, key, find(weight, key));
    direct_leave(direct, saved);
    if (first)
      tell(weight, &problem);
  }
  return tuned != NULL && tuned->has ? &tuned->variant : NULL;
}

void tuned_forget(struct gemmd_direct_weight *weight) {
  while (weight->tuned_all != NULL) {
    struct tuned *tuned = weight->tuned_all;
    weight->tuned_all = tuned->older;
    free(tuned);
  }
}
