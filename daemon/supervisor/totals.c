#include "totals.h"

static void add_tally(uint64_t to[TALLY_BUCKETS], const struct message_tally *from, uint32_t count) {
  for (uint32_t i = 0; i < count && i < TALLY_BUCKETS; i++)
    to[i] += from[i].count;
}

void totals_add(struct totals *totals, const struct message_worker_stats *stats) {
  totals->requests += stats->requests;
  totals->rows += stats->rows;
  totals->failures += stats->failures;
  totals->device_ns += stats->device_ns;
  totals->products += stats->products;
  for (uint32_t i = 0; i < stats->formats_count; i++) {
    const struct message_format_stats *from = &stats->formats[i];
    if (from->format >= TOTALS_FORMATS)
      continue;
    totals->waits[from->format].ns += from->wait_ns;
    add_tally(totals->waits[from->format].tally, from->waits, from->waits_count);
  }
  for (uint32_t i = 0; i < stats->refusals_count; i++)
    if (stats->refusals[i].status < TOTALS_STATUSES)
      totals->refusals[stats->refusals[i].status] += stats->refusals[i].count;
  add_tally(totals->batches, stats->batches, stats->batches_count);
}
