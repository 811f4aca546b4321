/* What a worker counts. The engine's thread is the only writer; any thread may read. */
#pragma once

#include "../../../proto/gemm.h"
#include "../../../proto/tally.h"
#include "../../../proto/wire/message.h"

#include <stdatomic.h>

enum { COUNTERS_FORMATS = GEMM_FORMATS, COUNTERS_STATUSES = STATUS_INTERNAL + 1 };

/* From the moment that a request was taken from its ring to the end of its product. */
struct counters_waits {
  _Atomic uint64_t ns;
  _Atomic uint64_t tally[TALLY_BUCKETS];
};

struct counters {
  _Atomic uint64_t requests;                     /* completed, whatever their status */
  _Atomic uint64_t rows;                         /* of products that went well */
  _Atomic uint64_t products;                     /* that the device was asked for, each for one request or several */
  _Atomic uint64_t failures;                     /* completed with another status than OK */
  _Atomic uint64_t device_ns;                    /* the backend's own time of products */
  struct counters_waits waits[COUNTERS_FORMATS]; /* of what went well, by the weight's format */
  _Atomic uint64_t refusals[COUNTERS_STATUSES];  /* completions by status; that of OK is not counted */
  _Atomic uint64_t batches[TALLY_BUCKETS];       /* products by their rows */
  _Atomic uint32_t waiting;                      /* requests that have not begun */
  _Atomic uint64_t progress_ns; /* since when nothing has been done that should; 0: there is nothing to do */
};

/* A request has ended. `format` is looked at where the status is OK. */
void counters_request(struct counters *counters, enum status status, enum gemm_format format, uint64_t rows,
                      uint64_t ns);
/* A product of so many rows has ended. */
void counters_product(struct counters *counters, uint64_t rows, uint64_t device_ns);
void counters_waiting(struct counters *counters, uint32_t waiting);
/* What is under way has been so since then; or (0) there is nothing to do. */
void counters_progress(struct counters *counters, uint64_t since_ns);
/* Any thread: from now on an engine that rests has something to do, which is to say that it rests. False where it does
 * not rest. */
bool counters_ask(struct counters *counters, uint64_t now_ns);

void counters_read(const struct counters *counters, uint64_t now_ns, struct message_worker_stats *out);
