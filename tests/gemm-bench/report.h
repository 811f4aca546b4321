/* What gemm-bench says. */
#pragma once

#include "compare.h"
#include "serve.h"

struct report {
  const struct serve_settings *settings;
  const char *rows_text; /* --m as it was given */
  const struct histogram *latency, *overhead, *device, *roundtrip;
  const struct compare *compare;   /* NULL: nothing was compared */
  const struct histogram *machine; /* NULL: not measured */
  double taken;                    /* see bare_measure */
  uint64_t failures;
  uint64_t checked; /* of y */
  double difference;
  double seconds, rows_per_s;
  bool buckets; /* the histograms themselves, too */
};

void report_json(const struct report *report, FILE *out);
void report_text(const struct report *report, FILE *out);
