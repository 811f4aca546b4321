#include "counters.h"

/* One writer: a load and a store are enough, readers just see whole numbers. */
static void add(_Atomic uint64_t *counter, uint64_t more) {
  uint64_t before = atomic_load_explicit(counter, memory_order_relaxed);
  atomic_store_explicit(counter, before + more, memory_order_relaxed);
}

static uint64_t get(const _Atomic uint64_t *counter) {
  return atomic_load_explicit(counter, memory_order_relaxed);
}

void counters_request(struct counters *counters, enum status status, enum gemm_format format, uint64_t rows,
                      uint64_t ns) {
  add(&counters->requests, 1);
  if (status != STATUS_OK) {
    add(&counters->failures, 1);
    add(&counters->refusals[status], 1);
    return;
  }
  add(&counters->rows, rows);
  add(&counters->waits[format].ns, ns);
  add(&counters->waits[format].tally[tally_bucket(ns, TALLY_NS)], 1);
}

void counters_product(struct counters *counters, uint64_t rows, uint64_t device_ns) {
  add(&counters->products, 1);
  add(&counters->device_ns, device_ns);
  add(&counters->batches[tally_bucket(rows, TALLY_ROWS)], 1);
}

void counters_waiting(struct counters *counters, uint32_t waiting) {
  atomic_store_explicit(&counters->waiting, waiting, memory_order_relaxed);
}

void counters_progress(struct counters *counters, uint64_t since_ns) {
  atomic_store_explicit(&counters->progress_ns, since_ns, memory_order_relaxed);
}

bool counters_ask(struct counters *counters, uint64_t now_ns) {
  uint64_t rests = 0;
  return atomic_compare_exchange_strong(&counters->progress_ns, &rests, now_ns);
}

/* True where one is not 0. */
static bool read_tally(const _Atomic uint64_t *tally, struct message_tally *out) {
  uint64_t any = 0;
  for (uint32_t i = 0; i < TALLY_BUCKETS; i++)
    any |= out[i].count = get(&tally[i]);
  return any != 0;
}

static void read_formats(const struct counters *counters, struct message_worker_stats *out) {
  for (uint32_t format = 1; format < COUNTERS_FORMATS; format++) {
    struct message_format_stats *stats = &out->formats[out->formats_count];
    if (!read_tally(counters->waits[format].tally, stats->waits))
      continue;
    stats->format = format;
    stats->wait_ns = get(&counters->waits[format].ns);
    stats->waits_count = TALLY_BUCKETS;
    out->formats_count++;
  }
}

static void read_refusals(const struct counters *counters, struct message_worker_stats *out) {
  for (uint32_t status = 1; status < COUNTERS_STATUSES; status++)
    if (get(&counters->refusals[status]) != 0)
      out->refusals[out->refusals_count++] =
          (struct message_status_stats){.status = status, .count = get(&counters->refusals[status])};
}

void counters_read(const struct counters *counters, uint64_t now_ns, struct message_worker_stats *out) {
  uint64_t progress_ns = get(&counters->progress_ns);
  *out = (struct message_worker_stats){
      .requests = get(&counters->requests),
      .rows = get(&counters->rows),
      .products = get(&counters->products),
      .failures = get(&counters->failures),
      .device_ns = get(&counters->device_ns),
      .waiting = atomic_load_explicit(&counters->waiting, memory_order_relaxed),
      .stuck_ns = progress_ns != 0 && now_ns > progress_ns ? now_ns - progress_ns : 0,
  };
  read_formats(counters, out);
  read_refusals(counters, out);
  if (read_tally(counters->batches, out->batches))
    out->batches_count = TALLY_BUCKETS;
}
