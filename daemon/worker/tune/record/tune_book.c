#include "tune_book.h"

#include <stdlib.h>
#include <string.h>

enum {
  PROBES = 16,
  RARE = 200, /* a shape is rare that takes less than this part of all time: half a percent */
};
#define STALE_NS ((uint64_t)600 * 1000000000)

enum status book_open(struct book *book, struct error *error) {
  book->count = 0;
  book->entries = calloc(BOOK_ENTRIES, sizeof *book->entries);
  return book->entries != NULL ? STATUS_OK : error_set(error, STATUS_NOMEM, "no memory for the list of shapes");
}

void book_close(struct book *book) {
  free(book->entries);
}

static uint64_t hash_of(const struct variant_problem *problem, const struct variant *pin) {
  const uint64_t words[] = {(uint64_t)problem->weight.n << 32 ^ (uint64_t)problem->weight.k,
                            (uint64_t)problem->m << 32 ^ (uint64_t)problem->weight.format << 16 ^
                                (uint64_t)problem->weight.scale << 12 ^ (uint64_t)problem->x_type << 8 ^
                                (uint64_t)problem->y_type << 4 ^ (uint64_t)problem->bias_type,
                            (uint64_t)(uintptr_t)pin ^ (uint64_t)problem->tensors.align << 2 ^
                                (uint64_t)problem->tensors.x_turned << 1 ^ (uint64_t)problem->tensors.w_turned};
  uint64_t hash = 0;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 31;
  }
  return hash;
}

static struct book_entry *place(struct book *book, uint64_t hash, uint64_t probe) {
  return &book->entries[(hash + probe) % BOOK_ENTRIES];
}

struct book_entry *book_find(struct book *book, const struct variant_problem *problem, const struct variant *pin) {
  uint64_t hash = hash_of(problem, pin);
  for (uint64_t i = 0; i < PROBES; i++) {
    struct book_entry *entry = place(book, hash, i);
    if (entry->used && entry->pin == pin && variant_problem_equal(&entry->problem, problem))
      return entry;
  }
  return NULL;
}

/* ---- where there is no room */

static uint32_t count_of(struct book *book, uint64_t hash, uint32_t user) {
  uint32_t count = 0;
  for (uint64_t i = 0; i < PROBES; i++)
    count += place(book, hash, i)->user == user;
  return count;
}

/* The entry of these that was served longest ago and may go: any of `user`, or with BOOK_NOBODY of whomever. */
static struct book_entry *oldest(struct book *book, uint64_t hash, uint32_t user) {
  struct book_entry *found = NULL;
  for (uint64_t i = 0; i < PROBES; i++) {
    struct book_entry *entry = place(book, hash, i);
    bool may_go = !entry->held && !entry->asked && (user == BOOK_NOBODY || entry->user == user);
    if (may_go && (found == NULL || entry->seen_ns < found->seen_ns))
      found = entry;
  }
  return found;
}

/* One that nobody asks for any more; else, where another user has more places here than this one would have with it, of
 * who has the most. So nobody who asks for ever new shapes keeps others from being tuned, and nobody's own push each
 * other out. */
static struct book_entry *expendable(struct book *book, uint64_t hash, const struct book_visit *visit) {
  struct book_entry *entry = oldest(book, hash, BOOK_NOBODY);
  uint32_t own = count_of(book, hash, visit->user), most = own + 1, whose = BOOK_NOBODY;
  if (entry == NULL || visit->now_ns - entry->seen_ns > STALE_NS)
    return entry;
  for (uint64_t i = 0; i < PROBES; i++) {
    uint32_t user = place(book, hash, i)->user, count = count_of(book, hash, user);
    if (count > most) {
      most = count;
      whose = user;
    }
  }
  return whose != BOOK_NOBODY ? oldest(book, hash, whose) : NULL;
}

static struct book_entry *make(struct book *book, const struct variant_problem *problem, const struct variant *pin,
                               const struct book_visit *visit) {
  struct book_entry *entry = NULL;
  uint64_t hash = hash_of(problem, pin);
  for (uint64_t i = 0; i < PROBES && entry == NULL; i++)
    if (!place(book, hash, i)->used)
      entry = place(book, hash, i);
  if (entry == NULL)
    entry = expendable(book, hash, visit);
  if (entry == NULL)
    return NULL;
  book->count += !entry->used;
  *entry = (struct book_entry){.problem = *problem, .pin = pin, .used = true, .user = BOOK_NOBODY};
  return entry;
}

struct book_entry *book_visit(struct book *book, const struct variant_problem *problem, const struct variant *pin,
                              const struct book_visit *visit) {
  struct book_entry *entry = book_find(book, problem, pin);
  if (entry == NULL)
    entry = make(book, problem, pin, visit);
  if (entry == NULL)
    return NULL;
  entry->seen_ns = visit->now_ns;
  if (entry->user == BOOK_NOBODY)
    entry->user = visit->user;
  return entry;
}

void book_add_weight(struct book_entry *entry, struct backend_weight *weight) {
  for (uint32_t i = 0; i < entry->weight_count; i++)
    if (entry->weights[i] == weight)
      return;
  if (entry->weight_count < BOOK_WEIGHTS)
    entry->weights[entry->weight_count++] = weight;
}

void book_gather_weights(const struct book *book, struct book_entry *entry) {
  const struct gemm_weight *shape = &entry->problem.weight;
  for (uint32_t i = 0; i < BOOK_ENTRIES; i++) {
    const struct book_entry *other = &book->entries[i];
    const struct gemm_weight *of = &other->problem.weight;
    if (!other->used || entry->problem.tensors.given || of->n != shape->n || of->k != shape->k ||
        of->format != shape->format || of->scale != shape->scale)
      continue;
    for (uint32_t j = 0; j < other->weight_count; j++)
      book_add_weight(entry, other->weights[j]);
  }
}

void book_weight_gone(struct book *book, struct backend_weight *weight) {
  for (uint32_t i = 0; i < BOOK_ENTRIES; i++) {
    struct book_entry *entry = &book->entries[i];
    for (uint32_t j = 0; j < entry->weight_count; j++)
      if (entry->weights[j] == weight)
        entry->weights[j--] = entry->weights[--entry->weight_count];
  }
}

void book_pin_gone(struct book *book, const struct variant *pin) {
  for (uint32_t i = 0; i < BOOK_ENTRIES; i++)
    if (book->entries[i].used && book->entries[i].pin == pin) {
      book->entries[i] = (struct book_entry){.used = false};
      book->count--;
    }
}

void book_wrong(struct book_entry *entry, const struct variant *variant) {
  if (entry->wrong_count < BOOK_WRONG && !book_is_wrong(entry, variant))
    entry->wrong[entry->wrong_count++] = *variant;
}

void book_killed(struct book_entry *entry, const struct variant *variant) {
  if (book_is_wrong(entry, variant))
    return;
  uint32_t kept = entry->wrong_count < BOOK_WRONG ? entry->wrong_count : BOOK_WRONG - 1;
  memmove(&entry->wrong[1], &entry->wrong[0], kept * sizeof *entry->wrong);
  entry->wrong[0] = *variant;
  entry->wrong_count = kept + 1;
}

bool book_is_wrong(const struct book_entry *entry, const struct variant *variant) {
  for (uint32_t i = 0; i < entry->wrong_count; i++)
    if (variant_equal(&entry->wrong[i], variant))
      return true;
  return false;
}

/* Bytes that a product must read and write. */
static double book_bytes(const struct variant_problem *problem) {
  double n = (double)problem->weight.n, k = (double)problem->weight.k, m = (double)problem->m;
  return n * k * gemm_format_facts(problem->weight.format)->bits / 8 + m * k * gemm_type_bytes(problem->x_type) +
         m * n * gemm_type_bytes(problem->y_type);
}

uint64_t book_roof_ns(const struct variant_problem *problem, const struct backend_roof *roof) {
  double n = (double)problem->weight.n, k = (double)problem->weight.k, m = (double)problem->m;
  uint64_t operations_per_s = roof->operations_per_s[problem->weight.format];
  if (roof->bytes_per_s == 0 || operations_per_s == 0)
    return 0;
  double reading = book_bytes(problem) / (double)roof->bytes_per_s;
  double computing = 2 * m * n * k / (double)operations_per_s;
  return (uint64_t)((reading > computing ? reading : computing) * 1e9 + 0.5);
}

static double average_ns(const struct book_entry *entry) {
  return entry->calls > 0 ? (double)entry->device_ns / (double)entry->calls : 0;
}

/* Bytes a ns of the shape that was served fastest. */
static double best_bandwidth(const struct book *book) {
  double best = 0;
  for (uint32_t i = 0; i < BOOK_ENTRIES; i++) {
    const struct book_entry *entry = &book->entries[i];
    double average = entry->used ? average_ns(entry) : 0;
    if (average > 0 && book_bytes(&entry->problem) / average > best)
      best = book_bytes(&entry->problem) / average;
  }
  return best;
}

bool book_frequent(const struct book_entry *entry) {
  return entry->device_ns >= entry->rare_ns;
}

static uint64_t time_of_all(const struct book *book) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < BOOK_ENTRIES; i++)
    sum += book->entries[i].used ? book->entries[i].device_ns : 0;
  return sum;
}

/* Notes when to look again, so that nobody need look in vain each time that it is served. */
static bool is_rare(struct book_entry *entry, uint64_t time_of_all) {
  entry->rare_ns = 0;
  if (entry->asked || entry->pin != NULL || entry->state == BOOK_KEPT || entry->device_ns >= time_of_all / RARE)
    return false;
  entry->rare_ns = time_of_all / RARE > 2 * entry->device_ns ? time_of_all / RARE : 2 * entry->device_ns;
  return true;
}

bool book_only_compiles(const struct book_entry *entry) {
  return entry->state == BOOK_TUNED && entry->compiled_wait && !entry->library_waits && !entry->brief && !entry->asked;
}

/* Even a shape at the best bandwidth may have something to win: a twentieth is assumed. */
static double worth(const struct book_entry *entry, double bandwidth) {
  if (entry->asked)
    return 1e30;
  if (entry->state == BOOK_KEPT || entry->pin != NULL)
    return 1e25;
  double average = average_ns(entry);
  double part = entry->brief ? 1e-2 : entry->library_waits ? 1e-3 : book_only_compiles(entry) ? 1e-6 : 1;
  double above = average > 0 && bandwidth > 0 ? 1 - book_bytes(&entry->problem) / bandwidth / average : 0;
  return part * (double)entry->device_ns * (above > 0.05 ? above : 0.05);
}

static bool is_open(const struct book_entry *entry, bool ask_only) {
  bool untuned = entry->state == BOOK_SEEN || entry->state == BOOK_KEPT ||
                 (entry->state == BOOK_TUNED && (entry->brief || entry->library_waits || entry->compiled_wait));
  return entry->used && (entry->weight_count > 0 || entry->problem.tensors.given) &&
         (entry->asked || (entry->pin != NULL && entry->state == BOOK_SEEN) || (!ask_only && untuned));
}

struct book_entry *book_next(struct book *book, bool ask_only, bool quiet, bool *waits) {
  struct book_entry *best = NULL;
  double most = -1, bandwidth = best_bandwidth(book);
  uint64_t all = quiet ? 0 : time_of_all(book);
  *waits = false;
  for (uint32_t i = 0; i < BOOK_ENTRIES; i++) {
    struct book_entry *entry = &book->entries[i];
    if (!is_open(entry, ask_only))
      continue;
    if (!quiet && !entry->asked && (entry->aside || book_only_compiles(entry) || is_rare(entry, all))) {
      *waits = true;
    } else if (worth(entry, bandwidth) > most) {
      most = worth(entry, bandwidth);
      best = entry;
    }
  }
  return best;
}
