/* The same product inside one process, by the program gemm-inprocess. */
#ifndef BENCH_COMPARE_H
#define BENCH_COMPARE_H

#include "serve.h"

/* Medians. */
struct compare {
  double best_us;
  double obvious_us, kernel_us; /* 0: not on this backend */
};

/* Runs the program that lies beside this one, or on the PATH. Says what went wrong. */
enum tool_exit compare_measure(const struct tool_call *call, const struct serve_settings *settings,
                               struct compare *out);

#endif
