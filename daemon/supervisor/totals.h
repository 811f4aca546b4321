/* What all workers that a device has had have counted together. */
#pragma once

#include "../../proto/gemm.h"
#include "../../proto/tally.h"
#include "../../proto/wire/message.h"

#include <stdint.h>

enum { TOTALS_FORMATS = GEMM_FORMATS, TOTALS_STATUSES = STATUS_INTERNAL + 1 };

struct totals {
  uint64_t requests, rows, failures, device_ns, products;
  struct {
    uint64_t ns, tally[TALLY_BUCKETS];
  } waits[TOTALS_FORMATS];
  uint64_t refusals[TOTALS_STATUSES];
  uint64_t batches[TALLY_BUCKETS];
};

/* Adds what one worker has counted. Formats and statuses that are none are left out. */
void totals_add(struct totals *totals, const struct message_worker_stats *stats);
